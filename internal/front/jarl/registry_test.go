package jarl

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// pair is a connection and its client.
func pair(t *testing.T) (c *connection, client net.Conn) {
	t.Helper()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), conn.Close() })
	return &connection{TCPConn: conn.(*net.TCPConn)}, client
}

// open reports whether the server's side of a connection still is, after a while.
func open(t *testing.T, client net.Conn, after time.Duration) bool {
	t.Helper()
	_ = client.SetReadDeadline(time.Now().Add(after))
	_, err := client.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("reading = %v, want the end or nothing yet", err)
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func newLot(most int) *connRegistry {
	return &connRegistry{most: most, waiting: make(map[*connection]struct{})}
}

// One too many takes the place of the one that was there longest.
func TestLotIsFull(t *testing.T) {
	l := newLot(3)
	var clients []net.Conn
	for range 5 {
		c, client := pair(t)
		if !l.addDrained(c) {
			t.Fatal("enter = false, want true before the end")
		}
		clients = append(clients, client)
	}
	for i, client := range clients {
		if got, want := open(t, client, time.Millisecond), i >= 2; got != want {
			t.Errorf("with room for three, connection %d of five is open: %t, want %t", i+1, got, want)
		}
	}
	l.makeRoom()
	for i, client := range clients {
		if open(t, client, 5*time.Second) {
			t.Errorf("after makeRoom connection %d is open", i+1)
		}
	}
	if left := l.drained.Len(); left != 0 {
		t.Errorf("after makeRoom %d are left, want none", left)
	}
}

// A connection has its time, and is closed then.
func TestLotIsSwept(t *testing.T) {
	l := newLot(3)
	c, client := pair(t)
	began := time.Now()
	l.addDrained(c)
	if !open(t, client, linger/2) {
		t.Error("a connection was closed before its time")
	}
	if open(t, client, 20*time.Second) {
		t.Error("a connection is open long after its time")
	}
	if took := time.Since(began); took < linger {
		t.Errorf("a connection was closed after %s, want at least %s", took, linger)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweeping {
		t.Error("the timer runs with nobody there")
	}
}

// Those who leave by themselves leave the others in order.
func TestLotOrder(t *testing.T) {
	l := newLot(3)
	var all [4]*connection
	for i := range all {
		all[i], _ = pair(t)
	}
	l.addDrained(all[0])
	l.addDrained(all[1])
	l.addDrained(all[2])
	l.removeDrained(all[1])
	l.removeDrained(all[1]) // twice does no harm
	l.addDrained(all[3])
	var left []*connection
	for e := l.drained.Front(); e != nil; e = e.Next() {
		left = append(left, e.Value.(*connection))
	}
	if !slices.Equal(left, []*connection{all[0], all[2], all[3]}) {
		t.Error("the first, the third and the fourth are not left in this order")
	}
	l.closeAllConns()
	if l.addDrained(all[1]) || l.addWaiting(all[1]) {
		t.Error("somebody got in after the end")
	}
}
