// Package lazy decides about rate limits at the speed of memory, in front of a store that many servers share.
//
// What it lets through is counted here and sent to the store each interval, and what the others have let
// through is learnt by the same round trip. So a server knows all that it has let through itself, and of the
// others all but the last two intervals and round trips; by as much as they let through in that time the
// limit may be exceeded. In chunks it lets nothing through that it has not taken from the store before, and
// the limit holds.
package lazy

import (
	"context"
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
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error

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

// A Store is a gate.Store. Make one with New.
type Store struct {
	shared SharedStore
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
	if config.Names == 0 {
		config.Names = DefaultNames
	}
	s := &Store{
		shared: shared, config: config, seed: maphash.MakeSeed(), holder: max(1, rand.Uint64()),
		slots: make(chan struct{}, maxExchanges), rounds: make(map[time.Duration]*syncRound),
	}
	for i := range s.shards {
		s.shards[i].names = make(map[gatehouse.Key]*namedLimiter)
	}
	return s
}

// Len returns how many names are decided about here at present.
func (s *Store) Len() int { return int(s.count.Load()) }

// Watch implements gate.Store. What others give back or reset wakes no waiter here at once, but all are
// looked at each second.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) { return s.shared.Watch(key, wake) }

// Range implements gate.Store. What was let through here since the last exchange does not show.
func (s *Store) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	return s.shared.Range(ctx, kind, after, visit)
}

// Apply implements gate.Store. What is decided in memory is done before it returns.
func (s *Store) Apply(c *control.Change) {
	n := s.limiterFor(c.Key)
	// No rule, or too many names: the store decides each command.
	if n == nil {
		s.shared.Apply(c)
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
