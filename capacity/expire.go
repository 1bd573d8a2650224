package capacity

import (
	"math"
	"time"
)

const (
	// maxExpiredPerCall is how many leases one Expire looks at, so that it returns within some milliseconds
	// even if a million clients died at once. maxExpiredPerLease is the same for a Lease, which should not
	// have to wait; what it leaves counts as taken, which is safe.
	maxExpiredPerCall  = 2_000
	maxExpiredPerLease = 100
	// never is later than any instant.
	never = math.MaxInt64
)

// An expiryWake says when a resource may have leases to forget.
type expiryWake struct {
	at int64
	r  *resource
}

// Before orders wakes by time, for minheap.
func (w expiryWake) Before(other expiryWake) bool { return w.at < other.at }

func (w expiryWake) isCurrent() bool { return !w.r.removed && w.at == w.r.wakeAt }

// scheduleWake makes Expire look at a resource when the first of its leases may have run out.
func (s *Server) scheduleWake(r *resource) {
	if len(r.expiries) == 0 || r.expiries[0].at >= r.wakeAt {
		return
	}
	r.wakeAt = r.expiries[0].at
	s.wakes.Push(expiryWake{r.wakeAt, r})
	// Superseded wakes stay in the heap until they come up. When they outnumber the current ones the heap is
	// rebuilt, so its size stays proportional to the number of resources.
	if len(s.wakes) > 2*len(s.resources)+64 {
		s.wakes.Filter(expiryWake.isCurrent)
	}
}

// Expire forgets the leases that have run out, and the resources without any, and returns when to call it
// again: at once, if there is more to forget than one call should do; the zero time, if there is nothing to
// wait for. A call may find nothing to forget. A late call does no harm, since Lease removes what has run out
// on its own resource.
func (s *Server) Expire(now time.Time) (next time.Time) {
	if !s.Leading(now) {
		return time.Time{}
	}
	at := s.nanosecondsAt(now)
	if at > s.awaitedUntil {
		s.awaited = nil
	}
	for left := maxExpiredPerCall; len(s.wakes) > 0 && s.wakes[0].at < at; left-- {
		if left <= 0 {
			return now
		}
		// A wake is only a hint: the resource may have a later one, or be gone.
		w := s.wakes.Pop()
		if !w.isCurrent() {
			continue
		}
		w.r.wakeAt = never
		left -= w.r.expireLeases(at, left)
		s.updateResource(now, w.r)
	}
	// Superseded wakes on top are dropped here, so that the caller's timer is set to a real one.
	for len(s.wakes) > 0 && !s.wakes[0].isCurrent() {
		s.wakes.Pop()
	}
	if len(s.wakes) == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(s.wakes[0].at - at + 1)) // a lease holds at its very end
}
