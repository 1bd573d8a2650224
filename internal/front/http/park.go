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

// A parkedConn connection waits without a goroutine and without the HTTP server's buffers, where the
// system allows it (park_linux.go; elsewhere, and with the build tag portable, park_portable.go).
// First it waits for its answer and is watched for a client that hangs up; then, until the client's
// next request, it is idle.
type parkedConn struct {
	net.Conn
	server *Server
	watch  pollState // what the system needs to watch it

	mu         sync.Mutex
	readAhead  []byte // of the next request, read already
	charged    int    // bytes that the budget has of it
	onGone     func() // called once when the client hangs up while it waits; nil once idle
	closed     bool
	handedBack bool // back to the HTTP server
	idleTimer  *time.Timer
}

// parkConn takes a connection over. gone is called when its client hangs up before the answer, possibly
// before park returns.
func (s *Server) parkConn(conn, hijacked net.Conn, gone func()) (*parkedConn, error) {
	rest, err := readBuffered(conn, hijacked)
	if err == nil && !s.config.Budget.Take(len(rest)) {
		_, _ = io.WriteString(conn, tooManyBytes)
		err = errBufferedTooMuch
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if old, ok := conn.(*parkedConn); ok { // it was parked before
		conn = old.Conn
	}
	if c := pacedConnOf(conn); c != nil {
		c.stopTimer()
	}
	p := &parkedConn{Conn: conn, server: s, readAhead: rest, charged: len(rest), onGone: gone}
	s.parkedConns.addConn(p)
	if err := s.poller.watchConn(p); err != nil {
		p.closeParked()
		return nil, err
	}
	return p, nil
}

// tooManyBytes is the answer to a request that has to wait when there is no room for what was sent behind it.
const tooManyBytes = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 57\r\n\r\nserver buffers as many bytes as it allows; try again soon"

// readBuffered reads what the HTTP server has read ahead, without waiting for more: with the deadline
// passed, only what is in its buffer is returned. It takes no more room than it has bytes.
func readBuffered(conn, hijacked net.Conn) ([]byte, error) {
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
func (p *parkedConn) Read(b []byte) (int, error) {
	p.mu.Lock()
	n := copy(b, p.readAhead)
	p.readAhead = p.readAhead[n:]
	if len(p.readAhead) == 0 {
		p.readAhead = nil
		p.releaseBudget()
	}
	p.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return p.Conn.Read(b)
}

// releaseBudget gives back what the budget has of the rest. The caller holds the lock.
func (p *parkedConn) releaseBudget() {
	p.server.config.Budget.Release(p.charged)
	p.charged = 0
}

// Close implements [net.Conn].
func (p *parkedConn) Close() error {
	p.mu.Lock()
	p.readAhead = nil
	p.releaseBudget()
	p.mu.Unlock()
	return p.Conn.Close()
}

// awaitRequest makes the connection idle: it goes back to the HTTP server when its client sends something,
// and is closed when that takes too long.
func (p *parkedConn) awaitRequest() {
	p.mu.Lock()
	p.onGone = nil
	if p.closed {
		p.mu.Unlock()
		return
	}
	if len(p.readAhead) > 0 {
		p.mu.Unlock()
		p.handBack()
		return
	}
	p.idleTimer = time.AfterFunc(p.server.config.IdleTimeout, p.closeParked)
	p.mu.Unlock()
	if p.server.stopping.Load() && !peer.Ask(p.Conn, peer.Unread) || p.server.poller.awaitData(p) != nil {
		p.closeParked()
	}
}

// handleEvent is called by the poller when the client hung up, or sent something to an idle connection.
func (p *parkedConn) handleEvent(hungUp bool) {
	p.mu.Lock()
	gone := p.onGone
	p.onGone = nil
	p.mu.Unlock()
	switch {
	case gone != nil:
		gone()
	case hungUp:
		p.closeParked()
	default:
		p.handBack()
	}
}

// handBack gives the connection back to the HTTP server.
func (p *parkedConn) handBack() {
	p.mu.Lock()
	if p.closed || p.handedBack {
		p.mu.Unlock()
		return
	}
	p.handedBack = true
	if p.idleTimer != nil {
		p.idleTimer.Stop()
	}
	p.mu.Unlock()
	p.server.poller.unwatchConn(p)
	p.server.parkedConns.removeConn(p)
	if c := pacedConnOf(p.Conn); c != nil {
		c.startTimer(receiving)
	}
	go p.server.http.ServeConn(p) //nolint:errcheck // it ends when the connection does, and says why there
}

// closeParked ends a connection that is parked.
func (p *parkedConn) closeParked() {
	p.mu.Lock()
	if p.closed || p.handedBack {
		p.mu.Unlock()
		return
	}
	p.closed = true
	if p.idleTimer != nil {
		p.idleTimer.Stop()
	}
	p.mu.Unlock()
	p.server.poller.unwatchConn(p)
	p.server.parkedConns.removeConn(p)
	_ = p.Close()
}

// A parkedSet is where the parked connections are, for the end of the server.
type parkedSet struct {
	mu    sync.Mutex
	conns map[*parkedConn]struct{}
	empty chan struct{} // closed when the last one leaves; nil while nobody waits for that
}

func (l *parkedSet) addConn(p *parkedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[p] = struct{}{}
}

func (l *parkedSet) removeConn(p *parkedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, p)
	if l.empty != nil && len(l.conns) == 0 {
		close(l.empty)
		l.empty = nil
	}
}

// drainConns closes the connections that are idle, waits until the others have been answered, and closes
// them too when ctx ends first.
func (l *parkedSet) drainConns(ctx context.Context) {
	l.forEach(func(p *parkedConn) {
		p.mu.Lock()
		idle := p.onGone == nil && p.idleTimer != nil
		p.mu.Unlock()
		if idle && !peer.Ask(p.Conn, peer.Unread) { // a request that has come is answered
			p.closeParked()
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
		l.forEach((*parkedConn).closeParked)
	}
}

func (l *parkedSet) forEach(do func(*parkedConn)) {
	l.mu.Lock()
	conns := make([]*parkedConn, 0, len(l.conns))
	for p := range l.conns {
		conns = append(conns, p)
	}
	l.mu.Unlock()
	for _, p := range conns {
		do(p)
	}
}
