// Package memory keeps controllers in the memory of one process. It is atomic, linearizable and
// fast, and it forgets everything when the process ends.
//
// Names are spread over shards, each with a lock of its own. The gate, the stores before and on shared
// stores, limiter and slidingwindow do so by the same three lines, and these are repeated on purpose: what
// the shards hold and how it is forgotten differs, and a generic table, whose length is a field instead of a
// constant, makes each look-up 1.3 ns slower, of some 10 ns (measured with 320 shards and 1,024 names).
package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/minheap"
	"github.com/gatehousehq/gatehouse/internal/timeslice"
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

	// Memory counts and limits the bytes of everything that is kept; nil means without a limit. Near the
	// limit names are forgotten as for Names, and then commands that might keep more are refused. Put ignores
	// the limit.
	Memory *weight.Total

	// Linger is how long a controller that is worth nothing is remembered for its statistics; 0 means
	// DefaultLinger, and LimitLinger for those whose limit or size later commands may leave as it is. One
	// that only refused is remembered for RefusedLinger.
	Linger time.Duration

	// Now is the clock; nil means a monotonic one. It must not go backwards.
	Now func() time.Time

	// Journal is notified of every change; nil means that there is no journal.
	Journal Journal
}

// The defaults of Config.
const (
	// DefaultNames needs about 65 MiB when all of them are token buckets with names of 20 bytes.
	DefaultNames   = 500_000
	DefaultHolders = 1_000_000
	DefaultLinger  = time.Minute

	// LimitLinger is how long a limiter or a semaphore at rest keeps the limit that was given last. Shared
	// stores keep it as long.
	LimitLinger = 10 * time.Minute

	// RefusedLinger leaves time to look up why no client gets through, and is the same in shared stores.
	RefusedLinger = 10 * time.Minute
)

// shards is how many locks the names are spread over. An index grows in steps, and with 320 parts those of
// half a million names, and of a million, are filled to three quarters.
const shards = 320

// mostNames is the most that Config.Names can be: the numbers of entries allow it, with room for shards that
// have some more than others.
const mostNames = shards << numberBits * 7 / 8

// A Store keeps controllers in memory. Make one with New.
type Store struct {
	maxNames        int64
	linger          time.Duration
	limitLinger     time.Duration // linger of limiters and semaphores
	now             func() time.Time
	seed            maphash.Seed
	shards          [shards]shard
	nameCount       atomic.Int64 // of names
	unreservedCount atomic.Int64 // of those, all but semaphores and locks
	refusedCount    atomic.Int64 // of those in the shards' refused
	fullUntil       atomic.Int64 // until when a new name need not look for room again, Unix ns
	reclaiming      sync.Mutex   // held by the search for room that is under way

	memory      *weight.Total
	holderCount atomic.Int64
	maxHolders  int64

	journal Journal // nil if there is none
	joints  sync.Pool
}

// New returns an empty store. It runs no goroutine and needs no closing; while it has names, timers
// hold on to it.
func New(config Config) *Store {
	s := &Store{
		maxNames:    int64(min(cmp.Or(config.Names, DefaultNames), mostNames)),
		linger:      cmp.Or(config.Linger, DefaultLinger),
		limitLinger: cmp.Or(config.Linger, LimitLinger),
		now:         config.Now,
		seed:        maphash.MakeSeed(),
		memory:      cmp.Or(config.Memory, weight.New(0)),
		maxHolders:  int64(cmp.Or(config.Holders, DefaultHolders)),
		journal:     config.Journal,
	}
	s.joints.New = func() any { return new(jointWork) }
	// time.Since is monotonic: a wall clock that is set back does not move this one.
	if s.now == nil {
		start := time.Now()
		s.now = func() time.Time { return start.Add(time.Since(start)) }
	}
	return s
}

// Holders returns how many holders all semaphores and locks have.
func (s *Store) Holders() int { return int(s.holderCount.Load()) }

// Len returns how many names are kept, those that only linger included.
func (s *Store) Len() int { return int(s.nameCount.Load()) }

// A shard is one part of the names under one lock.
type shard struct {
	mu              sync.Mutex
	tables          [gatehouse.Kinds]*nameTable // nil until the first name of a kind
	refused         minheap.Heap[refusedName]   // names that were only refused, see refusedName
	pins            map[gatehouse.Key]int       // by how many watches a key must not be forgotten
	timer           *time.Timer                 // fires when the first name is due
	armedFor        int64                       // what is due when timer fires, Unix ns; 0 when it does not
	dirty           map[gatehouse.Key]struct{}
	stoppedRefusals map[gatehouse.Key]int64 // limiters at rest that refuse everything, see stillRefuses
}

