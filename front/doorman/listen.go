package doorman

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A limitedListener counts connections, and sends away those that are too many.
type limitedListener struct {
	net.Listener
	server   *Server
	turnaway peer.Turnaway
}

// tooMany is what a connection beyond the limit is told. It is no HTTP/2, on purpose: a gRPC client to
// whom HTTP/2 were spoken first would take the connection for a good one, and come again at once.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 59\r\n\r\n" +
	"server has as many connections as it allows; try again soon"

// Accept implements [net.Listener]. gRPC waits and tries again by itself when there is no file left.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := l.server.conns.add(conn, l.server.config.Conns); counted != nil {
			return counted, nil
		}
		l.server.metrics.refused.Inc()
		if tcp, ok := conn.(*net.TCPConn); ok {
			l.turnaway.Refuse(tcp, tooMany)
		} else {
			_ = conn.Close()
		}
	}
}

// conns are the open connections.
type conns struct {
	mu    sync.Mutex
	open  map[*countedConn]struct{}
	ended bool // new ones are closed at once
}

// add notes a connection, unless there are as many as allowed: then it is nil.
func (s *conns) add(conn net.Conn, most int) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= most {
		return nil
	}
	if s.ended {
		_ = conn.Close()
	}
	if s.open == nil {
		s.open = make(map[*countedConn]struct{})
	}
	c := &countedConn{Conn: conn, of: s}
	s.open[c] = struct{}{}
	return c
}

// count is how many are open.
func (s *conns) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// cut closes those that are to be closed, and all that come later. gRPC waits, at its end too, for those that
// have not begun to speak HTTP/2 until they do or their time is up.
func (s *conns) cut(which func(c *countedConn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		if which(c) {
			_ = c.Conn.Close() // gRPC closes c itself, which ends its being counted
		}
	}
}

func isAny(*countedConn) bool      { return true }
func isSilent(c *countedConn) bool { return !c.heard.Load() }

// A countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	of    *conns
	heard atomic.Bool // something was read from it
}

// Read implements [net.Conn].
func (c *countedConn) Read(to []byte) (n int, err error) {
	n, err = c.Conn.Read(to)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
