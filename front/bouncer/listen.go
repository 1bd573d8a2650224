package bouncer

import (
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
	turnaway peer.Turnaway
}

// tooMany is the answer to a connection beyond the limit.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 59\r\n\r\nserver has as many connections as it allows; try again soon"

// Pauses of the listener after a failure to accept, doubling.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for pause := firstPause; ; {
		conn, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			l.server.log.Warn("accepting a connection failed", "error", err, "retry_in", pause.String())
			<-time.After(pause)
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		paced := &pacedConn{Conn: conn, server: l.server}
		if l.server.open.Add(1) > int64(l.server.config.Conns) {
			l.server.open.Add(-1)
			l.server.metrics.count(0, 0, 503)
			l.turnaway.Refuse(conn, tooMany)
			continue
		}
		l.server.paced.Store(paced, struct{}{})
		paced.watch(fresh)
		if l.server.stopping.Load() { // Shutdown may not have seen it
			_ = paced.Close()
			continue
		}
		return paced, nil
	}
}
