// Package lazy decides about rate limits at the speed of memory, in front of a store that many servers share.
//
// What it lets through is counted here and sent to the store each interval, and what the others have let
// through is learnt by the same round trip. So a server knows all that it has let through itself, and of the
// others all but the last two intervals and round trips; by as much as they let through in that time the
// limit may be exceeded. In chunks it lets nothing through that it has not taken from the store before, and
// the limit holds.
package lazy

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A SharedStore is the store behind, as store/cas makes it.
type SharedStore interface {
	Apply(c *control.Change)
	ApplyJoint(c *control.JointChange)
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error

	// Now is the store's time, or somewhat before; Latest is that, or somewhat after.
	Now() time.Time
	Latest() time.Time
}

// A SyncRule says how a name is decided about.
type SyncRule struct {
	// Interval is the time between two exchanges with the store, at least a millisecond; 0 means that the
	// store decides each time.
	Interval time.Duration

	// Chunk is how many are taken from the store at once, to be let through here; 0 means that what was
	// let through is sent later. It is for token buckets and fixed windows; with other limiters the store
	// decides each time.
	Chunk int64
}

// A Config says how a store is used.
type Config struct {
	// Rule is asked when a name is first used. It must always say the same of one name.
	Rule func(key gatehouse.Key) SyncRule

	// Names is the most names that are decided about here at once; others are left to the store. 0 means
	// DefaultNames.
	Names int
}

// DefaultNames needs about 120 MiB.
const DefaultNames = 100_000

// A Store is a gate.Store. Make one with New. Its Watch and Range are those of the store behind: what others
// give back or reset wakes no waiter here at once, but all are looked at each second; and what was let
// through here since the last exchange does not show.
type Store struct {
	SharedStore
	config Config
	holder uint64 // of all chunks here
	seed   maphash.Seed
	shards [shards]shard
	count  atomic.Int64 // of names
	slots  chan struct{}

	mu     sync.Mutex
	rounds map[time.Duration]*syncRound
	closed bool
	work   sync.WaitGroup
}

// New returns a store in front of shared, which stays its owner's. Close ends it.
func New(shared SharedStore, config Config) *Store {
	config.Names = cmp.Or(config.Names, DefaultNames)
	s := &Store{
		SharedStore: shared, config: config, seed: maphash.MakeSeed(), holder: max(1, rand.Uint64()),
		slots: make(chan struct{}, maxExchanges), rounds: make(map[time.Duration]*syncRound),
	}
	for i := range s.shards {
		s.shards[i].names = make(map[gatehouse.Key]*namedLimiter)
	}
	return s
}

// Len returns how many names are decided about here at present.
func (s *Store) Len() int { return int(s.count.Load()) }

// Apply implements gate.Store. What is decided in memory is done before it returns.
func (s *Store) Apply(c *control.Change) {
	n := s.limiterFor(c.Key)
	// No rule, or too many names: the store decides each command.
	if n == nil {
		s.SharedStore.Apply(c)
		return
	}
	rest, err := n.applyInMemory(c.Turns)
	switch {
	case err == errForgotten: //nolint:errorlint // it is never wrapped
		s.Apply(c) // at a limiter that is made anew
	case err != nil || len(rest) == 0:
		c.Done(err)
	default:
		go s.applyRest(n, c, rest) // ends with the answer of the store
	}
}

// applyRest applies what the memory did not answer of a change, and waits for the store.
func (s *Store) applyRest(n *namedLimiter, c *control.Change, rest []control.Turn) {
	var err error
	if n.rule.Chunk > 0 {
		err = n.applyFromChunks(rest)
	} else {
		err = n.applyByStore(rest)
	}
	// Nothing was done then, and rest is all of the change.
	if err == errForgotten { //nolint:errorlint // it is never wrapped
		s.Apply(c)
		return
	}
	c.Done(err)
}

// Close sends the store what was counted since the last exchange, and gives back what is left over, as far as
// it answers within some seconds. The store must not be used during it or after.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	for _, r := range s.rounds {
		// A timer that was stopped in time never runs its round, whose Done would be missing.
		if r.timer.Stop() {
			s.work.Done()
		}
	}
	clear(s.rounds)
	s.mu.Unlock()
	s.work.Wait()
	s.exchangeAllLast()
}

// shards is how many locks the names are spread over.
const shards = 64

// A shard is some of the names.
type shard struct {
	mu    sync.RWMutex
	names map[gatehouse.Key]*namedLimiter
}

// errForgotten says that a name was forgotten between being found and being used.
var errForgotten = errors.New("the name was forgotten")

