package jarl

import (
	"cmp"
	"errors"
	"net"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A connection is one request. Its worker uses it again for the next one: who may be late must hold on to
// the TCPConn instead.
type connection struct {
	*net.TCPConn
	cmd   gatehouse.Command
	text  [16]byte      // of the answer
	input [64]byte      // of what nobody looks at
	began time.Duration // by the clock of the metrics

	// Of the lot.
	prev, next *connection
	round      uint64
	drained    bool
}

// maxInput is how much a client may send before it is cut. Nothing needs to be sent at all.
const maxInput = 64 << 10

// answer decides, writes the answer, and ends the connection.
func (s *Server) answer(c *connection) {
	c.began = s.metrics.Now()
	if !s.admits.allows(c.RemoteAddr()) {
		s.metrics.Refused.Inc()
		_ = c.Close()
		return
	}
	d, settled, err := s.gate.Try(s.key, &c.cmd)
	switch {
	case settled && err == nil && d.Outcome == gatehouse.Granted:
		s.tell(c, d.Delay, d.Outcome)
	case settled && err == nil && d.Outcome == gatehouse.Refused && s.limit.Poll:
		if later := s.later(d.RetryAfter); s.admits.tooLong(later) {
			s.refuse(c)
		} else {
			s.tell(c, later, d.Outcome)
		}
	case settled && err == nil && d.Outcome == gatehouse.Refused && d.Delay > 0:
		s.refuse(c)
	case settled && err == nil && d.Outcome == gatehouse.Refused:
		s.wait(c) // somebody stands in line at this name, by another door
	default:
		s.fail(c, d, err)
	}
}

// refuse ends a connection whose delay would be longer than is promised. It takes no place.
func (s *Server) refuse(c *connection) {
	s.series.Count(telemetry.OutcomeOf(gatehouse.Refused, nil), 1, s.metrics.Now()-c.began)
	_ = c.Close()
}

// later is when a client that was refused may ask again. It is not 0, which would let it go.
func (s *Server) later(retry time.Duration) time.Duration {
	if retry == gatehouse.Forever { // it depends on others
		return s.limit.Period
	}
	return max(retry, time.Millisecond)
}

// tell writes a delay and ends the connection. It reports whether the system took the answer.
func (s *Server) tell(c *connection, delay time.Duration, outcome gatehouse.Outcome) bool {
	_, err := c.Write(appendSeconds(c.text[:0], delay)) // a new socket has room for it
	s.series.Count(telemetry.OutcomeOf(outcome, nil), 1, s.metrics.Now()-c.began)
	if err == nil && c.CloseWrite() == nil {
		s.drain(c)
	}
	_ = c.Close()
	return err == nil
}

// drain reads what the client sends until it hangs up or the lot has had enough of it: closing a
// connection that has unread input sends a reset, which can destroy the answer on its way.
func (s *Server) drain(c *connection) {
	if !s.lot.enter(c) {
		return
	}
	defer s.lot.leave(c)
	_ = c.discard()
}

// discard reads until the input ends, which is no error, or there is too much of it.
func (c *connection) discard() error {
	n, err := c.Read(c.input[:])
	if err != nil {
		return err
	}
	more := make([]byte, 4096) // for the few that send something
	for read := n; read < maxInput; read += n {
		n, err = c.Read(more)
		if err != nil {
			return err
		}
	}
	return errTooMuch
}

var errTooMuch = errors.New("the client sends more than is read over")

// wait puts the client in line, and lets it go when it is its turn. A client that hangs up meanwhile,
// or only stops sending, leaves the line.
func (s *Server) wait(c *connection) {
	a, cancel := s.stand(c)
	switch {
	case a == nil:
		s.metrics.Hangups.Inc()
		_ = c.Close()
	case a.err == nil && a.decision.Outcome == gatehouse.Refused && s.admits.MaxDelay > 0:
		s.refuse(c)
	case a.err != nil || a.decision.Outcome != gatehouse.Granted:
		s.fail(c, a.decision, a.err)
	case !s.tell(c, 0, a.decision.Outcome):
		s.metrics.Hangups.Inc()
		cancel()
	}
}

// An answer is what the gate says to those in line.
type answer struct {
	decision gatehouse.Decision
	err      error
}

// stand is the waiting of wait. It returns nil when the client has gone, which the gate is told then,
// and otherwise how to take back what the client cannot be told.
func (s *Server) stand(c *connection) (a *answer, cancel func()) {
	if !s.lot.arrive(c) {
		return nil, nil
	}
	defer s.lot.depart(c)
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	cmd := s.cmd
	cmd.Op, cmd.MaxWait = gatehouse.OpAcquire, cmp.Or(s.admits.MaxDelay, gatehouse.Forever)
	conn, answers := c.TCPConn, make(chan *answer, 1)
	cancel = s.gate.Submit(s.key, cmd, func(d gatehouse.Decision, err error) {
		answers <- &answer{d, err}
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the reading below, and nothing else does so
	})
	err := c.discard()
	now := s.metrics.Now()
	s.series.Waited(now - c.began)
	c.began = now
	if !errors.Is(err, os.ErrDeadlineExceeded) || c.hungUp() {
		cancel()
		return nil, nil
	}
	_ = c.SetReadDeadline(time.Time{})
	return <-answers, cancel
}

// fail ends a connection without an answer: any number would be a permission, or a promise.
func (s *Server) fail(c *connection, d gatehouse.Decision, err error) {
	_ = c.Close()
	s.series.Count(telemetry.OutcomeOf(d.Outcome, err), 1, s.metrics.Now()-c.began)
	if s.stopping.Load() {
		return
	}
	s.unanswered.Raise(func() {
		why := d.Outcome.String() + " " + d.Message
		if err != nil {
			why = err.Error()
		}
		s.log.Error("connections get no answer", "limiter", s.key.String(), "error", why)
	}, func() {
		s.log.Info("no more connections without an answer", "limiter", s.key.String())
	})
}
