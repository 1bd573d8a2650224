package http

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
)

// endSending has a client end what it sends, with TLS as without, or break off altogether.
var endSending = map[string]func(*testing.T, *client){
	"ends what it sends": func(t *testing.T, c *client) {
		t.Helper()
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	},
	"closes": func(_ *testing.T, c *client) { _ = c.Close() },
	"resets": func(_ *testing.T, c *client) {
		conn := c.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	},
}

// eachTransport calls a test without TLS and with it.
func eachTransport(t *testing.T, test func(t *testing.T, s *farStore, dial func() *client)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) {
		s := newFar()
		r := newRigOn(t, Config{}, s)
		defer s.letGo()
		test(t, s, func() *client { return r.dial(t) })
	})
	t.Run("TLS", func(t *testing.T) {
		s := newFar()
		r := newTLSRigOn(t, Config{}, s)
		defer s.letGo()
		test(t, s, func() *client { return r.dialTLS(t, 0) })
	})
}

// What has arrived is done, however its client leaves while the store works on the first of it.
func TestRequestsOfAClientThatLeaves(t *testing.T) {
	for how, leave := range endSending {
		t.Run(how, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, s *farStore, dial func() *client) {
				t.Helper()
				const holds = 20
				gone, other := dial(), dial()
				paths := []string{"/counter/held/count"}
				for i := range holds {
					other.send(fmt.Sprintf("/semaphore/s/acquire?size=20&expires=0&key=k%d", i))
					other.want(200, fmt.Sprintf("k%d", i))
					paths = append(paths, fmt.Sprintf("/semaphore/s/release?key=k%d", i))
				}
				gone.send(paths...)
				s.inHand(t, 1)
				leave(t, gone)
				s.letGo()
				for i := range holds {
					other.send(fmt.Sprintf("/semaphore/s/acquire?size=20&key=next%d&maxwait=20000", i))
					other.want(200, fmt.Sprintf("next%d", i))
				}
			})
		})
	}
}

// A client that ends what it sends is answered all that it had sent: what a store decides, and pages.
func TestAnswersForAClientThatEndsSending(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *farStore, dial func() *client) {
		t.Helper()
		c := dial()
		c.send("/counter/held/count", "/counter/held/count", "/", "/v1/cycles", "/counter/free/count", "/ha")
		s.inHand(t, 1)
		endSending["ends what it sends"](t, c)
		s.letGo()
		c.want(200, "1")
		c.want(200, "2")
		resp, err := http.ReadResponse(c.reader, nil)
		if err != nil || resp.StatusCode != http.StatusFound {
			t.Fatalf("%v, %v, want 302", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		c.want(200, `{"cycles":[]}`)
		c.want(200, "1")
	})
}

// connOf returns the connection of a client.
func (r *rig) connOf(t *testing.T, c *client) (conn *httpConn) {
	t.Helper()
	await.True(t, "the connection is there", func() bool {
		r.conns.forEach(func(one *httpConn) {
			if one.RemoteAddr().String() == c.LocalAddr().String() {
				conn = one
			}
		})
		return conn != nil
	})
	return conn
}

