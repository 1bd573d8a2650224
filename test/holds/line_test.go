//go:build linux || darwin

package holds

import (
	"net"
	"sync"
	"testing"
)

// A line is what is between a client and its server, and can be cut or fall silent.
type line struct {
	to       string
	listener net.Listener
	copies   sync.WaitGroup

	mu     sync.Mutex
	silent sync.Cond
	hangs  bool
	conns  map[net.Conn]bool
}

func openLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{to: to, listener: listener, conns: map[net.Conn]bool{}}
	l.silent.L = &l.mu
	l.copies.Go(l.accept)
	return l
}

func (l *line) address() string { return l.listener.Addr().String() }

func (l *line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{}).Dial("tcp", l.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.conns[near], l.conns[far] = true, true
		l.mu.Unlock()
		l.copies.Go(func() { l.carry(near, far) })
		l.copies.Go(func() { l.carry(far, near) })
	}
}

// carry copies from one end to the other, and holds back what comes while the line is silent.
func (l *line) carry(from, to net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		for l.hangs {
			l.silent.Wait()
		}
		l.mu.Unlock()
		if n > 0 {
			_, _ = to.Write(buffer[:n]) // the next read shows that it is closed
		}
		if err != nil {
			_, _ = from.Close(), to.Close()
			l.mu.Lock()
			delete(l.conns, from)
			delete(l.conns, to)
			l.mu.Unlock()
			return
		}
	}
}

// hang has nothing pass, not even an end, until it is called again.
func (l *line) hang(hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangs = hangs
	l.silent.Broadcast()
}

// cut ends all connections.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close()
	}
}

func (l *line) close() {
	_ = l.listener.Close()
	l.hang(false)
	l.cut()
	l.copies.Wait()
}
