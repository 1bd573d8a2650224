package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file has how long a hold of a semaphore or a lock lasts, and how a renew moves its end.

// renewHold moves the end of a hold. It also confirms the hold: a later undo of the acquire leaves it alone.
func (s *Semaphore) renewHold(now time.Time, turn *Turn) gatehouse.Decision {
	h, why := s.findHold(turn.Command)
	if why != "" {
		return failedWith(now, gatehouse.Conflict, why)
	}
	h.confirmed = true
	s.extendHold(now, turn, s.holdLength(turn.Command))
	return s.holdDecision(now, h)
}

// holdLength is how long a command wants its hold to last. AsAcquired is the length of the one there is.
func (s *Semaphore) holdLength(cmd *gatehouse.Command) time.Duration {
	if cmd.Expires != gatehouse.AsAcquired {
		return cmd.Expires
	}
	if h := s.holds[cmd.Holder]; h != nil {
		return h.expires
	}
	return gatehouse.DefaultExpires
}

// extendHold moves the end of a hold to expires from now. The end of a leased one is the store's to know.
func (s *Semaphore) extendHold(now time.Time, turn *Turn, expires time.Duration) {
	h := s.holds[turn.Holder]
	// The store ends this hold by a lease of its own. Its start is kept to tell how long it lasts.
	h.expires, h.until, h.since = expires, 0, 0
	switch {
	case expires == 0:
	case turn.Leased:
		h.since = now.UnixNano()
	default:
		h.until = now.UnixNano() + int64(expires)
		// The former end of the hold stays in the heap, is stale now, and is skipped when it comes up.
		s.ends.Push(holdEnd{at: h.until, holder: turn.Holder, fence: h.fence})
		s.ends.pruneStale(s.holds)
	}
	s.noteChanged(turn.Holder)
}

// timeLeft is how long a hold lasts from an instant. Of one that the store ends it is the least, by the
// clock of the server that granted it; of one that an earlier version stored nothing is known.
func (h *hold) timeLeft(now int64) time.Duration {
	switch {
	case h.expires == 0:
		return gatehouse.Forever
	case h.until != 0:
		return time.Duration(h.until - now)
	}
	return max(0, min(h.expires, h.expires-time.Duration(now-h.since)))
}