// do has a command done, and not by a client.
func (r *rig) do(t *testing.T, kind gatehouse.Kind, name string, op gatehouse.Op) gatehouse.Decision {
	t.Helper()
	d, err := r.gate.Do(t.Context(), gatehouse.Key{Kind: kind, Name: name}, gatehouse.Command{Op: op})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A client may send more than the loop reads in one go, and be gone before the first answer is written.
func TestMuchOfAClientThatResets(t *testing.T) {
	const count = 700
	paths := slices.Repeat([]string{"/counter/c/count"}, count)
	test := func(t *testing.T, r *rig, c *client) {
		t.Helper()
		begun, held := make(chan struct{}), make(chan struct{})
		r.connOf(t, c).addTask(func() { close(begun); <-held })
		<-begun
		c.send(paths...)
		endSending["resets"](t, c)
		close(held)
		await.True(t, "the connection is closed", func() bool { return r.open.Load() == 0 })
		if d := r.do(t, gatehouse.Counter, "c", gatehouse.OpValue); d.Value != count {
			t.Errorf("%d requests are done, want %d", d.Value, count)
		}
	}
	t.Run("plain", func(t *testing.T) {
		r := newRig(t, Config{})
		test(t, r, r.dial(t))
	})
	t.Run("TLS", func(t *testing.T) {
		r := newTLSRigOn(t, Config{}, memory.New(memory.Config{}))
		test(t, r.rig, r.dialTLS(t, 0))
	})
}

// A client may end what it sends between a decision and its answer. What came behind is done and answered.
func TestRequestsBehindOneThatIsDecided(t *testing.T) {
	r := newRig(t, Config{})
	blocked, free := make(chan struct{}), make(chan struct{})
	handle := r.handle
	r.handle = func(ctx *fasthttp.RequestCtx, mayBlock bool) bool {
		if string(ctx.Path()) == "/block" {
			close(blocked)
			<-free
		}
		return handle(ctx, mayBlock)
	}
	r.conns.forEach(func(*httpConn) {}) // whose lock the loops take for each connection that comes
	c := r.dial(t)
	c.send("/event/e/wait", "/counter/c/count")
	r.waiting(t, 1)
	conn := r.connOf(t, c)
	// The loop is held by another of its connections, so that it learns of both in one turn.
	beside := r.dial(t)
	for r.connOf(t, beside).loop != conn.loop {
		beside = r.dial(t)
	}
	beside.send("/block")
	<-blocked
	r.do(t, gatehouse.Event, "e", gatehouse.OpSend)
	await.True(t, "its answer is the loop's task", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.tasks) == 1
	})
	endSending["ends what it sends"](t, c)
	close(free)
	c.want(200, "")
	c.want(200, "1")
}

// muchBytes is more than the system takes of an answer.
const muchBytes = 16 << 20

// muchRoute is a route with an answer of that size.
func muchRoute() map[string]func(*fasthttp.RequestCtx, string) error {
	body := make([]byte, muchBytes)
	return map[string]func(*fasthttp.RequestCtx, string) error{
		"GET /much": func(ctx *fasthttp.RequestCtx, _ string) error {
			ctx.SetBody(body)
			return nil
		},
	}
}

// A client that ends what it sends while it reads its last answer counts as long as that is sent, and the end
// of the server waits for it.
func TestLastAnswerOfAClientThatEndsSending(t *testing.T) {
	r := newRig(t, Config{Routes: muchRoute()})
	c := r.dial(t)
	conn := r.connOf(t, c)
	_, _ = io.WriteString(c, "GET /much HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	endSending["ends what it sends"](t, c)
	await.True(t, "the loop has closed the connection", func() bool {
		_, is := conn.connection().(*eventloop.HalfClosed)
		return is
	})
	if open := r.open.Load(); open != 1 {
		t.Errorf("%d connections are open, want 1", open)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || n != muchBytes {
		t.Errorf("the answer has %d bytes, %v, want %d", n, err, muchBytes)
	}
	await.True(t, "the connection is closed", func() bool { return r.open.Load() == 0 })
}

// Behind an answer that a client has not taken in time nothing is sent any more, also if the client reads on.
func TestNothingBehindAnAnswerBrokenOff(t *testing.T) {
	r := newRig(t, Config{Routes: muchRoute(), WriteTimeout: 100 * time.Millisecond})
	c := r.dial(t)
	conn := r.connOf(t, c)
	c.send(slices.Repeat([]string{"/much"}, 20)...)
	endSending["ends what it sends"](t, c)
	await.True(t, "an answer is broken off", func() bool {
		broken := make(chan bool, 1)
		return !conn.addTask(func() { broken <- conn.broken }) || <-broken
	})
	text, err := io.ReadAll(c.reader)
	if answers := bytes.Count(text, []byte("HTTP/1.1 ")); err != nil || answers != 1 {
		t.Errorf("%d answers begin in %d bytes, %v, want 1", answers, len(text), err)
	}
}
