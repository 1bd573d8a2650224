package http

import (
	"context"
	"net"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A drainableListener counts the connections that it accepts, answers those beyond the limits with 503, and
// accepts what has arrived before the server stops.
type drainableListener struct {
	*peer.CappedListener
	server   *Server
	loopback bool          // only this machine reaches its address
	accepted chan struct{} // has an element after a connection was accepted while the server stops
}

// newListener returns a listener with the limits of a server.
func (s *Server) newListener(listener net.Listener) *drainableListener {
	l := &drainableListener{
		server: s, loopback: isLoopback(listener.Addr()), accepted: make(chan struct{}, 1),
	}
	l.CappedListener = peer.CapListener(listener, peer.CapConfig{
		Admit:  l.admitConn,
		Failed: func(err error) { s.config.Unaccepted.Unaccepted(s.log, "HTTP", err) },
	})
	return l
}

// drainBacklog waits until every connection that the system has accepted is accepted here too: its client may
// have sent a request (docs/decisions/0028). It waits for at most maxDrainTime, as new ones may keep coming.
func (l *drainableListener) drainBacklog(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxDrainTime)
	defer cancel()
	for peer.AnyPending(l.Listener) {
		select {
		case <-l.accepted:
		case <-ctx.Done():
			return
		}
	}
}

// maxDrainTime is how long connections are accepted at most when the server stops.
const maxDrainTime = time.Second

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
func (l *drainableListener) admitConn(conn net.Conn) (net.Conn, error) {
	if refusal := l.server.countOpened(conn); refusal != "" {
		l.server.metrics.countResponse(503)
		l.server.metrics.Refused.Inc()
		l.notifyDrain()
		return nil, refusal
	}
	paced := &pacedConn{Conn: conn, server: l.server, loopback: l.loopback}
	l.server.pacedConns.Store(paced, struct{}{})
	paced.startTimer(fresh)
	l.notifyDrain()
	// Shutdown looks at pacedConns once. It may have done so before this connection was stored there.
	if l.server.stopping.Load() && l.server.listenersClosed() {
		paced.cutIdle()
	}
	return paced, nil
}

// notifyDrain makes drainBacklog look again, after a connection was accepted or refused.
func (l *drainableListener) notifyDrain() {
	if !l.server.stopping.Load() {
		return
	}
	select {
	case l.accepted <- struct{}{}:
	default: // drainBacklog has one notice that it has not read yet, which is enough
	}
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
