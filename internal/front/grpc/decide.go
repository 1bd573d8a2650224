package grpc

import (
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// chunkSize is how many resources are decided while the lock is held, before other calls may have it: 0.2
// ms.
const chunkSize = 256

// A redirect tells a client to ask another server. With notMaster, nothing was decided.
type redirect struct {
	notMaster bool
	address   string // of the master; empty when it is not known
}

// The errors before there are templates: errUnconfigured of a server that never has any, errConfigUnread
// of one that could not read them yet.
var (
	errUnconfigured = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server has no capacity configuration; start it with --capacity-config FILE to have some to share")
	errConfigUnread = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server could not read its capacity configuration yet, want the request later")
)

// errEnded is the answer while the server stops.
var errEnded = gatehouse.Errorf(gatehouse.CodeUnavailable, "server is stopping, want the request elsewhere")

// unconfiguredError returns the error that fits a server without templates.
func (s *Server) unconfiguredError() error {
	if s.config.Source == "" {
		return errUnconfigured
	}
	return errConfigUnread
}

// leaseAll decides a call that was checked. The grants in it are the answers, in the order of its requests.
//
// A resource that a limit refuses is left out of them: refusing the whole call would cost the client what it
// holds of the others. The call fails only if none of its resources could be decided.
func (s *Server) leaseAll(c *capacityCall) (to redirect, err error) {
	// A call without resources is decided once, too: it may have to be redirected.
	for first := true; first || c.decided < len(c.requests); first = false {
		to, err = s.leaseChunk(c)
		if to.notMaster || err != nil {
			return to, err
		}
	}
	if c.refusal == nil {
		return redirect{}, nil
	}
	s.noteRefusal(c)
	// Only now is the refusal an error: with any grant, the client gets those.
	if len(c.grants) == 0 {
		return redirect{}, c.refusal
	}
	return redirect{}, nil
}

// leaseChunk decides the next chunk of requests of a call.
func (s *Server) leaseChunk(c *capacityCall) (redirect, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The clock is read under the lock, so that it never runs backwards for the core. Mastership is checked
	// again in each chunk: it may have ended between two.
	now := s.now()
	if to, err := s.checkMaster(now); to.notMaster || err != nil {
		return to, err
	}
	if !s.state.configured && len(c.requests) > 0 {
		return redirect{}, s.unconfiguredError()
	}
	for end := min(c.decided+chunkSize, len(c.requests)); c.decided < end; c.decided++ {
		grant, err := s.core.Lease(now, c.client, &c.requests[c.decided])
		switch {
		case err == nil:
			c.grants = append(c.grants, grant)
		// Any other error fails the call. Leases granted before it stay; the client gets them when it
		// asks again.
		case gatehouse.CodeOf(err) != gatehouse.CodeExhausted:
			return redirect{}, gatehouse.Errorf(gatehouse.CodeOf(err), "resource[%d]: %w", c.decided, err)
		case c.refusal == nil:
			c.refusal = gatehouse.Errorf(gatehouse.CodeExhausted, "resource[%d]: %w", c.decided, err)
		}
	}
	s.expireLeases(now)
	return redirect{}, nil
}

// refusalLogInterval is the shortest time between two log messages that a limit refuses resources.
const refusalLogInterval = time.Minute

// noteRefusal counts the resources left out of an answer, and logs it at most once per refusalLogInterval: a
// refused client asks again and again.
func (s *Server) noteRefusal(c *capacityCall) {
	refused := len(c.requests) - len(c.grants)
	s.metrics.leftOut.Add(float64(refused))
	s.mu.Lock()
	now := s.now()
	tell := s.refusalLogged.IsZero() || now.Sub(s.refusalLogged) >= refusalLogInterval
	if tell {
		s.refusalLogged = now
	}
	s.mu.Unlock()
	if tell {
		s.log.Warn("a limit refused resources",
			"client", c.client, "refused", refused, "of", len(c.requests), "error", c.refusal)
	}
}

// releaseAll gives back the resources that a call names.
func (s *Server) releaseAll(c *capacityCall) (to redirect, err error) {
	// An empty release still learns the address of the master.
	if len(c.released) == 0 {
		return s.releaseChunk(c.client, nil)
	}
	for some := range slices.Chunk(c.released, chunkSize) {
		to, err = s.releaseChunk(c.client, some)
		if to.notMaster || err != nil {
			return to, err
		}
	}
	return redirect{}, nil
}

// releaseChunk gives back a chunk of resources.
func (s *Server) releaseChunk(client string, names []string) (redirect, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if to, err := s.checkMaster(now); to.notMaster || err != nil {
		return to, err
	}
	for _, name := range names {
		s.core.Release(now, client, name)
	}
	s.expireLeases(now)
	return redirect{}, nil
}

// findMaster returns the master's address, and whether this server is it.
func (s *Server) findMaster() (address string, leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The election alone is not asked: its time may be over before it says so.
	if s.core.Leading(s.now()) {
		return s.state.address, true
	}
	return s.masterAddress(), false
}

// checkMaster reports whether the server may decide: it is not stopping, and it is master now.
func (s *Server) checkMaster(now time.Time) (redirect, error) {
	// Saved leases must be in the core before the first decision, and their file gone.
	s.restoreSaved(now)
	switch {
	case s.stopped:
		return redirect{}, errEnded
	case !s.core.Leading(now):
		return redirect{notMaster: true, address: s.masterAddress()}, nil
	}
	return redirect{}, nil
}

// never is the duration of a timer that has nothing to wait for.
const never = time.Duration(math.MaxInt64)

// expireLeases removes leases that have ended, and sets the timer for the next to end. It is called after
// each change of the core, with the lock held.
func (s *Server) expireLeases(now time.Time) {
	// Expired leases may have freed memory, and their end may make a request to the parent due.
	next := s.core.Expire(now)
	s.updateWeight()
	s.wakeParent()
	// A timer that is set for an earlier instant stays: it fires, finds nothing ended, and is set again. So
	// a renewal, which moves an end back, does not reset it each time.
	if next.IsZero() || s.stopped || !s.wake.IsZero() && !next.Before(s.wake) {
		return
	}
	s.wake = next
	// A millisecond more, because a lease still holds at the very instant of its end.
	s.timer.Reset(next.Sub(now) + time.Millisecond)
}

// updateWeight reports to the process's total how much memory the leases take by now.
func (s *Server) updateWeight() {
	if s.config.Memory == nil {
		return
	}
	weight := s.core.Weight()
	s.config.Memory.Add(weight - s.reportedWeight)
	s.reportedWeight = weight
}

// onTimer is called by the timer.
func (s *Server) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.wake = time.Time{} // it has fired, so the next one must be set
	s.expireLeases(s.now())
}
