package jarl

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A connection is one request. Its worker uses it again for the next one: code that may be late must hold on
// to the TCPConn instead.
type connection struct {
	*net.TCPConn
	text  [16]byte      // of the answer
	input [64]byte      // of what is read and dropped
	began time.Duration // by the clock of the metrics

	// Of the registry.
	round uint64
	place *list.Element // among those that are drained; nil for all others
}

// maxInput is how much a client may send before it is cut. Nothing needs to be sent at all.
const maxInput = 64 << 10

// answerConnection decides, writes the answer, and ends the connection.
func (s *Server) answerConnection(c *connection) {
	c.began = s.metrics.Now()
	if !s.admits.allowsAddress(c.RemoteAddr()) {
		s.metrics.Refused.Inc()
		_ = c.Close()
		return
	}
	if !s.admitsUser(c) {
		s.metrics.Refused.Inc()
		_ = c.Close()
		return
	}
	d, err := s.gate.Do(context.Background(), s.key, s.cmd) // it does not wait in line
	switch {
	case err == nil && d.Outcome == gatehouse.Granted:
		s.writeDelay(c, d.Delay, d.Outcome)
	// The cases of a refusal are in order: a poll may be refused for any reason, a reservation has a Delay
	// when it would be longer than MaxDelay, and has none when others stand in line.
	case err == nil && d.Outcome == gatehouse.Refused && s.limit.Poll:
		if later := s.retryDelay(d.RetryAfter); s.admits.tooLong(later) {
			s.closeRefused(c)
		} else {
			s.writeDelay(c, later, d.Outcome)
		}
	case err == nil && d.Outcome == gatehouse.Refused && d.Delay > 0:
		s.closeRefused(c)
	case err == nil && d.Outcome == gatehouse.Refused:
		s.waitInLine(c) // somebody stands in line at this name, by another door
	default:
		s.closeUnanswered(c, d, err)
	}
}

// admitsUser reports whether the user of the listener, if there is one, may ask.
func (s *Server) admitsUser(c *connection) bool {
	if s.users == nil {
		return true
	}
	err := s.users.MayListen(s.key)
	if err != nil {
		s.users.CountFailure(telemetry.JARL, err, peer.Source(c), nil)
	}
	return err == nil
}

// closeRefused ends a connection whose delay would be longer than is promised. It takes no place.
func (s *Server) closeRefused(c *connection) {
	s.series.Count(telemetry.OutcomeOf(gatehouse.Refused, nil), 1, s.metrics.Now()-c.began)
	_ = c.Close()
}

// retryDelay is when a client that was refused may ask again. It is not 0, which would let it go.
func (s *Server) retryDelay(retry time.Duration) time.Duration {
	if retry == gatehouse.Forever { // it depends on others
		return s.limit.Period
	}
	return max(retry, time.Millisecond)
}

// writeDelay writes a delay and ends the connection. It reports whether the system took the answer.
func (s *Server) writeDelay(c *connection, delay time.Duration, outcome gatehouse.Outcome) bool {
	_, err := c.Write(appendSeconds(c.text[:0], delay)) // a new socket has room for it
	s.series.Count(telemetry.OutcomeOf(outcome, nil), 1, s.metrics.Now()-c.began)
	if err == nil && c.CloseWrite() == nil {
		s.drainInput(c)
	}
	_ = c.Close()
	return err == nil
}

// drainInput reads what the client sends until it hangs up or the registry closes it: closing a
// connection that has unread input sends a reset, which can destroy the answer on its way.
func (s *Server) drainInput(c *connection) {
	if !s.registry.addDrained(c) {
		return
	}
	defer s.registry.removeDrained(c)
	_ = c.discardInput()
}

