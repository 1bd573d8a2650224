package http

import (
	"net"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A pacedListener counts the connections that it accepts, starts their time, and answers those beyond the
// limits with 503.
type pacedListener struct {
	*peer.CappedListener
	server   *Server
	loopback bool // only this machine reaches its address
}

// newListener returns a listener with the limits of a server.
func (s *Server) newListener(listener net.Listener) *pacedListener {
	l := &pacedListener{server: s, loopback: isLoopback(listener.Addr())}
	l.CappedListener = peer.CapListener(listener, peer.CapConfig{
		Admit:  l.admitConn,
		Failed: func(err error) { s.config.Unaccepted.Unaccepted(s.log, "HTTP", err) },
	})
	return l
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

// admitConn counts a connection, unless that is beyond the limits, and starts the time for its first request.
func (l *pacedListener) admitConn(conn net.Conn) (net.Conn, error) {
	if refusal := l.server.countOpened(conn); refusal != "" {
		l.server.metrics.countResponse(503)
		l.server.metrics.Refused.Inc()
		return nil, refusal
	}
	paced := &pacedConn{Conn: conn, server: l.server, loopback: l.loopback}
	l.server.pacedConns.Store(paced, struct{}{})
	paced.startTimer(fresh)
	// Shutdown looks at pacedConns once. It may have done so before this connection was stored there.
	if l.server.stopping.Load() && l.server.listenersClosed() {
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
