package http

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
)

// Connections are accepted here and handed to the event loops, because a listener of gnet's own ends its
// server when there is no file descriptor left, and cannot refuse a connection with a sentence.

// Serve answers connections until Shutdown is called. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	return s.serveAs(listener, connOrigin{loopback: isLoopback(listener.Addr())})
}

// ServeHealth answers requests for health and metrics alone, without TLS, until Shutdown is called.
func (s *Server) ServeHealth(listener net.Listener) error {
	return s.serveAs(listener, connOrigin{loopback: isLoopback(listener.Addr()), healthAlone: true})
}

// serveAs answers the connections of a listener.
func (s *Server) serveAs(listener net.Listener, origin connOrigin) error {
	capped := peer.CapListener(listener, peer.CapConfig{
		Admit:  func(conn net.Conn) (net.Conn, error) { return s.enrollConn(conn, origin) },
		Failed: s.complain,
	})
	s.mu.Lock()
	ended := s.listenersEnded.Load()
	if !ended {
		s.listeners = append(s.listeners, capped)
		s.serving.Add(1)
	}
	s.mu.Unlock()
	// Shutdown came first, and has not seen this listener. Whoever called it may have closed it.
	if ended {
		_ = capped.Close()
		return nil
	}
	defer s.serving.Done()
	for {
		_, err := capped.Accept() // enrollConn has handed it to an event loop
		switch {
		case err == nil:
		case s.listenersEnded.Load() || s.stopping.Load():
			return nil
		default:
			return fmt.Errorf("serving HTTP on %s: %w", listener.Addr(), err)
		}
	}
}

// The answers to connections beyond the limits.
const (
	tooManyConns = tooManyConnsHead + "59\r\n\r\nserver has as many connections as it allows; try again soon"

	tooManyFromAddress = tooManyConnsHead + "77\r\n\r\n" +
		"server has as many connections from this address as it allows; try again soon"

	tooManyConnsHead = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Cache-Control: no-store\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: "
)

// wantsTLS is the answer to a client that speaks HTTP without TLS where it is wanted.
const wantsTLS = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 64\r\n\r\nrequest came without TLS: this port speaks TLS alone, want https"

// enrollConn hands a connection to an event loop, unless that is beyond the limits.
func (s *Server) enrollConn(conn net.Conn, origin connOrigin) (net.Conn, error) {
	secure := s.config.TLS != nil && !origin.healthAlone
	source := peer.Source(conn) // which is gone after Enroll
	if refusal := s.countOpened(source); refusal != "" {
		s.metrics.countResponse(503)
		s.metrics.Refused.Inc()
		// With TLS the client could not read the answer, and shaking hands would cost more than it is worth.
		if secure {
			refusal = ""
		}
		return nil, refusal
	}
	if secure {
		s.serving.Add(1)
		go s.shakeHands(conn, &origin)
		return conn, nil
	}
	if err := s.enroll(conn, &origin); err != nil {
		s.countClosed(source)
		return nil, err
	}
	return conn, nil
}

// enroll hands a connection to an event loop, and closes it if that fails or else once the loop has it.
func (s *Server) enroll(conn net.Conn, origin *connOrigin) error {
	eventloop.AwaitDescriptor(conn, &s.stopping, s.complain)
	_, err := s.engine.EnrollContext(conn, origin)
	return err
}

// complain logs why connections cannot be accepted.
func (s *Server) complain(why error) { s.config.Unaccepted.Unaccepted(s.log, "HTTP", why) }

// countOpened counts a connection. If that is beyond the limits, it is not counted, and refusal is the
// answer.
func (s *Server) countOpened(source netip.Addr) (refusal peer.Refusal) {
	if !s.sources.Enter(source) {
		return tooManyFromAddress
	}
	// Counting first and looking then keeps two connections from both taking the last place.
	if s.open.Add(1) > int64(s.config.Conns) {
		s.countClosed(source)
		return tooManyConns
	}
	return ""
}
