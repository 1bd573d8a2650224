package http

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
)

// Where the rest of an answer cannot be written, no other follows it.
func TestLargeAnswerBehindABrokenOne(t *testing.T) {
	r := newRig(t, Config{})
	c := r.dial(t)
	c.send("/counter/c/count?amount=0")
	c.want(200, "0")
	sent := make(chan bool)
	r.conns.forEach(func(one *httpConn) {
		one.addTask(func() {
			one.fail()
			ctx := one.loop.beginRequest(one)
			ctx.Response.SetBodyString(strings.Repeat("large", flushSize))
			one.finishRequest(ctx)
			sent <- one.sending
		})
	})
	if <-sent {
		t.Error("a large answer is sent where an answer before it was broken off")
	}
}

// An answer that is being sent keeps its bytes of the budget, whatever is queued behind it.
func TestChargedAnswerBehindOneThatIsSent(t *testing.T) {
	shared := budget.New(0)
	r := newRig(t, Config{Budget: shared})
	c := r.dial(t)
	c.send("/counter/c/count?amount=0")
	c.want(200, "0")
	used := make(chan int64)
	r.conns.forEach(func(one *httpConn) {
		one.addTask(func() {
			fillSocket(one)
			for _, bytes := range []int{5000, 7000} {
				shared.Take(bytes)
				one.noteCharged(bytes)
				one.loop.appendAnswer(one, writeContinue)
				one.loop.flushAnswers()
			}
			used <- shared.Used()
		})
	})
	if got := <-used; got != 5000+7000 {
		t.Errorf("%d bytes of the budget are taken, want those of both answers", got)
	}
	_ = c.Close()
	await.True(t, "it has all of it back", func() bool { return shared.Used() == 0 })
}

// A client gets the last answer of its connection, also if that waits for another to be sent when the client
// ends what it sends.
func TestLastAnswerBehindOneThatIsSent(t *testing.T) {
	letGo := make(chan struct{})
	r := newRig(t, Config{Routes: heldGuest(letGo, []byte("the end"))})
	c := r.dial(t)
	const request = "GET /held HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	r.onLoops(t, "a goroutine has the request", func(c *httpConn) bool { return c.busy })
	sending := make(chan struct{})
	var served *httpConn
	r.conns.forEach(func(one *httpConn) {
		served = one
		one.addTask(func() {
			fillSocket(one)
			one.write([]byte("what is sent"))
			close(sending)
		})
	})
	<-sending
	close(letGo)
	r.onLoops(t, "its answer is queued", func(c *httpConn) bool { return c.closing && len(c.queue) > 0 })
	before := served.connection()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the loop knows of the end", func() bool {
		return served.connection() != before || r.open.Load() == 0
	})
	text, err := io.ReadAll(c)
	if !bytes.HasSuffix(text, []byte("the end")) {
		t.Errorf("%d bytes, %v, do not end with the last answer", len(text), err)
	}
}

// A client that has sent more than there is room for is answered what is being worked on.
func TestAnswerOfOneThatSendsTooMuch(t *testing.T) {
	letGo := make(chan struct{})
	r := newRig(t, Config{Routes: heldGuest(letGo, []byte("done")), Budget: budget.New(2 * budget.Tiny)})
	c := r.dial(t)
	c.send(slices.Insert(slices.Repeat([]string{"/counter/c/value"}, 200), 1, "/held")...)
	c.want(200, "0")
	close(letGo)
	c.want(200, "done")
}

// What a client leaves unread counts to the budget, also where it is many small answers or a page that all
// share. One for which there is no room is cut.
func TestUnreadAnswersCount(t *testing.T) {
	const size = 100 << 10
	small := func(c *httpConn) { c.write(make([]byte, size)) }
	page := func(c *httpConn) {
		ctx := c.loop.beginRequest(c)
		ctx.Response.SetBodyRaw(make([]byte, size))
		c.finishRequest(ctx)
	}
	for name, test := range map[string]struct {
		write func(*httpConn)
		tls   bool
		most  int64
	}{
		"small answers": {small, false, 1 << 20}, "a page with TLS": {page, true, 1 << 20},
		"no room": {small, false, size}, "no room with TLS": {page, true, size},
	} {
		t.Run(name, func(t *testing.T) {
			shared := budget.New(test.most)
			var r *rig
			var c *client
			if test.tls {
				secure := newTLSRig(t, Config{Budget: shared})
				r, c = secure.rig, secure.dialTLS(t, 0)
			} else {
				r = newRig(t, Config{Budget: shared})
				c = r.dial(t)
			}
			c.send("/counter/c/count?amount=0")
			c.want(200, "0")
			counts := make(chan bool)
			r.conns.forEach(func(c *httpConn) {
				c.addTask(func() {
					fillSocket(c)
					test.write(c)
					used := shared.Used()
					counts <- c.sending && used >= size || c.broken && used == 0 && test.most == size
				})
			})
			if !<-counts {
				t.Errorf("%d bytes of the budget are taken, want %d, which are not read", shared.Used(), size)
			}
			_ = c.Close()
			await.True(t, "it has all of it back", func() bool { return shared.Used() == 0 })
		})
	}
}

// fillSocket writes until the system takes no more.
func fillSocket(c *httpConn) {
	for n := 1; n > 0; {
		n, _ = eventloop.WriteNow(c.Conn, make([]byte, 64<<10))
	}
}

// What comes behind the end of a client's TLS is not kept, however long its answer takes.
func TestBytesBehindTheEndOfTLS(t *testing.T) {
	letGo := make(chan struct{})
	release := sync.OnceFunc(func() { close(letGo) })
	defer release()
	r := newTLSRig(t, Config{Routes: heldGuest(letGo, []byte("done"))})
	c := r.dialTLS(t, 0)
	c.send("/held")
	r.onLoops(t, "a goroutine has the request", func(c *httpConn) bool { return c.busy })
	if err := c.tls().CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r.onLoops(t, "the end has come", func(c *httpConn) bool { return c.ended })
	_ = c.tcp().SetWriteDeadline(time.Time{}) // CloseWrite has set it, so that nothing follows by mistake
	if _, err := c.tcp().Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	// All of it is read by the loop, which hears of it before it does this.
	r.onLoops(t, "it was read", func(c *httpConn) bool { return peer.UnreadBytes(int32(c.Fd())) == 0 })
	kept := make(chan int)
	r.conns.forEach(func(c *httpConn) { c.addTask(func() { kept <- c.InboundBuffered() }) })
	if n := <-kept; n != 0 {
		t.Errorf("%d bytes are kept, want none", n)
	}
	release()
	c.want(200, "done")
}
