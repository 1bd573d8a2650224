package bouncer

import (
	"errors"
	"net"
	"time"
)

// A limitedListener counts connections, answers those that are too many with 503, and survives
// running out of file descriptors.
type limitedListener struct {
	net.Listener
	server *Server
}

// tooMany is the answer to a connection beyond the limit.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 59\r\n\r\nserver has as many connections as it allows; try again soon"

// Pauses of the listener: after a failure to accept, doubling, and before a refused connection is
// closed, so that its client can read the answer first.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
	linger     = time.Second
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
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		paced := &pacedConn{TCPConn: tcp, server: l.server}
		if l.server.open.Add(1) > int64(l.server.config.Conns) {
			l.refuse(paced)
			continue
		}
		paced.watch()
		return paced, nil
	}
}

func (l *limitedListener) refuse(conn *pacedConn) {
	l.server.metrics.count(0, 0, 503)
	_, err := conn.Write([]byte(tooMany)) // a new socket has room for it
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		_ = conn.Close()
		return
	}
	time.AfterFunc(linger, func() { _ = conn.Close() })
}