// shardOf returns the shard that has a key.
func (s *Store) shardOf(key gatehouse.Key) *shard { return s.shardAt(s.hashOf(key)) }

// shardAt returns the shard that has the key with a hash.
func (s *Store) shardAt(hash uint64) *shard { return &s.shards[hash%shards] }

// hashOf is the hash of a key, of which the shard and the place in its table are made.
func (s *Store) hashOf(key gatehouse.Key) uint64 {
	return maphash.String(s.seed, key.Name) + uint64(key.Kind)
}

// find returns the entry of a key with its hash, nil if there is none. The lock is held.
func (sh *shard) find(key gatehouse.Key, hash uint64) *nameEntry {
	return sh.tables[key.Kind].find(hash, key.Name)
}

// stateOf returns the state of a key, nil if there is none. The lock is held.
func (s *Store) stateOf(sh *shard, key gatehouse.Key) control.State {
	e := sh.find(key, s.hashOf(key))
	if e == nil {
		return nil
	}
	return e.state
}

// Apply serves the queue at one instant, as one change. Without a journal it calls Done before it returns.
func (s *Store) Apply(c *control.Change) {
	if s.ServeAtOnce(c.Key, c.Turns) {
		c.Done(nil)
		return
	}
	// What follows is for new names, scarce room and journals.
	kind, hash := c.Key.Kind, s.hashOf(c.Key)
	sh := s.shardAt(hash)
	s.reclaimScarce(kind, isHeld(kind) && acquiresHold(c.Turns))
	for tries := 0; ; tries++ {
		sh.mu.Lock()
		now := s.now()
		e := sh.find(c.Key, hash)
		var old control.State
		if e != nil {
			old = e.state
		}
		before := sizeOf(old)
		var room *control.Room
		// A new state needs no check here: it is dropped below when there is no room.
		if old != nil {
			room = s.scarceRoom(kind, len(c.Turns))
		}
		state := room.Serve(now, kind, old, c.Turns)
		if room != nil {
			s.nameMissingRoom(c.Key, c.Turns)
		}
		served := e != nil || state != nil
		bytes, lack := 0, error(nil)
		switch {
		case e == nil && state != nil:
			state, bytes, lack = s.keepNew(sh, newName{c.Key, hash, state}, now)
		case state != old:
			e.state = state // otherwise it has changed in place, and is there already
		}
		pending := false
		if s.journal != nil && lack == nil && served {
			pending = s.notifyJournal(sh, c, state, state != old)
		}
		s.countSize(kind, before, sizeOf(state)) // in this order: the journal may have it tracked
		sh.mu.Unlock()
		switch {
		case pending:
			return // the journal calls Done, or has called it already
		case lack == nil:
			c.Done(nil)
			return
		}
		// The state is new and no client has seen it, so that dropping it undoes the command. Other commands
		// may take the room that reclaimRoom makes, hence the tries.
		if tries == maxTries || !s.reclaimRoom(kind, int64(bytes)) {
			c.Done(lack)
			return
		}
		// The next try serves the same turns again, so that the errors of this one must go.
		for i := range c.Turns {
			c.Turns[i].Err = nil
		}
	}
}

// ServesAtOnce reports whether ServeAtOnce may be called in place of the Apply of store: if that is s itself,
// and not one that embeds it, and no journal must be told.
func (s *Store) ServesAtOnce(store any) bool { return store == any(s) && s.journal == nil }

// ServeAtOnce serves turns at one instant, as Apply does, if that is simple: the name is known, there is room
// for all that they may keep, and no journal. It reports false if it is not, and has done nothing then.
func (s *Store) ServeAtOnce(key gatehouse.Key, turns []control.Turn) (served bool) {
	if s.journal != nil || !s.hasAmpleRoom(key.Kind, len(turns)) {
		return false
	}
	hash := s.hashOf(key)
	sh := s.shardAt(hash)
	sh.mu.Lock()
	e := sh.find(key, hash)
	// A new name needs room, for which Apply looks.
	if e == nil || e.state == nil {
		sh.mu.Unlock()
		return false
	}
	old := e.state
	before := sizeOf(old)
	state := control.Serve(s.now(), key.Kind, old, turns)
	if state != old {
		e.state = state // otherwise it has changed in place, and is there already
	}
	s.countSize(key.Kind, before, sizeOf(state))
	sh.mu.Unlock()
	return true
}

