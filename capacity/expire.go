package capacity

import (
	"math"
	"time"
)

const (
	// mostForgotten is how many leases one Expire looks at, so that it is done within some milliseconds
	// even if a million clients died at once. mostForgottenByLease is the same for a Lease, which should
	// not have to wait; what it leaves counts as taken, which is safe.
	mostForgotten        = 2_000
	mostForgottenByLease = 100
	// never is later than all.
	never = math.MaxInt64
)

// A wake says that a resource may have something to forget.
type wake struct {
	at int64
	r  *resource
}

// Before is the order of minheap.
func (w wake) Before(other wake) bool { return w.at < other.at }

func (w wake) counts() bool { return !w.r.gone && w.at == w.r.wakes }

// wake sees to it that a resource is looked at when its first row may have run out.
func (s *Server) wake(r *resource) {
	if len(r.expiries) == 0 || r.expiries[0].at >= r.wakes {
		return
	}
	r.wakes = r.expiries[0].at
	s.wakes.Push(wake{r.wakes, r})
	if len(s.wakes) <= 2*len(s.resources)+64 {
		return
	}
	kept := s.wakes[:0]
	for _, w := range s.wakes {
		if w.counts() {
			kept = append(kept, w)
		}
	}
	clear(s.wakes[len(kept):])
	s.wakes = kept
	s.wakes.Init()
}

// Expire forgets the leases that have run out, and the resources without any, and says when to call it
// again: at once, when there is more to forget than one call should do, and the zero time when there is
// nothing to wait for. It may come out that nothing was to be forgotten after all. Nothing is wrong with
// calling it later; a Lease sees to its own resource.
func (s *Server) Expire(now time.Time) (next time.Time) {
	if !s.Leading(now) {
		return time.Time{}
	}
	at := s.at(now)
	if at > s.awaits {
		s.awaited = nil
	}
	for left := mostForgotten; len(s.wakes) > 0 && s.wakes[0].at < at; left-- {
		if left <= 0 {
			return now
		}
		w := s.wakes.Pop()
		if !w.counts() {
			continue
		}
		w.r.wakes = never
		left -= w.r.expire(at, left)
		s.settle(now, w.r)
	}
	for len(s.wakes) > 0 && !s.wakes[0].counts() {
		s.wakes.Pop()
	}
	if len(s.wakes) == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(s.wakes[0].at - at + 1)) // a lease holds at its very end
}
