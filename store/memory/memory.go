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
	"github.com/gatehousehq/gatehouse/internal/weight"
)

// A Config sets the limits of a store. The zero value works.
type Config struct {
	// Names is the most controllers kept at once; 0 means DefaultNames. The last tenth is kept for
	// semaphores and locks. When it is reached, controllers that are worth nothing are forgotten early,
	// first those that only refused, and only if none is found among some thousands is a new name refused.
	Names int

	// Holders is the most holders of all semaphores and locks together; 0 means DefaultHolders.
	Holders int

	// Memory is what everything weighs that is kept, and how much that may be; nil means without a limit.
	// Near it names are forgotten as for Names, and then commands are refused that might keep more. What
	// Put puts there always is.
	Memory *weight.Total

	// Linger is how long a controller that is worth nothing is remembered for its statistics; 0 means
	// DefaultLinger, and LimitLinger for those whose limit or size later commands may leave as it is. One
	// that only refused is remembered for RefusedLinger.
	Linger time.Duration

	// Now is the clock; nil means a monotonic one. It must not go backwards.
	Now func() time.Time

	// Journal is told of every change; nil means that nobody is.
	Journal Journal
}

// The defaults of Config.
const (
	// DefaultNames needs about 150 MiB when all of them are token buckets with names of 20 bytes.
	DefaultNames   = 500_000
	DefaultHolders = 1_000_000
	DefaultLinger  = time.Minute

	// LimitLinger is how long a limiter or a semaphore at rest keeps the limit that was given last. Shared
	// stores keep it as long.
	LimitLinger = 10 * time.Minute

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
	limits time.Duration // linger of limiters and semaphores
	now    func() time.Time
	seed   maphash.Seed
	shards [shards]shard
	count  atomic.Int64 // of names
	common atomic.Int64 // of those, all but semaphores and locks
	idle   atomic.Int64 // of those in the shards' refused
	full   atomic.Int64 // until when a new name need not look for room again, Unix ns

	memory      *weight.Total
	holders     atomic.Int64
	mostHolders int64

	journal Journal // nil when nobody is told
}

// New returns an empty store. It runs no goroutine and needs no closing; while it has names, timers
// hold on to it.
func New(config Config) *Store {
	s := &Store{
		names:  int64(config.Names),
		linger: config.Linger,
		limits: config.Linger,
		now:    config.Now,
		seed:   maphash.MakeSeed(),

		memory:      config.Memory,
		mostHolders: int64(config.Holders),
		journal:     config.Journal,
	}
	if s.memory == nil {
		s.memory = weight.New(0)
	}
	if s.mostHolders == 0 {
		s.mostHolders = DefaultHolders
	}
	if s.names == 0 {
		s.names = DefaultNames
	}
	if s.linger == 0 {
		s.linger, s.limits = DefaultLinger, LimitLinger
	}
	if s.now == nil {
		start := time.Now()
		s.now = func() time.Time { return start.Add(time.Since(start)) }
	}
	return s
}

// Holders returns how many holders all semaphores and locks have.
func (s *Store) Holders() int { return int(s.holders.Load()) }

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
	stopped map[gatehouse.Key]int64 // limiters at rest that refuse everything, see stillRefuses
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
	if low := s.memory.Limit() / lowPart; s.memoryFor(key.Kind) < low {
		s.reclaim(key.Kind, low)
	} else if isHeld(key.Kind) && s.holders.Load() >= s.mostHolders {
		s.reclaim(key.Kind, 0)
	}
	for tries := 0; ; tries++ {
		sh.mu.Lock()
		now := s.now()
		old, known := t.states[key.Name]
		before := loadOf(old)
		state := s.serve(now, key, old, queue)
		var lack *lack
		if !known || state != old {
			lack = s.keep(sh, key, state, now)
		}
		var pending Pending
		if lack == nil && s.journal != nil && (known || state != nil) {
			pending = s.tell(sh, key, old, queue)
		}
		s.weigh(key.Kind, before, loadOf(t.states[key.Name]))
		sh.mu.Unlock()
		if pending != nil {
			return pending.Wait()
		}
		if lack == nil {
			return nil
		}
		// The state is new and nobody has seen it, so that dropping it is as if nothing had been done.
		if tries == mostTries || !s.reclaim(key.Kind, int64(lack.bytes)) {
			return lack.err
		}
		for i := range queue {
			queue[i].Err = nil
		}
	}
}

// mostTries is how often room is made for a command that others may take.
const mostTries = 8

// keep notes the state of a name that is new or was replaced. It returns what there is too little of.
func (s *Store) keep(sh *shard, key gatehouse.Key, state control.State, now time.Time) *lack {
	t := &sh.tables[key.Kind]
	if _, known := t.states[key.Name]; known {
		t.states[key.Name] = state
		return nil
	}
	if state == nil {
		return nil
	}
	if !state.Expiry().After(now) && sh.pins[key] == 0 { // worth nothing
		s.keepRefused(sh, key, state, now)
		return nil
	}
	if lack := s.lacks(key, state); lack != nil {
		return lack
	}
	s.add(sh, key, state, now)
	return nil
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
		sh.pins[key]--
		if sh.pins[key] == 0 {
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
