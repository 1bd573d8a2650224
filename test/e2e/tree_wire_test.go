package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A wire leads to a server, and can be cut.
type wire struct {
	address string // of its near end
	to      string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// lay lays a wire to a server.
func lay(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: listener.Addr().String(), to: to}
	t.Cleanup(func() {
		_ = listener.Close()
		w.set(true)
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go w.join(near)
		}
	}()
	return w
}

// join joins one connection, unless the wire is cut, until one end closes it.
func (w *wire) join(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := new(net.Dialer).Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.conns = append(w.conns, near, far)
	w.mu.Unlock()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// set cuts the wire, or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}
