package resp

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/store/memory"
)

// An odd listener has connections that cannot be served, as they cannot when the process has no file
// descriptors left for them.
type oddListener struct {
	accepted atomic.Int64
	closed   chan struct{}
}

func (l *oddListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
		l.accepted.Add(1)
		conn, _ := net.Pipe()
		return conn, nil
	}
}

func (l *oddListener) Close() error   { close(l.closed); return nil }
func (l *oddListener) Addr() net.Addr { return new(net.TCPAddr) }

// Connections that cannot be served make the listener pause, and not complain without end.
func TestConnectionsThatCannotBeServed(t *testing.T) {
	d := open(t, Config{})
	odd := &oddListener{closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- d.Serve(odd) }()
	began := time.Now()
	until(t, "it has tried four times", func() bool { return odd.accepted.Load() > 3 })
	if took := time.Since(began); took < (5+10+20)*time.Millisecond {
		t.Errorf("four connections that cannot be served were accepted in %s, want pauses between them", took)
	}
	d.dial(t).want("PING", "PONG")
	d.shut(t)
	if err := <-served; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// Serve that comes behind Shutdown is no failure, also if the process has closed the listener by then.
func TestServeBehindShutdown(t *testing.T) {
	d := newDoor(t, Config{}, memory.New(memory.Config{}))
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := d.Serve(listener); err != nil {
		t.Error(err)
	}
}
