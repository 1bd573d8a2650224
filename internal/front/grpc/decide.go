package grpc

import (
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// chunk is how many resources are decided without letting others have their turn: 0.2 ms.
const chunk = 256

// A redirect, when there is one, means that nothing was decided because this server is not the master.
type redirect struct {
	there   bool
	address string // of the master; empty when it is not known
}

// The errors before there are templates: of a server that never has any, and of one that could not read
// them yet.
var (
	errUnconfigured = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server has no capacity configuration; start it with --capacity-config FILE to have some to share")
	errUnread = gatehouse.Errorf(gatehouse.CodeUnavailable,
		"server could not read its capacity configuration yet, want the request later")
)

// errEnded is the answer while the server stops.
var errEnded = gatehouse.Errorf(gatehouse.CodeUnavailable, "server is stopping, want the request elsewhere")

// unconfigured is the error that fits a server without templates.
func (s *Server) unconfigured() error {
	if s.config.Source == "" {
		return errUnconfigured
	}
	return errUnread
}

// lease decides a call that was checked. The grants in it are the answers, in the order of its requests.
//
// A resource that a limit refuses is left out of them: a client that were refused whole would lose what it
// holds of the others. The call fails if nothing of it could be decided.
func (s *Server) lease(c *call) (to redirect, err error) {
	for first := true; first || c.decided < len(c.requests); first = false {
		to, err = s.leaseSome(c)
		if to.there || err != nil {
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

// leaseSome decides the next few requests of a call.
func (s *Server) leaseSome(c *call) (redirect, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if to, err := s.open(now); to.there || err != nil {
		return to, err
	}
	if !s.state.configured && len(c.requests) > 0 {
		return redirect{}, s.unconfigured()
	}
	for end := min(c.decided+chunk, len(c.requests)); c.decided < end; c.decided++ {
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
	s.settle(now)
	return redirect{}, nil
}

// refusalsApart is how often the log says at most that a limit refuses resources.
const refusalsApart = time.Minute

// noteRefusal counts what was left out of an answer, and tells it if that was not told lately: whoever is
// refused comes again.
func (s *Server) noteRefusal(c *call) {
	refused := len(c.requests) - len(c.grants)
	s.metrics.leftOut.Add(float64(refused))
	s.mu.Lock()
	now := s.now()
	tell := s.refusalTold.IsZero() || now.Sub(s.refusalTold) >= refusalsApart
	if tell {
		s.refusalTold = now
	}
	s.mu.Unlock()
	if tell {
		s.log.Warn("a limit refuses resources",
			"client", c.client, "refused", refused, "of", len(c.requests), "error", c.refusal)
	}
}

// release gives back what a call names.
func (s *Server) release(c *call) (to redirect, err error) {
	if len(c.released) == 0 {
		return s.releaseSome(c.client, nil)
	}
	for some := range slices.Chunk(c.released, chunk) {
		to, err = s.releaseSome(c.client, some)
		if to.there || err != nil {
			return to, err
		}
	}
	return redirect{}, nil
}

// releaseSome gives back a few resources.
func (s *Server) releaseSome(client string, names []string) (redirect, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if to, err := s.open(now); to.there || err != nil {
		return to, err
	}
	for _, name := range names {
		s.core.Release(now, client, name)
	}
	s.settle(now)
	return redirect{}, nil
}

// discover says where the master is, and whether it is this server.
func (s *Server) discover() (address string, leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Leading(s.now()) {
		return s.state.address, true
	}
	return s.master(), false
}

// open says whether the server may decide.
func (s *Server) open(now time.Time) (redirect, error) {
	s.claim(now)
	switch {
	case s.ended:
		return redirect{}, errEnded
	case !s.core.Leading(now):
		return redirect{there: true, address: s.master()}, nil
	}
	return redirect{}, nil
}

// never is how long a timer waits that has nothing to wait for.
const never = time.Duration(math.MaxInt64)

// settle forgets what has run out, and sees to it that the next to do so is forgotten in time.
func (s *Server) settle(now time.Time) {
	next := s.core.Expire(now)
	s.weigh()
	s.wakeParent()
	if next.IsZero() || s.ended || !s.wake.IsZero() && !next.Before(s.wake) {
		return // a timer that comes too early asks again
	}
	s.wake = next
	s.timer.Reset(next.Sub(now) + time.Millisecond) // a lease holds at the very instant of its end
}

// weigh notes what the leases have come to take in memory.
func (s *Server) weigh() {
	if s.config.Memory == nil {
		return
	}
	weight := s.core.Weight()
	s.config.Memory.Add(weight - s.weighed)
	s.weighed = weight
}

// expire is what the timer does.
func (s *Server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.wake = time.Time{}
	s.settle(s.now())
}
