package resp

import (
	"fmt"
	"net"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// Connections are accepted here and handed to the event loops, because a listener of gnet's own ends
// its server when there is no file descriptor left, and cannot refuse a connection with a sentence.

// The answers to connections beyond the limits, the first in Redis's words.
const (
	tooMany      = "-ERR max number of clients reached\r\n"
	tooManyOfOne = "-ERR max number of clients of one address reached\r\n"
)

// Serve answers the connections of a listener until Shutdown is called. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	capped := peer.CapListener(listener, peer.CapConfig{
		Admit:  s.enrollConn,
		Failed: s.complain,
	})
	if !s.addListener(capped) {
		_ = capped.Close() // whoever called Shutdown may have closed it
		return nil
	}
	defer s.serving.Done()
	for {
		_, err := capped.Accept() // enrollConn has handed it to an event loop
		switch {
		case err == nil:
			continue
		// At the end it is Shutdown that has closed the listener, which is no failure.
		case s.closed.Load():
			return nil
		}
		return fmt.Errorf("serving RESP on %s: %w", listener.Addr(), err)
	}
}

// enrollConn hands a connection to an event loop, unless that is beyond the limits.
func (s *Server) enrollConn(conn net.Conn) (net.Conn, error) {
	if s.open.Load()+s.shaking.Load() >= int64(s.config.Conns) {
		return nil, s.refuse(tooMany)
	}
	source := peer.Source(conn) // which is gone after Enroll
	if !s.sources.Enter(source) {
		return nil, s.refuse(tooManyOfOne)
	}
	if s.config.TLS != nil {
		s.serving.Add(1)
		s.shaking.Add(1)
		go s.shakeHands(conn)
		return conn, nil
	}
	if err := s.enroll(conn, nil); err != nil {
		s.sources.Leave(source) // otherwise OnClose does
		return nil, err
	}
	return conn, nil
}

// refuse counts a connection that is refused, and returns the answer to it: none with TLS, where the client
// could not read it.
func (s *Server) refuse(answer peer.Refusal) peer.Refusal {
	s.metrics.Refused.Inc()
	if s.config.TLS != nil {
		return ""
	}
	return answer
}

// enroll hands a connection to an event loop. secure is its TLS, nil without.
func (s *Server) enroll(conn net.Conn, secure *tlsconn.Connection) error {
	eventloop.AwaitDescriptor(conn, &s.stopping, s.complain)
	// It closes conn: the loop needs a file descriptor of its own.
	var err error
	if secure == nil {
		_, err = s.engine.Enroll(conn)
	} else {
		_, err = s.engine.EnrollContext(conn, secure)
	}
	return err
}

// complain logs why connections cannot be accepted.
func (s *Server) complain(why error) { s.config.Unaccepted.Unaccepted(s.log, "RESP", why) }

// addListener notes a listener for the end, unless that has come.
func (s *Server) addListener(listener *peer.CappedListener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.listeners[listener] = struct{}{}
	s.serving.Add(1)
	return true
}
