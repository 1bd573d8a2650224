package memory

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// Names are forgotten without a scan: every name has one entry in its table's queue, ordered by when
// it is due to be looked at. A use does not move the entry; when it comes up, the state is asked
// again, and the entry goes back if it is still worth something. So a hot name costs nothing more
// than one look per lifetime of its state.

// recheck is the longest a name stays unlooked at, so that a hold of a day that was released after a
// second does not keep its name for the rest of the day.
const recheck = time.Minute

// slack is how much later than due names are forgotten, so that one timer serves many.
const slack = time.Second

// How many names are looked at under one lock, in the background and on behalf of a
// request that finds the store full.
const (
	sweepBatch   = 1000
	reclaimBatch = 8
)

// fullFor is how long new names are refused at once after a search for room found none.
const fullFor = 100 * time.Millisecond

// A due says when, in Unix ns, a name is to be looked at.
type due struct {
	at   int64
	name string
}

// Before implements [minheap.Item].
func (d due) Before(other due) bool { return d.at < other.at }

// LingerFor is how long a controller of a kind that is worth nothing is remembered.
func (s *Store) LingerFor(kind gatehouse.Kind) time.Duration {
	if kind.Limiter() || kind == gatehouse.Semaphore {
		return s.limits
	}
	return s.linger
}

// dueAt is when the name of state is to be looked at.
func (s *Store) dueAt(kind gatehouse.Kind, state control.State, now time.Time) int64 {
	at := state.Expiry().Add(s.LingerFor(kind))
	if latest := now.Add(recheck + s.linger); at.After(latest) {
		at = latest
	}
	return at.UnixNano()
}

// arm makes sure that the shard is swept soon after at.
func (s *Store) arm(sh *shard, at int64, now time.Time) {
	if sh.armed != 0 && at >= sh.armed {
		return
	}
	sh.armed = at
	wait := time.Duration(at-now.UnixNano()) + slack
	if sh.timer == nil {
		sh.timer = time.AfterFunc(wait, func() { s.sweep(sh) })
		return
	}
	sh.timer.Reset(wait)
}

// sweep forgets the shard's names that are due and worth nothing, and arms the timer for the rest.
func (s *Store) sweep(sh *shard) {
	for more := true; more; {
		sh.mu.Lock()
		now := s.now()
		sh.armed = 0
		refused := reach{until: now.UnixNano(), most: sweepBatch, grace: RefusedLinger}
		more = s.lookRefused(sh, now, refused)
		for kind := range gatehouse.Kind(gatehouse.Kinds) {
			r := reach{until: now.UnixNano(), most: sweepBatch, grace: s.LingerFor(kind)}
			more = s.look(sh, kind, now, r) || more
			if q := sh.tables[kind].queue; len(q) > 0 {
				s.arm(sh, q[0].at, now)
			}
		}
		if len(sh.refused) > 0 {
			s.arm(sh, sh.refused[0].at, now)
		}
		sh.mu.Unlock()
	}
}

// A reach is how far a table's queue is worked off: up to what is due at until, and at most so many.
// What is worth nothing is spared for grace after it was worth something last.
type reach struct {
	until int64
	most  int
	grace time.Duration
}

// look takes names off the table's queue and forgets those that are worth nothing now; the others go
// back. It reports whether it stopped because there were too many.
func (s *Store) look(sh *shard, kind gatehouse.Kind, now time.Time, r reach) (more bool) {
	t := &sh.tables[kind]
	// What goes back does so at the end: when many are due at one instant, the same few would be looked at
	// again and again.
	var room [reclaimBatch]due
	back := room[:0]
	defer func() {
		for _, d := range back {
			t.queue.Push(d)
		}
	}()
	for range r.most {
		if len(t.queue) == 0 || t.queue[0].at > r.until {
			return false
		}
		d := t.queue.Pop()
		state, key := t.states[d.name], gatehouse.Key{Kind: kind, Name: d.name}
		s.expire(sh, key, state, now)
		switch {
		case state != nil && sh.pins[key] > 0:
			d.at = now.Add(s.linger).UnixNano()
		case r.grace > 0 && state != nil && isRefused(state, now): // those who waited have given up
			s.pushRefused(sh, key, state.Expiry().Add(RefusedLinger).UnixNano())
			continue
		case state != nil && state.Expiry().Add(r.grace).After(now):
			d.at = s.dueAt(kind, state, now)
		case r.grace > 0 && state != nil && sh.stillRefuses(key, state):
			d.at = now.Add(r.grace).UnixNano()
		default:
			s.drop(sh, key)
			continue
		}
		back = append(back, d)
	}
	return true
}

// expire ends the holds of a state whose time is up: one that is held on to by a single holder is not
// forgotten, and need not be used again.
func (s *Store) expire(sh *shard, key gatehouse.Key, state control.State, now time.Time) {
	if state == nil || !isHeld(key.Kind) {
		return
	}
	before := loadOf(state)
	control.Expire(now, state)
	if after := loadOf(state); after != before {
		s.weigh(key.Kind, before, after)
		s.mark(sh, key)
	}
}

// stillRefuses reports whether a limiter whose limit is 0 has refused a command since this was asked last.
// A refusal leaves no time in a limiter, so the count of refusals tells. The limiter stays then: a new one
// would let commands through that leave the limit as it is.
func (sh *shard) stillRefuses(key gatehouse.Key, state control.State) bool {
	refused, ok := control.Stopped(state)
	last, known := sh.stopped[key]
	if !ok || known && last == refused {
		return false
	}
	if sh.stopped == nil {
		sh.stopped = make(map[gatehouse.Key]int64)
	}
	sh.stopped[key] = refused
	return true
}

// reclaim makes room for a name of a kind and so many bytes, by forgetting names that only linger, first
// those that only refused. It reports whether there was enough. It looks at those first that were not looked
// at for longest; the next time, at others.
func (s *Store) reclaim(kind gatehouse.Kind, bytes int64) bool {
	now := s.now()
	if now.UnixNano() < s.full.Load() {
		return false
	}
	early := reach{until: math.MaxInt64, most: reclaimBatch}
	enough := func() bool {
		return s.namesFor(kind) > 0 && s.memoryFor(kind) >= bytes &&
			(!isHeld(kind) || s.holders.Load() < s.mostHolders)
	}
	found := s.idle.Load() > 0 && s.reclaimBy(enough, func(sh *shard) { s.lookRefused(sh, now, early) }) ||
		s.reclaimBy(enough, func(sh *shard) {
			for kind := range gatehouse.Kind(gatehouse.Kinds) {
				s.look(sh, kind, now, early)
			}
		})
	if !found {
		s.full.Store(now.Add(fullFor).UnixNano())
	}
	return found
}

// reclaimBy forgets names of one shard after the other, until there is room.
func (s *Store) reclaimBy(enough func() bool, forget func(*shard)) bool {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		forget(sh)
		sh.mu.Unlock()
		if enough() {
			return true
		}
	}
	return false
}
