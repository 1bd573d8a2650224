package jarl_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// send sends so many bytes.
func send(conn *net.TCPConn, bytes int) error {
	_, err := conn.Write(make([]byte, bytes))
	return err
}

// reset closes a connection so that the other side gets an error.
func reset(conn *net.TCPConn) error { return errors.Join(conn.SetLinger(0), conn.Close()) }

// What a client sends, and what it leaves unsent, makes no difference to its answer.
func TestInput(t *testing.T) {
	for name, begin := range map[string]func(*net.TCPConn) error{
		"a little":      func(c *net.TCPConn) error { return send(c, 9) },
		"much":          func(c *net.TCPConn) error { return send(c, 60<<10) },
		"only an end":   (*net.TCPConn).CloseWrite,
		"bytes, an end": func(c *net.TCPConn) error { return errors.Join(send(c, 999), c.CloseWrite()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, 1, "reserve")
			conn := l.dial(t)
			if err := begin(conn); err != nil {
				t.Fatal(err)
			}
			if got := rest(t, conn); got != "0.0" {
				t.Errorf("the answer = %q, want 0.0", got)
			}
		})
	}
}

// A connection is a request as soon as it is there, whether its client stays for the answer or not.
func TestClientsThatDoNotRead(t *testing.T) {
	l := listen(t, 3, "reserve")
	for _, leave := range []func(*net.TCPConn) error{
		(*net.TCPConn).Close,
		reset,
		func(*net.TCPConn) error { return nil },
	} {
		if err := leave(l.dial(t)); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "three connections took their places", func() bool { return l.taken(t) >= 3 })
	if got := l.ask(t); got != "1.000" {
		t.Errorf("the next client was told %q, want 1.000", got)
	}
}

// Connections that stay open, send without end or come by the thousand keep nobody waiting.
func TestCrowdOfRudeClients(t *testing.T) {
	l := listen(t, 1_000_000, "reserve")
	ctx, stop := context.WithCancel(t.Context())
	var rude sync.WaitGroup
	var came atomic.Int64
	for i := range 8 {
		rude.Go(func() {
			for ctx.Err() == nil {
				l.annoy(ctx, i)
				came.Add(1)
			}
		})
	}
	longest := time.Duration(0)
	for count := 0; came.Load() < 4000 || count < 200; count++ {
		began := time.Now()
		if got := l.ask(t); got != "0.0" {
			t.Fatalf("an answer = %q, want 0.0", got)
		}
		longest = max(longest, time.Since(began))
	}
	stop()
	rude.Wait()
	if longest > 5*time.Second {
		t.Errorf("a polite client waited %s for its answer, want no time", longest)
	}
}

// annoy is a connection of one of several rude clients.
func (l *listener) annoy(ctx context.Context, manner int) {
	conn, err := l.connect(ctx)
	if err != nil {
		return
	}
	switch manner % 4 {
	case 0: // stays as long as it is let
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		return
	case 1:
		_ = send(conn, 100<<10)
	case 2:
		_ = reset(conn)
	case 3:
		_ = conn.CloseWrite()
	}
	_ = conn.Close()
}

// Who sends without end is cut.
func TestEndlessInput(t *testing.T) {
	l := listen(t, 1, "reserve")
	conn := l.dial(t)
	if err := babble(conn); err != nil {
		t.Error("somebody who sends without end was not cut")
	}
}

// Clients that hold on to their connection do not hold up the end.
func TestShutdownWithHolders(t *testing.T) {
	l := listen(t, 1, "reserve")
	var held []net.Conn
	for range 100 {
		conn := l.dial(t)
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown with %d held = %v, want nil", len(held), err)
	}
	if _, err := l.request(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a request after the end = %v, want that nobody listens", err)
	}
}
