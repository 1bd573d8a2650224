package http

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A limitedListener counts connections, answers those that are too many with 503, and survives
// running out of file descriptors.
type limitedListener struct {
	net.Listener
	server   *Server
	loopback bool // it listens where only this machine reaches it
	turnaway peer.Turnaway
	accepted chan struct{} // has one after a connection was accepted while the server stops
}

// drain waits until what the system has accepted is accepted here too: its client may have sent a request.
// Those that keep coming do not keep it for ever.
func (l *limitedListener) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mostDraining)
	defer cancel()
	for peer.AnyPending(l.Listener) {
		select {
		case <-l.accepted:
		case <-ctx.Done():
			return
		}
	}
}

// mostDraining is how long connections are accepted at most when the server stops.
const mostDraining = time.Second

// The answers to connections beyond the limits.
const (
	tooMany = tooManyHead + "59\r\n\r\nserver has as many connections as it allows; try again soon"

	tooManyOfOne = tooManyHead + "77\r\n\r\n" +
		"server has as many connections from this address as it allows; try again soon"

	tooManyHead = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Cache-Control: no-store\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: "
)

// Pauses of the listener after a failure to accept, doubling.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for pause := firstPause; ; {
		conn, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			l.server.config.Unaccepted.Unaccepted(l.server.log, "HTTP", err)
			<-time.After(pause)
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		if refusal := l.server.enter(conn); refusal != "" {
			l.server.metrics.responded(503)
			l.server.metrics.Refused.Inc()
			l.turnaway.Refuse(conn, refusal)
			l.tellDrain()
			continue
		}
		paced := &pacedConn{Conn: conn, server: l.server, loopback: l.loopback}
		l.server.paced.Store(paced, struct{}{})
		paced.watch(fresh)
		l.tellDrain()
		if l.server.stopping.Load() && l.server.hasEnded() { // Shutdown may not have seen it
			paced.cutIdle()
		}
		return paced, nil
	}
}

// tellDrain has drain look again: a connection was accepted, or refused.
func (l *limitedListener) tellDrain() {
	if !l.server.stopping.Load() {
		return
	}
	select {
	case l.accepted <- struct{}{}:
	default: // it has not looked since the one before
	}
}

// enter counts a connection. One beyond the limits is not counted, and the answer to it is returned.
func (s *Server) enter(conn net.Conn) (refusal string) {
	if !s.sources.Enter(peer.Source(conn)) {
		return tooManyOfOne
	}
	if s.open.Add(1) > int64(s.config.Conns) {
		s.leave(conn)
		return tooMany
	}
	return ""
}