// discardInput reads until the input ends, which is no error, or there is too much of it.
func (c *connection) discardInput() error {
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

var errTooMuch = errors.New("the client sent more input than the server discards")

// waitInLine puts the client in line, and lets it go when it is its turn. A client that hangs up meanwhile,
// or only stops sending, leaves the line.
func (s *Server) waitInLine(c *connection) {
	r := s.awaitDecision(c)
	switch {
	case r == nil:
		s.metrics.Hangups.Inc()
		_ = c.Close()
	case r.Err == nil && r.Decision.Outcome == gatehouse.Refused && s.admits.MaxDelay > 0:
		s.closeRefused(c)
	case r.Err != nil || r.Decision.Outcome != gatehouse.Granted:
		s.closeUnanswered(c, *r.Decision, r.Err)
	// An answer that could not be written lets no client go, so its place is given back.
	case !s.writeDelay(c, 0, r.Decision.Outcome):
		s.metrics.Hangups.Inc()
		s.gate.Cancel(r)
	}
}

// awaitDecision is the waiting of waitInLine. It returns the request once that is decided, and nil when the
// client has gone, for which the request is canceled.
func (s *Server) awaitDecision(c *connection) *gate.Request {
	if !s.registry.addWaiting(c) {
		return nil
	}
	defer s.registry.removeWaiting(c)
	// The wait may be long, and a client whose machine vanished sends nothing. Keepalive finds it out.
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	// The decision may come after this function has returned, when c may be another connection's.
	conn, decided := c.TCPConn, make(chan struct{})
	r := &gate.Request{Key: s.key, Command: s.cmd, Decided: func(*gate.Request) {
		close(decided)
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the reading below, and nothing else does so
	}}
	r.Command.Op, r.Command.MaxWait = gatehouse.OpAcquire, cmp.Or(s.admits.MaxDelay, gatehouse.Forever)
	s.gate.Submit(r)
	err := c.discardInput()
	now := s.metrics.Now()
	s.series.Waited(now - c.began)
	// From here on it is the answer that takes time; waiting in line has its own histogram.
	c.began = now
	// The client hung up, sent too much, or did so just as its turn came: then the grant is taken back.
	if !errors.Is(err, os.ErrDeadlineExceeded) || peer.HungUp(c.TCPConn) {
		s.gate.Cancel(r)
		return nil
	}
	<-decided
	_ = c.SetReadDeadline(time.Time{})
	return r
}

// closeUnanswered ends a connection without an answer: any number would be a permission, or a promise.
func (s *Server) closeUnanswered(c *connection, d gatehouse.Decision, err error) {
	_ = c.Close()
	s.series.Count(telemetry.OutcomeOf(d.Outcome, err), 1, s.metrics.Now()-c.began)
	// A server that stops sends all of them away, which is counted but is no trouble.
	if s.stopping.Load() {
		return
	}
	s.unanswered.Raise(func() {
		why := d.Outcome.String() + " " + d.Message
		if err != nil {
			why = err.Error()
		}
		s.log.Error("connections get no response", "limiter", s.key.String(), "error", why)
	}, func() {
		s.log.Info("connections get responses again", "limiter", s.key.String())
	})
}

// Up to where a delay is written with three decimals and with two, and the longest there is. Clients
// read seven bytes: so they get all of it up to 99,999.9 s, and above that lose the decimal alone. From
// 10,000,000 s on they would read a tenth of it.
const (
	thousandths = 1_000 * time.Second
	hundredths  = 10_000 * time.Second
	longest     = 9_999_999 * time.Second
)

// appendSeconds appends a delay in seconds: 0.0 for none, otherwise rounded up, so that no client calls
// too early.
func appendSeconds(text []byte, delay time.Duration) []byte {
	if delay <= 0 {
		return append(text, "0.0"...)
	}
	delay = min(delay, longest)
	// The rounded delay is compared, not the delay: 999.9995 s become 1000.000, which would be a byte too
	// long, and are written with two decimals.
	unit, decimals := time.Millisecond, 3
	if roundUp(delay, unit) >= thousandths {
		unit, decimals = 10*time.Millisecond, 2
	}
	if roundUp(delay, unit) >= hundredths {
		unit, decimals = 100*time.Millisecond, 1
	}
	delay = roundUp(delay, unit)
	text = strconv.AppendInt(text, int64(delay/time.Second), 10)
	text = append(text, '.')
	// By whole numbers: a float could print a digit less than what was rounded up.
	for rest := delay % time.Second; decimals > 0; decimals-- {
		rest *= 10
		text = append(text, '0'+byte(rest/time.Second)) // a digit
		rest %= time.Second
	}
	return text
}

// roundUp rounds a delay up to whole units.
func roundUp(delay, unit time.Duration) time.Duration {
	return (delay + unit - 1).Truncate(unit)
}
