// Package memory keeps controllers in the memory of one process. It is atomic, linearizable and
// fast, and it forgets everything when the process ends.
package memory

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// A Config sets the limits of a store. The zero value works.
type Config struct {
	// Names is the most controllers kept at once; 0 means DefaultNames. When it is reached,
	// controllers that are worth nothing are forgotten early, first those that only refused, and only if
	// none is found among some thousands is a new name refused.
	Names int

	// Linger is how long a controller that is worth nothing is remembered for its statistics; 0 means
	// DefaultLinger. One that only refused is remembered for RefusedLinger.
	Linger time.Duration

	// Now is the clock; nil means a monotonic one. It must not go backwards.
	Now func() time.Time

	// Journal is told of every change; nil means that nobody is.
	Journal Journal
}

// The defaults of Config.
const (
	// DefaultNames needs about 150 MiB when all of them are token buckets with names of 20 bytes.
	DefaultNames  = 500_000
	DefaultLinger = time.Minute

	// RefusedLinger leaves time to look up why nobody gets through, and is the same in shared stores.
	RefusedLinger = 10 * time.Minute
)

// shards is how many locks the names are spread over. A map grows in steps, and with 320 parts half a
// million names, and a million, lie where its tables are well filled: 143 bytes a bucket, not 177.
const shards = 320

// A Store keeps controllers in memory. Make one with New.
type Store struct {
	names  int64
	linger time.Duration
	now    func() time.Time
	seed   maphash.Seed
	shards [shards]shard
	count  atomic.Int64 // of names
	idle   atomic.Int64 // of those in the shards' refused
	full   atomic.Int64 // until when a new name need not look for room again, Unix ns

	journal Journal // nil when nobody is told
}

// New returns an empty store. It runs no goroutine and needs no closing; while it has names, timers
// hold on to it.
func New(config Config) *Store {
	s := &Store{
		names:  int64(config.Names),
		linger: config.Linger,
		now:    config.Now,
		seed:   maphash.MakeSeed(),

		journal: config.Journal,
	}
	if s.names == 0 {
		s.names = DefaultNames
	}
	if s.linger == 0 {
		s.linger = DefaultLinger
	}
	if s.now == nil {
		start := time.Now()
		s.now = func() time.Time { return start.Add(time.Since(start)) }
	}
	return s
}

// Len returns how many names are kept, those that only linger included.
func (s *Store) Len() int { return int(s.count.Load()) }

// A shard is one part of the names under one lock.
type shard struct {
	mu      sync.Mutex
	tables  [gatehouse.Kinds]table
	refused minheap.Heap[refusal] // names that were only refused, see refused.go
	pins    map[gatehouse.Key]int // by how many watches a key must not be forgotten
	timer   *time.Timer           // fires when the first name is due
	armed   int64                 // what is due when timer fires, Unix ns; 0 when it does not
	marked  map[gatehouse.Key]struct{}
}

// A table holds one kind's controllers of a shard. Every name in states has exactly one entry in queue, or
// in the shard's refused. A nil state is a name that was deleted and waits there to be dropped.
type table struct {
	states map[string]control.State
	queue  minheap.Heap[due]
}

func (s *Store) shard(key gatehouse.Key) *shard {
	h := maphash.String(s.seed, key.Name) + uint64(key.Kind)
	return &s.shards[h%shards]
}

// Apply serves the queue at one instant, as one change.
func (s *Store) Apply(_ context.Context, key gatehouse.Key, queue []control.Turn) error {
	sh := s.shard(key)
	t := &sh.tables[key.Kind]
	for {
		sh.mu.Lock()
		now := s.now()
		old, known := t.states[key.Name]
		state := control.Serve(now, key.Kind, old, queue)
		kept := known && state == old || s.keep(sh, key, state, now)
		var pending Pending
		if kept && s.journal != nil && (known || state != nil) {
			pending = s.tell(sh, key, old, queue)
		}
		sh.mu.Unlock()
		if pending != nil {
			return pending.Wait()
		}
		if kept {
			return nil
		}
		// The state is new and nobody has seen it, so that dropping it is as if nothing had been done.
		if !s.reclaim() {
			return gatehouse.Errorf(gatehouse.CodeExhausted,
				"%s: all %d names of this server are in use", key, s.names)
		}
	}
}

// keep notes the state of a name that is new or was replaced. It reports false when there is no room.
func (s *Store) keep(sh *shard, key gatehouse.Key, state control.State, now time.Time) bool {
	t := &sh.tables[key.Kind]
	if _, known := t.states[key.Name]; known {
		t.states[key.Name] = state
		return true
	}
	if state == nil {
		return true
	}
	if !state.Expiry().After(now) && sh.pins[key] == 0 { // worth nothing
		s.keepRefused(sh, key, state, now)
		return true
	}
	if s.count.Load() >= s.names {
		return false
	}
	s.add(sh, key, state, now)
	return true
}

// Watch keeps the controller from being forgotten until stop is called, because somebody waits at
// it. Nothing changes in this store behind the back of its one gate, so wake is never called.
func (s *Store) Watch(key gatehouse.Key, _ func()) (stop func()) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.pins == nil {
		sh.pins = make(map[gatehouse.Key]int)
	}
	sh.pins[key]++
	return func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if sh.pins[key]--; sh.pins[key] == 0 {
			delete(sh.pins, key)
		}
	}
}

// page is how many names Range sorts at a time.
const page = 1024

// Range visits the controllers of one kind whose names come after the given one, in the order of
// their names, until visit returns false. Each is visited under its lock: visit must be quick and
// must not change or keep the state. Names that come or go meanwhile may be missed.
func (s *Store) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	for {
		names := s.next(kind, after)
		for _, name := range names {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !s.visit(gatehouse.Key{Kind: kind, Name: name}, visit) {
				return nil
			}
		}
		if len(names) < page {
			return nil
		}
		after = names[len(names)-1]
	}
}

// next returns the first names of a kind after the given one, at most a page of them, in order.
func (s *Store) next(kind gatehouse.Kind, after string) []string {
	var names []string
	last := "" // names after this one come on a later page; "" when that is not known yet
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for name, state := range sh.tables[kind].states {
			if name > after && state != nil && (last == "" || name < last) {
				names = append(names, name)
			}
		}
		sh.mu.Unlock()
		if len(names) > 4*page || i == shards-1 {
			slices.Sort(names)
			if len(names) > page {
				names = names[:page]
				last = names[page-1]
			}
		}
	}
	return names
}

func (s *Store) visit(key gatehouse.Key, visit func(gatehouse.Key, control.State) bool) bool {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	state := sh.tables[key.Kind].states[key.Name]
	return state == nil || visit(key, state)
}
