package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A parked connection waits without a goroutine and without the HTTP server's buffers, where the
// system allows it (park_linux.go; elsewhere, and with the build tag portable, park_portable.go).
// First it waits for its answer and is watched for a client that hangs up; then, until the client's
// next request, it is idle.
type parked struct {
	net.Conn
	server *Server
	watch  watch // what the system needs to watch it

	mu      sync.Mutex
	rest    []byte // of the next request, read already
	charged int    // bytes that the budget has of it
	gone    func() // called once when the client hangs up while it waits; nil once idle
	closed  bool
	handed  bool // back to the HTTP server
	expires *time.Timer
}

// park takes a connection over. gone is called when its client hangs up before the answer, possibly
// before park returns.
func (s *Server) park(conn, hijacked net.Conn, gone func()) (*parked, error) {
	rest, err := buffered(conn, hijacked)
	if err == nil && !s.config.Budget.Take(len(rest)) {
		_, _ = io.WriteString(conn, tooMuch)
		err = errBufferedTooMuch
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if old, ok := conn.(*parked); ok { // it was parked before
		conn = old.Conn
	}
	if c := paced(conn); c != nil {
		c.rest()
	}
	p := &parked{Conn: conn, server: s, rest: rest, charged: len(rest), gone: gone}
	s.lot.enter(p)
	if err := s.poller.add(p); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// tooMuch is the answer to a request that has to wait when there is no room for what was sent behind it.
const tooMuch = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 57\r\n\r\nserver buffers as many bytes as it allows; try again soon"

// buffered reads what the HTTP server has read ahead, without waiting for more: with the deadline
// passed, only what is in its buffer is returned. It takes no more room than it has bytes.
func buffered(conn, hijacked net.Conn) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, fmt.Errorf("parking a connection: %w", err)
	}
	var rest []byte
	var chunk [512]byte
	for {
		n, err := hijacked.Read(chunk[:])
		rest = append(rest, chunk[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errMalformed) {
			break // what is malformed is refused after the answer to this request
		}
		if err != nil {
			return nil, fmt.Errorf("parking a connection: %w", err)
		}
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("parking a connection: %w", err)
	}
	return bytes.Clone(rest), nil
}

// Read implements [net.Conn] for the HTTP server, once the connection is handed back.
func (p *parked) Read(b []byte) (int, error) {
	p.mu.Lock()
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	if len(p.rest) == 0 {
		p.rest = nil
		p.release()
	}
	p.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return p.Conn.Read(b)
}

// release gives back what the budget has of the rest. The caller holds the lock.
func (p *parked) release() {
	p.server.config.Budget.Release(p.charged)
	p.charged = 0
}

// Close implements [net.Conn].
func (p *parked) Close() error {
	p.mu.Lock()
	p.rest = nil
	p.release()
	p.mu.Unlock()
	return p.Conn.Close()
}

// resume makes the connection idle: it goes back to the HTTP server when its client sends something,
// and is closed when that takes too long.
func (p *parked) resume() {
	p.mu.Lock()
	p.gone = nil
	if p.closed {
		p.mu.Unlock()
		return
	}
	if len(p.rest) > 0 {
		p.mu.Unlock()
		p.hand()
		return
	}
	p.expires = time.AfterFunc(p.server.config.IdleTimeout, p.close)
	p.mu.Unlock()
	if p.server.stopping.Load() && !peer.Ask(p.Conn, peer.Unread) || p.server.poller.awaitData(p) != nil {
		p.close()
	}
}

// event is called by the poller when the client hung up, or sent something to an idle connection.
func (p *parked) event(hungUp bool) {
	p.mu.Lock()
	gone := p.gone
	p.gone = nil
	p.mu.Unlock()
	switch {
	case gone != nil:
		gone()
	case hungUp:
		p.close()
	default:
		p.hand()
	}
}

// hand gives the connection back to the HTTP server.
func (p *parked) hand() {
	p.mu.Lock()
	if p.closed || p.handed {
		p.mu.Unlock()
		return
	}
	p.handed = true
	if p.expires != nil {
		p.expires.Stop()
	}
	p.mu.Unlock()
	p.server.poller.remove(p)
	p.server.lot.leave(p)
	if c := paced(p.Conn); c != nil {
		c.watch(receiving)
	}
	go p.server.http.ServeConn(p) //nolint:errcheck // it ends when the connection does, and says why there
}

// close ends a connection that is parked.
func (p *parked) close() {
	p.mu.Lock()
	if p.closed || p.handed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	if p.expires != nil {
		p.expires.Stop()
	}
	p.mu.Unlock()
	p.server.poller.remove(p)
	p.server.lot.leave(p)
	_ = p.Close()
}

// A lot is where the parked connections are, for the end of the server.
type lot struct {
	mu    sync.Mutex
	conns map[*parked]struct{}
	empty chan struct{} // closed when the last one leaves; nil while nobody waits for that
}

func (l *lot) enter(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[p] = struct{}{}
}

func (l *lot) leave(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, p)
	if l.empty != nil && len(l.conns) == 0 {
		close(l.empty)
		l.empty = nil
	}
}

// clear closes the connections that are idle, waits until the others have been answered, and closes
// them too when ctx ends first.
func (l *lot) clear(ctx context.Context) {
	l.each(func(p *parked) {
		p.mu.Lock()
		idle := p.gone == nil && p.expires != nil
		p.mu.Unlock()
		if idle && !peer.Ask(p.Conn, peer.Unread) { // a request that has come is answered
			p.close()
		}
	})
	l.mu.Lock()
	empty := make(chan struct{})
	if len(l.conns) == 0 {
		close(empty)
	} else {
		l.empty = empty
	}
	l.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
		l.each((*parked).close)
	}
}

func (l *lot) each(do func(*parked)) {
	l.mu.Lock()
	conns := make([]*parked, 0, len(l.conns))
	for p := range l.conns {
		conns = append(conns, p)
	}
	l.mu.Unlock()
	for _, p := range conns {
		do(p)
	}
}
