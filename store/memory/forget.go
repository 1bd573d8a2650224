package memory

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// Names are forgotten without a scan. Every name has one check in its table, ordered by the time at which the
// name is to be looked at. A use of the name does not move the check: when its time comes, the state is asked
// for its expiry, and the check goes back if the state is still worth something. So a hot name costs no more
// than one check per lifetime of its state.

// maxCheckDelay is the longest time between two checks of a name. A hold of a day that was released after a
// second does not keep its name for the rest of the day.
const maxCheckDelay = time.Minute

// sweepSlack is how much later than due names are forgotten, so that one timer serves many.
const sweepSlack = time.Second

// How many names are looked at under one lock, in the background and on behalf of a
// request that finds the store full.
const (
	sweepBatch   = 1000
	reclaimBatch = 8
)

// fullFor is how long new names are refused at once after a search for room found none. Such a search takes
// the lock of every shard, which commands would feel if it were repeated often.
const fullFor = 500 * time.Millisecond

// LingerFor is how long a controller of a kind that is worth nothing is remembered.
func (s *Store) LingerFor(kind gatehouse.Kind) time.Duration {
	if kind.Limiter() || kind == gatehouse.Semaphore {
		return s.limitLinger
	}
	return s.linger
}

// nextCheckAt is when the name of state is to be looked at.
func (s *Store) nextCheckAt(kind gatehouse.Kind, state control.State, now time.Time) int64 {
	// A state that expires late is checked earlier, because it may be released long before.
	at := state.Expiry().Add(s.LingerFor(kind))
	if latest := now.Add(maxCheckDelay + s.linger); at.After(latest) {
		at = latest
	}
	return at.UnixNano()
}

// armTimer makes sure that the shard is swept soon after at.
func (s *Store) armTimer(sh *shard, at int64, now time.Time) {
	// The timer only ever moves forward to an earlier check. The sweep sets it for the rest.
	if sh.armedFor != 0 && at >= sh.armedFor {
		return
	}
	sh.armedFor = at
	wait := time.Duration(at-now.UnixNano()) + sweepSlack
	if sh.timer == nil {
		sh.timer = time.AfterFunc(wait, func() { s.sweepShard(sh) })
		return
	}
	sh.timer.Reset(wait)
}

// sweepShard forgets the shard's names that are due and worth nothing, and arms the timer for the rest.
func (s *Store) sweepShard(sh *shard) {
	// The lock is released after each batch, so that a sweep of many names delays no command for long.
	for more := true; more; {
		sh.mu.Lock()
		now := s.now()
		sh.armedFor = 0
		// In the background every name keeps its full linger. That of refused names is longer.
		refused := checkBounds{until: now.UnixNano(), limit: sweepBatch, grace: RefusedLinger}
		more = s.checkRefused(sh, now, refused)
		for kind := range gatehouse.Kind(gatehouse.Kinds) {
			r := checkBounds{until: now.UnixNano(), limit: sweepBatch, grace: s.LingerFor(kind)}
			more = s.checkNames(sh, kind, now, r) || more
			if t := sh.tables[kind]; t != nil && len(t.checks) > 0 {
				s.armTimer(sh, t.checks[0].at(), now)
			}
		}
		if len(sh.refused) > 0 {
			s.armTimer(sh, sh.refused[0].at, now)
		}
		sh.mu.Unlock()
	}
}

// A checkBounds says how many names are checked: those that are due at until, and at most limit of them.
// What is worth nothing is spared for grace after it was worth something last.
type checkBounds struct {
	until int64
	limit int
	grace time.Duration
}

