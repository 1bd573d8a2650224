package http

import (
	"net"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// newListener returns a listener that counts the connections that it accepts, starts their time, and answers
// those beyond the limits with 503.
func (s *Server) newListener(
	listener net.Listener, admit func(conn net.Conn, loopback bool) (net.Conn, error),
) *peer.CappedListener {
	loopback := isLoopback(listener.Addr())
	return peer.CapListener(listener, peer.CapConfig{
		Admit:  func(conn net.Conn) (net.Conn, error) { return admit(conn, loopback) },
		Failed: func(err error) { s.config.Unaccepted.Unaccepted(s.log, "HTTP", err) },
	})
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

// admitConn counts a connection, unless that is beyond the limits, and starts the time for its first request.
// loopback says that only this machine reaches its listener.
func (s *Server) admitConn(conn net.Conn, loopback bool) (net.Conn, error) {
	if s.config.TLS != nil {
		conn = tlsconn.Server(conn, s.config.TLS, s.config.Budget, wantsTLS)
	}
	return s.admitPaced(&pacedConn{Conn: conn, server: s, loopback: loopback})
}

// admitPaced is admitConn for a connection as it is served.
func (s *Server) admitPaced(paced *pacedConn) (net.Conn, error) {
	if refusal := s.countOpened(paced.Conn); refusal != "" {
		s.metrics.countResponse(503)
		s.metrics.Refused.Inc()
		// With TLS the client could not read the answer, and shaking hands would cost more than it is worth.
		if _, secure := paced.Conn.(*tlsconn.Connection); secure {
			refusal = ""
		}
		return nil, refusal
	}
	s.pacedConns.addConn(paced)
	paced.startTimer(fresh)
	// Shutdown looks at pacedConns once. It may have done so before this connection was stored there.
	if s.listenersEnded.Load() {
		paced.cutIdle()
	}
	return paced, nil
}

// countOpened counts a connection. If that is beyond the limits, it is not counted, and refusal is the
// answer.
func (s *Server) countOpened(conn net.Conn) (refusal peer.Refusal) {
	if !s.sources.Enter(peer.Source(conn)) {
		return tooManyFromAddress
	}
	// Counting first and looking then keeps two connections from both taking the last place.
	if s.open.Add(1) > int64(s.config.Conns) {
		s.countClosed(conn)
		return tooManyConns
	}
	return ""
}
