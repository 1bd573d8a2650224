package peer

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
)

// Localhost is both of its addresses, at one port.
func TestListenAtLocalhost(t *testing.T) {
	listener, err := Listen(t.Context(), net.ListenConfig{}, "LocalHost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	want := []string{"127.0.0.1"}
	if hasAddress(t.Context(), loopback6) {
		want = append(want, "::1")
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if got := len(Addrs(listener)); got != len(want) {
		t.Errorf("localhost is %d addresses, want %v", got, want)
	}
	for _, host := range want {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "hello" {
			t.Errorf("%s says %q, %v, want hello", host, got, err)
		}
		_ = conn.Close()
		if _, err := Listen(t.Context(), net.ListenConfig{}, net.JoinHostPort(host, port)); err == nil {
			t.Errorf("another can listen at %s port %s, want it taken", host, port)
		}
	}
	if err := listener.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	<-served
	again, err := Listen(t.Context(), net.ListenConfig{}, net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatalf("listening again: %v", err)
	}
	_ = again.Close()
}

// A port that is taken in one family is not half taken.
func TestListenAtHalfALocalhost(t *testing.T) {
	for _, host := range []string{loopback4, loopback6} {
		if !hasAddress(t.Context(), host) {
			continue // there is one family, which the test above has
		}
		taken, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(taken.Addr().String())
		if _, err := Listen(t.Context(), net.ListenConfig{}, "localhost:"+port); err == nil {
			t.Errorf("localhost can be had though %s has port %s", host, port)
		}
		_ = taken.Close()
	}
}

// An address has as many connections as it may, and others have theirs.
func TestAddresses(t *testing.T) {
	address := netip.MustParseAddr
	a := &Addresses{Most: 2}
	for i, c := range []struct {
		from string
		ok   bool
	}{
		{"10.0.0.1", true}, {"10.0.0.1", true}, {"10.0.0.1", false}, {"::ffff:10.0.0.1", false},
		{"10.0.0.2", true}, {"2001:db8::1", true}, {"2001:db8::2", true}, {"2001:db8::ffff:3", false},
		{"2001:db8:0:1::1", true}, {"::1", true}, {"127.0.0.1", true},
	} {
		if ok := a.Enter(address(c.from)); ok != c.ok {
			t.Errorf("%d. connection, from %s: %t, want %t", i+1, c.from, ok, c.ok)
		}
	}
	a.Leave(address("10.0.0.1"))
	if !a.Enter(address("10.0.0.1")) || a.Enter(address("10.0.0.1")) {
		t.Error("after one has left there is not room for exactly one")
	}
	for range 2 {
		a.Leave(address("10.0.0.1"))
		a.Leave(address("2001:db8::5"))
	}
	if len(a.open) != 4 {
		t.Errorf("%d addresses are kept, want the 4 with connections: %v", len(a.open), a.open)
	}
	if !a.Enter(netip.Addr{}) || !new(Addresses).Enter(address("10.0.0.1")) {
		t.Error("what is not to be counted is refused")
	}
}