// checkNames takes names off the table's queue and forgets those that are worth nothing now; the others go
// back. It reports whether it stopped because there were too many.
func (s *Store) checkNames(sh *shard, kind gatehouse.Kind, now time.Time, r checkBounds) (more bool) {
	t := sh.tables[kind]
	if t == nil {
		return false
	}
	// Checks go back after the loop: when many names are due at one instant, the same few would be checked
	// again and again otherwise.
	var room [reclaimBatch]nameCheck
	back := room[:0]
	defer func() {
		for _, c := range back {
			t.checks.Push(c)
		}
	}()
	for range r.limit {
		if len(t.checks) == 0 || t.checks[0].at() > r.until {
			return false
		}
		number := t.checks.Pop().number()
		state, key := t.entry(number).state, gatehouse.Key{Kind: kind, Name: t.entry(number).name}
		s.expireHolds(sh, key, state, now)
		var at int64 // of its next check
		// state is nil for a deleted name, which only waits here for its check.
		switch {
		case state != nil && sh.pins[key] > 0:
			at = now.Add(s.linger).UnixNano()
		case r.grace > 0 && state != nil && isRefused(state, now):
			// The tickets that waited here have given up, and only their refusals are left.
			s.pushRefused(sh, refusedName{state.Expiry().Add(RefusedLinger).UnixNano(), number, kind})
			continue
		case state != nil && state.Expiry().Add(r.grace).After(now):
			at = s.nextCheckAt(kind, state, now)
		case r.grace > 0 && state != nil && sh.stillRefuses(key, state):
			at = now.Add(r.grace).UnixNano()
		default:
			s.dropName(sh, key, number)
			continue
		}
		back = append(back, newCheck(at, number))
	}
	return true
}

// expireHolds ends the holds of a state whose time is up: one that is held on to by a single holder is not
// forgotten, and need not be used again.
func (s *Store) expireHolds(sh *shard, key gatehouse.Key, state control.State, now time.Time) {
	if state == nil || !isHeld(key.Kind) {
		return
	}
	// The size is counted again, since ended holds free holders and memory.
	before := sizeOf(state)
	control.Expire(now, state)
	if after := sizeOf(state); after != before {
		s.countSize(key.Kind, before, after)
		s.addDirty(sh, key)
	}
}

// stillRefuses reports whether a limiter whose limit is 0 has refused a command since this was asked last.
// A refusal leaves no time in a limiter, so the count of refusals tells. The limiter stays then: a new one
// would let commands through that leave the limit as it is.
func (sh *shard) stillRefuses(key gatehouse.Key, state control.State) bool {
	refused, ok := control.Stopped(state)
	last, known := sh.stoppedRefusals[key]
	// None since the last look: it is not used any more.
	if !ok || known && last == refused {
		return false
	}
	if sh.stoppedRefusals == nil {
		sh.stoppedRefusals = make(map[gatehouse.Key]int64)
	}
	sh.stoppedRefusals[key] = refused
	return true
}

// reclaimScarce has room made for a kind if there is little. It is called before a shard is locked, since a
// search needs the locks of other shards. acquires says that a hold may be made.
func (s *Store) reclaimScarce(kind gatehouse.Kind, acquires bool) {
	switch low := s.memory.Limit() / lowDivisor; {
	// Holders have no slack, as memory has: an acquire at a name that is known would be refused at once.
	case acquires && s.holderCount.Load() >= s.maxHolders:
		s.reclaimRoom(kind, 0)
	case s.memoryLeft(kind) < low:
		s.reclaimEarly(kind, low)
	}
}

// reclaimEarly has room made before it is needed. It does not wait for that.
func (s *Store) reclaimEarly(kind gatehouse.Kind, bytes int64) {
	if s.now().UnixNano() < s.fullUntil.Load() || !s.reclaiming.TryLock() {
		return
	}
	// Not by the command that finds room scarce: it needs none, and a search may look at thousands of names.
	go func() { // ends with the search
		defer s.reclaiming.Unlock()
		s.searchRoom(kind, bytes)
	}()
}

// reclaimRoom makes room for a name of a kind and its bytes. It reports whether there was enough.
func (s *Store) reclaimRoom(kind gatehouse.Kind, bytes int64) bool {
	// A full store refuses at once: not even the lock is waited for.
	if s.now().UnixNano() < s.fullUntil.Load() {
		return false
	}
	// One search at a time. Several would follow each other through the shards, and each of them, and all
	// commands, would wait for the locks of the others.
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	return s.searchRoom(kind, bytes)
}

