package sim_test

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A stream is one direction of a connection in memory. The system between the two ends has room for all that
// is written.
type stream struct {
	mu       sync.Mutex
	moved    sync.Cond // anything below has changed
	data     []byte
	ended    bool // nothing more is written
	unread   bool // nothing more is read: what is written goes nowhere
	reset    bool
	deadline time.Time // of reading
	timer    *time.Timer
}

func newStream() *stream {
	s := new(stream)
	s.moved.L = &s.mu
	return s
}

// change changes the stream, and wakes whoever reads.
func (s *stream) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	s.moved.Broadcast()
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.reset:
			return 0, syscall.ECONNRESET
		case s.unread:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(b, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.moved.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reset || s.ended:
		return 0, syscall.EPIPE
	case s.unread: // the other end answers by a reset, and the next write fails
		s.reset = true
		return len(b), nil
	}
	s.data = append(s.data, b...)
	s.moved.Broadcast()
	return len(b), nil
}

func (s *stream) setDeadline(at time.Time) {
	s.change(func() {
		if s.deadline = at; s.timer != nil {
			s.timer.Stop()
		}
		if !at.IsZero() {
			s.timer = time.AfterFunc(time.Until(at), func() { s.change(func() {}) })
		}
	})
}

// A socket is one end of a connection in memory.
type socket struct{ in, out *stream }

// connected returns both ends of a connection.
func connected() (client, server *socket) {
	there, back := newStream(), newStream()
	return &socket{in: back, out: there}, &socket{in: there, out: back}
}

func (s *socket) Read(b []byte) (int, error)  { return s.in.read(b) }
func (s *socket) Write(b []byte) (int, error) { return s.out.write(b) }

// CloseWrite ends what is sent, and goes on reading.
func (s *socket) CloseWrite() error {
	s.out.change(func() { s.out.ended = true })
	return nil
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	_ = s.CloseWrite()
	s.setDeadline(time.Time{})
	s.in.change(func() { s.in.unread = true })
	return nil
}

// Reset ends the connection at once: what was not read yet is gone.
func (s *socket) Reset() {
	s.out.change(func() { s.out.reset = true })
	s.in.change(func() { s.in.reset = true })
	s.setDeadline(time.Time{})
}

// Gone implements peer.Watched.
func (s *socket) Gone() bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return s.in.ended || s.in.reset
}

func (s *socket) setDeadline(at time.Time) { s.in.setDeadline(at) }

// SetDeadline implements [net.Conn]. Writing never waits.
func (s *socket) SetDeadline(at time.Time) error { return s.SetReadDeadline(at) }

// SetReadDeadline implements [net.Conn].
func (s *socket) SetReadDeadline(at time.Time) error {
	s.setDeadline(at)
	return nil
}

// SetWriteDeadline implements [net.Conn].
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// An address is that of every end.
type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// LocalAddr implements [net.Conn].
func (s *socket) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements [net.Conn].
func (s *socket) RemoteAddr() net.Addr { return address{} }
