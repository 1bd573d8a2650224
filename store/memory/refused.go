package memory

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A name that was only refused holds and counts nothing; it is remembered for its statistics alone. A client
// that asks for many such names must not push out others, and these must be found at once when room is
// needed. So their entries are not in the checks of their table but in a heap of their own, until the name
// has granted something.

// A refusedName says when, in Unix ns, a name that was only refused is to be looked at.
type refusedName struct {
	at  int64
	key gatehouse.Key
}

// Before implements [minheap.Item].
func (r refusedName) Before(other refusedName) bool { return r.at < other.at }

// isRefused reports whether only the statistics of a state are left, of commands that it has refused.
func isRefused(state control.State, now time.Time) bool {
	return !state.Expiry().After(now) && control.OnlyRefused(state)
}

// keepRefused notes the state of a new name if that has refused commands. In a full store it takes the place
// of another such name of its shard. Where there is none it is not kept: its decision stands all the same,
// as a new state would decide so too.
func (s *Store) keepRefused(sh *shard, key gatehouse.Key, state control.State, now time.Time) {
	if !control.OnlyRefused(state) {
		return
	}
	// Each round removes one entry, so that the loop ends. Other shards are not searched: these statistics
	// are not worth that.
	for !s.hasRoom(key, state) && len(sh.refused) > 0 {
		s.checkRefused(sh, now, checkBounds{until: math.MaxInt64, limit: 1})
	}
	if !s.hasRoom(key, state) {
		return
	}
	// Its entry goes to the refused instead of the checks: a name has exactly one.
	s.putState(sh, key, state)
	at := now.Add(RefusedLinger).UnixNano()
	s.pushRefused(sh, key, at)
	s.armTimer(sh, at, now)
}

func (s *Store) pushRefused(sh *shard, key gatehouse.Key, at int64) {
	sh.refused.Push(refusedName{at, key})
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
		e := sh.refused.Pop()
		s.refusedCount.Add(-1)
		t := &sh.tables[e.key.Kind]
		state := t.states[e.key.Name]
		// In this order: a name that is in use again becomes a name like others, whatever its grace. Only
		// then the grace and further refusals count.
		switch {
		case state != nil && (sh.pins[e.key] > 0 || !isRefused(state, now)):
			at := s.nextCheckAt(e.key.Kind, state, now)
			t.checks.Push(nameCheck{at, e.key.Name})
			s.armTimer(sh, at, now)
		case state != nil && state.Expiry().Add(r.grace).After(now):
			s.pushRefused(sh, e.key, state.Expiry().Add(r.grace).UnixNano())
		case r.grace > 0 && state != nil && sh.stillRefuses(e.key, state):
			s.pushRefused(sh, e.key, now.Add(r.grace).UnixNano())
		default:
			s.dropName(sh, e.key)
		}
	}
	return true
}