// maxTries is how often room is made for one command, which other commands may take each time.
const maxTries = 8

// A newName is a name that is not known yet, and its state.
type newName struct {
	gatehouse.Key
	hash  uint64
	state control.State
}

// keepNew keeps the state of a new name, if it is worth that, and returns it, or nil. If there is no room for
// it, lack says why, and bytes how many it needs.
func (s *Store) keepNew(
	sh *shard, n newName, now time.Time,
) (kept control.State, bytes int, lack error) {
	if !isWorthKeeping(n.state, now) && sh.pins[n.Key] == 0 {
		return s.keepRefused(sh, n, now), 0, nil
	}
	// Only a new name is judged: a name that is there has its room, and scarceRoom bounds its growth.
	bytes, lack = s.findMissingRoom(n.Key, n.state)
	if lack != nil {
		return nil, bytes, lack
	}
	s.addName(sh, n, now)
	return n.state, 0, nil
}

// isWorthKeeping reports whether a new state is kept, whatever it has refused: not that of a peek. What was
// granted and given back in one change is remembered as long as after two.
func isWorthKeeping(state control.State, now time.Time) bool {
	return state.Expiry().After(now) || control.HasGranted(state)
}

// Watch keeps the controller from being forgotten until stop is called, because a command waits at it. Only
// one gate changes this store, so wake is never called.
func (s *Store) Watch(key gatehouse.Key, _ func()) (stop func()) {
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.pins == nil {
		sh.pins = make(map[gatehouse.Key]int)
	}
	sh.pins[key]++
	return func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		// Several gates' lines cannot watch one key, but a new line may begin before the old one stops.
		sh.pins[key]--
		if sh.pins[key] == 0 {
			delete(sh.pins, key)
		}
	}
}

// pageSize is how many names Range sorts at first. Each page is four times as long as the one before, up to
// maxPageSize, because each costs a look at all names: a short list is quick, and that of all names too.
const pageSize, maxPageSize = 1024, 64 << 10

// Range visits the controllers of one kind whose names come after the given one, in the order of
// their names, until visit returns false. Each is visited under its lock: visit must be quick and
// must not change or keep the state. Names that come or go meanwhile may be missed.
func (s *Store) Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error {
	var work timeslice.Work
	for most := pageSize; ; most = min(4*most, maxPageSize) {
		names := s.nextPage(kind, after, most)
		for _, name := range names {
			work.Yield()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			// Each name is looked up again, because the page was made without keeping the locks.
			if !s.visitName(gatehouse.Key{Kind: kind, Name: name}, visit) {
				return nil
			}
		}
		if len(names) < most {
			return nil
		}
		after = names[len(names)-1]
	}
}

// Visit is Range in no order, which needs one look at all names and no list of them.
func (s *Store) Visit(ctx context.Context, kind gatehouse.Kind, visit control.Visit) error {
	var work timeslice.Work
	more := true
	for i := range s.shards {
		// Between two shards, so that commands do not wait for a walk over all names.
		work.Yield()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.tables[kind].visitAll(func(e *nameEntry) {
			// A table cannot be left in the middle: what follows is passed over.
			more = more && (e.state == nil || visit(gatehouse.Key{Kind: kind, Name: e.name}, e.state))
		})
		sh.mu.Unlock()
		if !more {
			return nil
		}
	}
	return nil
}

// nextPage returns the first names of a kind after the given one, at most so many, in order.
func (s *Store) nextPage(kind gatehouse.Kind, after string, most int) []string {
	// The names are in no order in the shards. Keeping a few pages and sorting them now and then finds the
	// first page in one pass, without a copy of all names.
	var names []string
	last := "" // names after this one come on a later page; "" when that is not known yet
	var work timeslice.Work
	for i := range s.shards {
		// All names are looked at, which can take a tenth of a second. Commands must not wait for that.
		work.Yield()
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.tables[kind].visitAll(func(e *nameEntry) {
			if e.name > after && e.state != nil && (last == "" || e.name < last) {
				names = append(names, e.name)
			}
		})
		sh.mu.Unlock()
		if len(names) > 4*most || i == shards-1 {
			slices.Sort(names)
			if len(names) > most {
				names = names[:most]
				last = names[most-1]
			}
		}
	}
	return names
}

func (s *Store) visitName(key gatehouse.Key, visit control.Visit) bool {
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The name may have gone since its page was read.
	state := s.stateOf(sh, key)
	return state == nil || visit(key, state)
}