// searchRoom makes room by forgetting names that only linger, first those that only refused. It looks at
// those first that were not looked at for longest; the next time, at others. The caller has locked
// reclaiming.
func (s *Store) searchRoom(kind gatehouse.Kind, bytes int64) bool {
	// A search of all shards that found nothing is not repeated for each command.
	now := s.now()
	if now.UnixNano() < s.fullUntil.Load() {
		return false
	}
	// The bounds ignore when names are due, and have no grace: every name at rest may go.
	early := checkBounds{until: math.MaxInt64, limit: reclaimBatch}
	enough := func() bool {
		return s.namesLeft(kind) > 0 && s.memoryLeft(kind) >= bytes &&
			(!isHeld(kind) || s.holderCount.Load() < s.maxHolders)
	}
	// Names that only refused go first. They hold nothing, and a client that makes many of them must not push
	// out the names of others.
	refused := func(sh *shard) { s.checkRefused(sh, now, early) }
	all := func(sh *shard) {
		for kind := range gatehouse.Kind(gatehouse.Kinds) {
			s.checkNames(sh, kind, now, early)
		}
	}
	// The search before, for which this one has waited, may have made enough.
	if enough() {
		return true
	}
	found := s.refusedCount.Load() > 0 && s.reclaimUntil(enough, refused) || s.reclaimUntil(enough, all)
	if !found {
		s.fullUntil.Store(now.Add(fullFor).UnixNano())
	}
	return found
}

// reclaimUntil forgets names of one shard after the other, until there is room.
func (s *Store) reclaimUntil(enough func() bool, forget func(*shard)) bool {
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

// A name that was only refused holds and counts nothing; it is remembered for its statistics alone. A client
// that asks for many such names must not push out others, and these must be found at once when room is
// needed. So their checks are not with the others but in a heap of their own, until the name has granted
// something.

// A refusedName says when, in Unix ns, a name that was only refused is to be looked at.
type refusedName struct {
	at     int64
	number uint32 // of its entry in the table of
	kind   gatehouse.Kind
}

// Before implements [minheap.Item].
func (r refusedName) Before(other refusedName) bool { return r.at < other.at }

// isRefused reports whether only the statistics of a state are left, of commands that it has refused.
func isRefused(state control.State, now time.Time) bool {
	return !state.Expiry().After(now) && control.OnlyRefused(state)
}

// keepRefused keeps the state of a new name if that has refused commands, and returns it, or nil. In a full
// store it takes the place of another such name of its shard. Where there is none it is not kept: its
// decision stands all the same, as a new state would decide so too.
func (s *Store) keepRefused(sh *shard, n newName, now time.Time) (kept control.State) {
	if !control.OnlyRefused(n.state) {
		return nil
	}
	// Each round removes one name, so that the loop ends. Other shards are not searched: these statistics
	// are not worth that.
	for !s.hasRoom(n.Key, n.state) && len(sh.refused) > 0 {
		s.checkRefused(sh, now, checkBounds{until: math.MaxInt64, limit: 1})
	}
	if !s.hasRoom(n.Key, n.state) {
		return nil
	}
	// Its check goes to the refused instead of the others: a name has exactly one.
	number, at := s.putName(sh, n), now.Add(RefusedLinger).UnixNano()
	s.pushRefused(sh, refusedName{at, number, n.Kind})
	s.armTimer(sh, at, now)
	return n.state
}

func (s *Store) pushRefused(sh *shard, r refusedName) {
	sh.refused.Push(r)
	s.refusedCount.Add(1)
}

// checkRefused takes names off the shard's refused and forgets them. Those that are worth something by now
// become names like others; those that still refuse go back, for as long as their grace lasts. It reports
// whether it stopped because there were too many.
func (s *Store) checkRefused(sh *shard, now time.Time, r checkBounds) (more bool) {
	for range r.limit {
		if len(sh.refused) == 0 || sh.refused[0].at > r.until {
			return false
		}
		c := sh.refused.Pop()
		s.refusedCount.Add(-1)
		t := sh.tables[c.kind]
		state, key := t.entry(c.number).state, gatehouse.Key{Kind: c.kind, Name: t.entry(c.number).name}
		// In this order: a name that is in use again becomes a name like others, whatever its grace. Only
		// then the grace and further refusals count.
		switch {
		case state != nil && (sh.pins[key] > 0 || !isRefused(state, now)):
			at := s.nextCheckAt(c.kind, state, now)
			t.checks.Push(newCheck(at, c.number))
			s.armTimer(sh, at, now)
		case state != nil && state.Expiry().Add(r.grace).After(now):
			c.at = state.Expiry().Add(r.grace).UnixNano()
			s.pushRefused(sh, c)
		case r.grace > 0 && state != nil && sh.stillRefuses(key, state):
			c.at = now.Add(r.grace).UnixNano()
			s.pushRefused(sh, c)
		default:
			s.dropName(sh, key, c.number)
		}
	}
	return true
}
