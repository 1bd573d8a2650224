package resp

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A poorListener has no file descriptor for every other connection, at first.
type poorListener struct {
	net.Listener
	calls atomic.Int64
}

// Accept implements [net.Listener].
func (l *poorListener) Accept() (net.Conn, error) {
	if l.calls.Add(1)%2 == 1 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// A lockedLog is a log that is written by many.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count is how often it says so.
func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// A server that runs out of file descriptors again and again says so once, though others are accepted
// meanwhile.
func TestComplaintsWithoutDescriptors(t *testing.T) {
	log := new(lockedLog)
	s, err := New(Config{
		Gate: gate.New(memory.New(memory.Config{}), gate.Config{}),
		Log:  slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	tcp, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	poor := &poorListener{Listener: tcp}
	d := &door{Server: s, address: tcp.Addr().String(), served: make(chan error, 1)}
	d.gate = gate.New(memory.New(memory.Config{}), gate.Config{})
	go func() { d.served <- s.Serve(poor) }()
	for range 50 {
		d.dial(t).want("PING", "PONG")
	}
	d.shut(t)
	if n := log.count("accepting a connection failed"); n < 1 || n > 5 {
		t.Errorf("%d failures to accept are told %d times, want once, or a few on a busy machine",
			poor.calls.Load()/2, n)
	}
}
