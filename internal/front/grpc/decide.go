package grpc

import (
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// chunkSize is how many resources are decided without letting others have their turn: 0.2 ms.
const chunkSize = 256

// A redirect, when there is one, means that nothing was decided because this server is not the master.
type redirect struct {
	notMaster bool
	address   string // of the master; empty when it is not known
}

// The errors before there are templates: of a server that never has any, and of one that could not read
// them yet.
var (
	errUnconfigured = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server has no capacity configuration; start it with --capacity-config FILE to have some to share")
	errConfigUnread = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server could not read its capacity configuration yet, want the request later")
)

// errEnded is the answer while the server stops.
var errEnded = gatehouse.Errorf(gatehouse.CodeUnavailable, "server is stopping, want the request elsewhere")

// unconfiguredError is the error that fits a server without templates.
func (s *Server) unconfiguredError() error {
	if s.config.Source == "" {
		return errUnconfigured
	}
	return errConfigUnread
}

// leaseAll decides a call that was checked. The grants in it are the answers, in the order of its requests.
//
// A resource that a limit refuses is left out of them: a client that were refused whole would lose what it
// holds of the others. The call fails if nothing of it could be decided.
func (s *Server) leaseAll(c *capacityCall) (to redirect, err error) {
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
	if len(c.grants) == 0 {
		return redirect{}, c.refusal
	}
	return redirect{}, nil
}

// leaseChunk decides the next few requests of a call.
func (s *Server) leaseChunk(c *capacityCall) (redirect, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		case gatehouse.CodeOf(err) != gatehouse.CodeExhausted:
			return redirect{}, gatehouse.Errorf(gatehouse.CodeOf(err), "resource[%d]: %w", c.decided, err)
		case c.refusal == nil:
			c.refusal = gatehouse.Errorf(gatehouse.CodeExhausted, "resource[%d]: %w", c.decided, err)
		}
	}
	s.expireLeases(now)
	return redirect{}, nil
}

// refusalLogInterval is how often the log says at most that a limit refuses resources.
const refusalLogInterval = time.Minute

// noteRefusal counts what was left out of an answer, and tells it if that was not told lately: whoever is
// refused comes again.
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
		s.log.Warn("a limit refuses resources",
			"client", c.client, "refused", refused, "of", len(c.requests), "error", c.refusal)
	}
}

// releaseAll gives back what a call names.
func (s *Server) releaseAll(c *capacityCall) (to redirect, err error) {
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

// releaseChunk gives back a few resources.
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

// findMaster says where the master is, and whether it is this server.
func (s *Server) findMaster() (address string, leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Leading(s.now()) {
		return s.state.address, true
	}
	return s.masterAddress(), false
}

// checkMaster says whether the server may decide.
func (s *Server) checkMaster(now time.Time) (redirect, error) {
	s.restoreSaved(now)
	switch {
	case s.stopped:
		return redirect{}, errEnded
	case !s.core.Leading(now):
		return redirect{notMaster: true, address: s.masterAddress()}, nil
	}
	return redirect{}, nil
}

// never is how long a timer waits that has nothing to wait for.
const never = time.Duration(math.MaxInt64)

// expireLeases forgets what has run out, and sees to it that the next to do so is forgotten in time.
func (s *Server) expireLeases(now time.Time) {
	next := s.core.Expire(now)
	s.updateWeight()
	s.wakeParent()
	if next.IsZero() || s.stopped || !s.wake.IsZero() && !next.Before(s.wake) {
		return // a timer that comes too early asks again
	}
	s.wake = next
	s.timer.Reset(next.Sub(now) + time.Millisecond) // a lease holds at the very instant of its end
}

// updateWeight notes what the leases have come to take in memory.
func (s *Server) updateWeight() {
	if s.config.Memory == nil {
		return
	}
	weight := s.core.Weight()
	s.config.Memory.Add(weight - s.reportedWeight)
	s.reportedWeight = weight
}

// onTimer is what the timer does.
func (s *Server) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.wake = time.Time{}
	s.expireLeases(s.now())
}
