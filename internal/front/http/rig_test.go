package http

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

// A rig is a server on a real port.
type rig struct {
	*Server
	gate    *gate.Gate
	address string
}

// newRig starts a server that ends, and leaves nothing behind, with the test.
func newRig(t *testing.T, config Config) *rig {
	t.Helper()
	return newRigOn(t, config, memory.New(memory.Config{}))
}

// newRigOn is newRig with a store of the test's.
func newRigOn(t *testing.T, config Config, store gate.Store) *rig {
	t.Helper()
	// The HTTP library keeps one goroutine that updates the date.
	known := goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, known, before) })
	r := &rig{gate: gate.New(store, gate.Config{})}
	switch late := config.Gate.(type) {
	case *fakeGrants:
		late.Gate = r.gate
	case *lateGate:
		late.Gate = r.gate
	default:
		config.Gate = r.gate
	}
	config.Log = slog.New(slog.DiscardHandler)
	var err error
	if r.Server, err = New(config); err != nil {
		t.Fatal(err)
	}
	r.address = r.serve(t, func(listener net.Listener) net.Listener { return listener })
	return r
}

// serve serves a listener of this machine, as something else where that is wanted.
func (r *rig) serve(t *testing.T, as func(net.Listener) net.Listener) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(as(listener)) }()
	t.Cleanup(func() {
		r.Stopping()
		r.gate.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return listener.Addr().String()
}

// A client is a raw connection.
type client struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (r *rig) dial(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, t, bufio.NewReader(conn)}
}