func (s *Store) shardOf(key gatehouse.Key) *shard {
	h := maphash.String(s.seed, key.Name) + uint64(key.Kind)
	return &s.shards[h%shards]
}

// InChunks reports whether a kind can be taken from the store in chunks: the limiters that refill at an
// instant, by which what is left of a chunk is worth nothing.
func InChunks(kind gatehouse.Kind) bool {
	return kind == gatehouse.TokenBucket || kind == gatehouse.FixedWindow
}

// limiterFor is what is known of a name, from now on if nothing is yet; nil when it is left to the store.
func (s *Store) limiterFor(key gatehouse.Key) *namedLimiter {
	if !key.Kind.Limiter() {
		return nil
	}
	sh := s.shardOf(key)
	sh.mu.RLock()
	n := sh.names[key]
	sh.mu.RUnlock()
	if n != nil {
		return n
	}
	rule := s.config.Rule(key)
	if rule.Interval <= 0 || rule.Chunk > 0 && !InChunks(key.Kind) {
		return nil
	}
	// Counted before the lock is taken, so that the bound holds over all shards. The caller that loses
	// the race below subtracts again.
	if s.count.Add(1) > int64(s.config.Names) {
		s.count.Add(-1)
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n = sh.names[key]
	if n != nil {
		s.count.Add(-1)
		return n
	}
	n = &namedLimiter{store: s, key: key, rule: rule, exchangeLock: make(chan struct{}, 1)}
	n.exchanges = rand.Uint64() >> 1 // so that no number is one from before the name was forgotten
	sh.names[key] = n
	return n
}

// forgetLimiter drops a name that is not used. It is called with the name's locks held.
func (s *Store) forgetLimiter(n *namedLimiter) {
	n.forgotten, n.state, n.chunk, n.refused = true, nil, nil, nil
	sh := s.shardOf(n.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.names, n.key)
	s.count.Add(-1)
}

// allLimiters are the names at present.
func (s *Store) allLimiters() []*namedLimiter {
	var all []*namedLimiter
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for _, n := range sh.names {
			all = append(all, n)
		}
		// A name's own lock is taken before that of its shard, so that the caller must not use the names
		// under this one.
		sh.mu.RUnlock()
	}
	return all
}

// A syncRound is the names with one interval that have something to tell or to learn. They go to the store
// together, in few round trips where that sends many requests at once.
type syncRound struct {
	due   []*namedLimiter
	timer *time.Timer
}

const (
	// maxExchanges is how many exchanges are under way at once, so that other requests for the store do not
	// wait behind all of them.
	maxExchanges = 512
	// maxClosing is how long the last exchanges may take.
	maxClosing = 5 * time.Second
)

// scheduleExchange has a name exchanged within an interval. It is called with the name's lock held.
func (s *Store) scheduleExchange(n *namedLimiter) {
	if n.scheduled || n.forgotten {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // the last exchange is about to come
	}
	n.scheduled = true
	interval := n.rule.Interval
	r := s.rounds[interval]
	if r == nil {
		r = &syncRound{}
		s.rounds[interval] = r
		s.work.Add(1)
		r.timer = time.AfterFunc(interval, func() { defer s.work.Done(); s.runRound(interval) })
	}
	r.due = append(r.due, n)
}

// runRound exchanges the names of a round, which then has none.
func (s *Store) runRound(interval time.Duration) {
	s.mu.Lock()
	r := s.rounds[interval]
	if r == nil {
		s.mu.Unlock()
		return // the store is being closed
	}
	delete(s.rounds, interval)
	s.mu.Unlock()
	s.exchangeEach(r.due, (*namedLimiter).exchangeOnce)
}

// exchangeAllLast exchanges all names for the last time.
func (s *Store) exchangeAllLast() {
	end := time.Now().Add(maxClosing)
	s.exchangeEach(s.allLimiters(), func(n *namedLimiter) {
		// A store that does not answer must not keep the server from ending: chunks come back by themselves.
		if time.Now().Before(end) {
			n.exchangeLast()
		}
	})
}

// exchangeEach does something with all names, and returns when that is done.
func (s *Store) exchangeEach(due []*namedLimiter, exchange func(*namedLimiter)) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range min(maxExchanges, len(due)) {
		work.Go(func() {
			for i := next.Add(1); i <= int64(len(due)); i = next.Add(1) {
				// Rounds of several intervals share the slots: the bound is for the whole server.
				s.slots <- struct{}{}
				exchange(due[i-1])
				<-s.slots
			}
		})
	}
	work.Wait()
}
