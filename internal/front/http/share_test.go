package http

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
)

// onLoops waits until the loop of some connection finds that holds.
func (r *rig) onLoops(t *testing.T, what string, holds func(*httpConn) bool) {
	t.Helper()
	found := new(atomic.Bool)
	await.True(t, what, func() bool {
		r.conns.forEach(func(c *httpConn) {
			c.addTask(func() {
				if holds(c) {
					found.Store(true)
				}
			})
		})
		return found.Load()
	})
}

// heldGuest is a route that answers with a body when it is let go.
func heldGuest(letGo chan struct{}, body []byte) map[string]func(*fasthttp.RequestCtx, string) error {
	return map[string]func(*fasthttp.RequestCtx, string) error{
		"GET /held": func(ctx *fasthttp.RequestCtx, _ string) error {
			<-letGo
			ctx.SetBody(body)
			return nil
		},
	}
}

// A client that has sent thousands of requests, which are kept while the first takes long, does not hold up
// the others of its loop for longer than a few reads.
func TestManyKeptRequestsLeaveTurns(t *testing.T) {
	letGo := make(chan struct{})
	r := newRig(t, Config{Routes: heldGuest(letGo, nil)})
	others := make([]*client, 4*runtime.GOMAXPROCS(0))
	var loop atomic.Pointer[eventLoop] // of the client with many
	var served, before atomic.Int64
	handle := r.handle
	r.handle = func(ctx *fasthttp.RequestCtx, mayBlock bool) bool {
		path := string(ctx.Path())
		switch of := connectionOf(ctx).loop; {
		case path == "/counter/many/value" && loop.CompareAndSwap(nil, of):
			for _, other := range others {
				other.send("/counter/other/value")
			}
		case path == "/counter/many/value":
			served.Add(1)
		// One of its own loop, and the first.
		case path == "/counter/other/value" && of == loop.Load():
			before.CompareAndSwap(0, max(served.Load(), 1))
		}
		return handle(ctx, mayBlock)
	}
	r.conns.forEach(func(*httpConn) {}) // its lock passes the handler on to the loops
	for i := range others {
		others[i] = r.dial(t)
		others[i].send("/counter/warm/value")
		others[i].want(200, "0")
	}
	many := r.dial(t)
	many.send("/held")
	const count = 4000
	one := "GET /counter/many/value HTTP/1.1\r\nHost: localhost\r\n" +
		"X: " + strings.Repeat("x", 450) + "\r\n\r\n"
	if _, err := io.WriteString(many, strings.Repeat(one, count)); err != nil {
		t.Fatal(err)
	}
	r.onLoops(t, "all is kept", func(c *httpConn) bool { return len(c.input) == count*len(one) })
	close(letGo)
	many.want(200, "")
	for range count {
		many.want(200, "0")
	}
	for _, other := range others {
		other.want(200, "0")
	}
	if got, most := before.Load(), int64(8*maxTurn/len(one)); got == 0 || got > most {
		t.Errorf("%d requests of one client were answered before another's, want at most %d", got, most)
	}
}

// A client that reads an answer slowly while the server stops gets the whole of it, and its connection ends
// with it.
func TestShutdownWhileAnAnswerIsSent(t *testing.T) {
	letGo := make(chan struct{})
	close(letGo)
	body := bytes.Repeat([]byte("x"), 32<<20)
	r := newRig(t, Config{Routes: heldGuest(letGo, body)})
	c := r.dial(t)
	c.send("/held")
	r.onLoops(t, "the answer is being sent", func(c *httpConn) bool { return c.sending })
	// As Shutdown does.
	r.Stopping()
	r.closeListeners()
	looked := make(chan struct{})
	r.conns.forEach(func(c *httpConn) {
		c.addTask(c.cutIdle)
		c.addTask(func() { close(looked) })
	})
	<-looked
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasSuffix(answer, body) {
		t.Errorf("%d bytes, %v, want the answer of %d, and then the end", len(answer), err, len(body))
	}
}

// A client is told that nothing follows an answer for which the system has hardly room, too. It cannot know
// otherwise that it has all.
func TestTLSEndsWithoutRoom(t *testing.T) {
	r := newTLSRig(t, Config{})
	c := r.dialTLS(t, tls.VersionTLS12) // whose alerts are to be seen
	c.send("/counter/c/value")
	c.want(200, "0")
	r.conns.forEach(func(c *httpConn) {
		c.addTask(func() {
			answer := bytes.Repeat([]byte("x"), 16<<10)
			for n := len(answer); n == len(answer); {
				n, _ = eventloop.WriteNow(c.Conn, answer)
			}
			c.closing = true
		})
	})
	read, err := io.ReadAll(c.tcp())
	const alert = 21
	if end := bytes.TrimLeft(read, "x"); err != nil || len(end) == 0 || end[0] != alert {
		t.Errorf("%d bytes, %v, end with %v, want an alert", len(read), err, end)
	}
}

// Serve that comes behind Shutdown is no failure, also if the process has closed the listener by then.
func TestServeBehindShutdown(t *testing.T) {
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
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := server.Serve(listener); err != nil {
		t.Error(err)
	}
}