// send writes requests, without waiting for an answer.
func (c *client) send(paths ...string) {
	c.t.Helper()
	text := ""
	for _, path := range paths {
		text += fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	}
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// want reads one answer. It returns its headers.
func (c *client) want(status int, body string) http.Header {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		c.t.Fatalf("no answer: %v, want %d", err, status)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || string(got) != body {
		c.t.Fatalf("answer %d %q, %v, want %d %q", resp.StatusCode, got, err, status, body)
	}
	return resp.Header
}

// waiting waits until so many are in line.
func (r *rig) waiting(t *testing.T, n int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d wait", n), func() bool { return r.gate.Waiting() == n })
}

// A server that is shut down ends, however little it had begun.
func TestShutdownAtTheBeginning(t *testing.T) {
	for range 200 {
		server, err := New(Config{
			Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Fatalf("Shutdown: %v", err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Fatalf("Serve: %v", err)
			}
		case <-time.After(await.Patience):
			t.Fatal("Serve goes on after Shutdown")
		}
	}
}

func TestWaitAndGoOn(t *testing.T) {
	r := newRig(t, Config{})
	c, other := r.dial(t), r.dial(t)
	for i := range 20 {
		event := fmt.Sprintf("/event/e%d", i)
		c.send(event + "/wait")
		r.waiting(t, 1)
		other.send(event + "/send?message=" + event)
		other.want(204, "")
		c.want(200, event)
		c.send("/counter/c/count") // the same connection goes on
		c.want(200, fmt.Sprint(i+1))
	}
}

// Requests that are sent behind one that waits are answered after it, in order.
func TestPipelineBehindAWaiter(t *testing.T) {
	r := newRig(t, Config{})
	c, other := r.dial(t), r.dial(t)
	c.send("/counter/c/count", "/event/e/wait", "/counter/c/count", "/event/f/wait", "/counter/c/count")
	c.want(200, "1")
	r.waiting(t, 1)
	other.send("/counter/c/value", "/event/e/send?message=e")
	other.want(200, "1")
	other.want(204, "")
	c.want(200, "e")
	c.want(200, "2")
	r.waiting(t, 1)
	other.send("/event/f/send?message=f")
	other.want(204, "")
	c.want(200, "f")
	c.want(200, "3")
}

// A request that comes in pieces while the one before it waits is not lost.
func TestPiecesBehindAWaiter(t *testing.T) {
	r := newRig(t, Config{})
	c, other := r.dial(t), r.dial(t)
	c.send("/event/e/wait")
	r.waiting(t, 1)
	for _, piece := range []string{"GET /coun", "ter/c/count HTTP/1.1\r\nHo"} {
		if _, err := io.WriteString(c.Conn, piece); err != nil {
			t.Fatal(err)
		}
	}
	other.send("/event/e/send?message=e")
	other.want(204, "")
	c.want(200, "e")
	if _, err := io.WriteString(c.Conn, "st: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.want(200, "1")
}

// A client that hangs up while it waits takes nothing with it, however it does so.
func TestHangUp(t *testing.T) {
	for name, hangUp := range map[string]func(*net.TCPConn) error{
		"close":      (*net.TCPConn).Close,
		"reset":      func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
		"half-close": (*net.TCPConn).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			holder, gone, next := r.dial(t), r.dial(t), r.dial(t)
			holder.send("/semaphore/s/acquire?key=holder")
			holder.want(200, "holder")
			gone.send("/semaphore/s/acquire?key=gone")
			r.waiting(t, 1)
			next.send("/semaphore/s/acquire?key=next")
			r.waiting(t, 2)
			if err := hangUp(gone.Conn.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			r.waiting(t, 1)
			holder.send("/semaphore/s/release?key=holder")
			holder.want(204, "")
			next.want(200, "next")
		})
	}
}

// Hang-ups race with grants: whatever the server could not see ends with the hold's time, and nothing
// lasts longer.
func TestHangUpAtTheInstantOfGrant(t *testing.T) {
	r := newRig(t, Config{})
	holder := r.dial(t)
	for i := range 100 {
		holder.send("/semaphore/s/acquire?key=holder&expires=0&maxwait=10000")
		holder.want(200, "holder")
		gone := r.dial(t)
		gone.send(fmt.Sprintf("/semaphore/s/acquire?key=gone%d&expires=200", i))
		r.waiting(t, 1)
		var wg sync.WaitGroup
		wg.Go(func() { _ = gone.Close() })
		holder.send("/semaphore/s/release?key=holder")
		holder.want(204, "")
		wg.Wait()
	}
}

// Clients that pipeline requests, the last of which waits, and are gone before the answers to the
// first could be sent, leave nobody in line.
func TestHangUpBeforeParking(t *testing.T) {
	r := newRig(t, Config{})
	holder := r.dial(t)
	holder.send("/semaphore/s/acquire?key=holder&expires=0")
	holder.want(200, "holder")
	for i := range 200 {
		c := r.dial(t)
		var paths []string
		for range i % 30 {
			paths = append(paths, "/counter/c/count")
		}
		c.send(append(paths, "/semaphore/s/acquire?expires=0")...)
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	await.True(t, "one connection is open", func() bool { return r.open.Load() == 1 })
	r.waiting(t, 0)
	holder.send("/semaphore/s/release?key=holder", "/semaphore/s/acquire?key=next&maxwait=0")
	holder.want(204, "")
	holder.want(200, "next")
}

func TestIdleAfterAWaitIsClosed(t *testing.T) {
	r := newRig(t, Config{IdleTimeout: 50 * time.Millisecond})
	c := r.dial(t)
	c.send("/event/e/wait?maxwait=10")
	c.want(408, "event/e: wait not granted within maxwait=10 ms; only another request can change that")
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: read %d bytes, %v, want it closed", n, err)
	}
}

// A client that does not read its answers holds nobody up, and is cut.
func TestClientThatDoesNotRead(t *testing.T) {
	r := newRig(t, Config{WriteTimeout: 300 * time.Millisecond})
	stuck, other := r.dial(t), r.dial(t)
	message := strings.Repeat("x", 4000)
	other.send("/event/long/send?message=" + message)
	other.want(204, "")
	go func() {
		for range 10_000 { // far more than the buffers hold
			_, err := io.WriteString(stuck.Conn, "GET /event/long/wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if err != nil {
				return
			}
		}
	}()
	for i := range 50 {
		other.send("/counter/c/count")
		other.want(200, fmt.Sprint(i+1))
	}
	await.True(t, "the client that does not read is cut", func() bool { return r.open.Load() == 1 })
}

// Those who wait at the end get an answer, and their connections are closed behind it.
func TestShutdownAnswersWaiters(t *testing.T) {
	r := newRig(t, Config{})
	var waiters []*client
	for range 20 {
		c := r.dial(t)
		c.send("/event/e/wait")
		waiters = append(waiters, c)
	}
	idle := r.dial(t)
	idle.send("/event/e/wait?maxwait=1")
	idle.want(408, "event/e: wait not granted within maxwait=1 ms; only another request can change that")
	r.waiting(t, 20)
	r.Stopping()
	r.gate.Close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range waiters {
		c.want(503, "event/e: the server is stopping")
		if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last answer: %v, want the end", err)
		}
	}
	if _, err := idle.reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v, want the end", err)
	}
}

// One that waits counts as an open connection; what is beyond the limit is told so.
func TestTooManyConnections(t *testing.T) {
	r := newRig(t, Config{Conns: 2})
	waiter, second := r.dial(t), r.dial(t)
	waiter.send("/event/e/wait")
	r.waiting(t, 1)
	second.send("/counter/c/count")
	second.want(200, "1")
	third := r.dial(t)
	third.want(503, "server has as many connections as it allows; try again soon")
	_ = waiter.Close()
	r.waiting(t, 0)
	await.True(t, "two connections are open", func() bool { return r.open.Load() <= 2 })
	_ = third.Close()
	await.True(t, "one connection is open", func() bool { return r.open.Load() <= 1 })
	fourth := r.dial(t)
	fourth.send("/counter/c/count")
	fourth.want(200, "2")
}

func TestPages(t *testing.T) {
	r := newRig(t, Config{})
	c := r.dial(t)
	c.send("/healthz", "/readyz", "/.well-known/ready")
	c.want(200, "ok\n")
	c.want(200, "ready\n")
	c.want(200, "I'm ready!\n")
	if _, err := r.gate.Do(t.Context(), gatehouse.Key{Kind: gatehouse.Counter, Name: "c"},
		gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}); err != nil {
		t.Fatal(err)
	}
	c.send("/counter")
	c.want(200, `{"kind":"counter","names":["c"],"next":""}`)
}
