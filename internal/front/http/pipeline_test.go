package http

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
)

// longBatch is a batch that a goroutine reads for its length: it acquires a lock, and asks for much else.
func longBatch(lock string) string {
	commands := []string{fmt.Sprintf(`{"op":"acquire","lock":%q,"key":"k"}`, lock)}
	for i := range 600 {
		commands = append(commands, fmt.Sprintf(`{"op":"value","counter":"of-a-long-name-%d"}`, i))
	}
	body := batchOf(commands...)
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", batchPath, len(body), body)
}

// What a goroutine works on has nothing to do with the answers before it, which the loop writes meanwhile:
// neither its hold, nor its bytes of the budget, nor its order.
func TestAnswersBeforeOneThatIsMadeElsewhere(t *testing.T) {
	shared := budget.New(0)
	r := newRig(t, Config{Budget: shared})
	c := r.dial(t)
	count := "GET /counter/c/count?amount=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
	lock := "GET /lock/mine/acquire?key=k HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for i := range 50 {
		if _, err := io.WriteString(c, count+lock+longBatch(fmt.Sprint("l", i))+count); err != nil {
			t.Fatal(err)
		}
		c.want(200, "0")
		c.want(200, "k")
		response, err := http.ReadResponse(c.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answers := strings.Count(string(text), `"outcome"`)
		if err != nil || response.StatusCode != http.StatusOK || answers != 601 {
			t.Fatalf("the batch is answered %d %.200q, %v", response.StatusCode, text, err)
		}
		c.want(200, "0")
	}
	await.True(t, "the budget has all of it back", func() bool { return shared.Used() == 0 })
}

// What several answers of one connection take of the budget comes back, however they follow each other.
func TestChargedAnswersBehindEachOther(t *testing.T) {
	shared := budget.New(0)
	r := newRig(t, Config{Budget: shared})
	c := r.dial(t)
	c.send("/counter/c/count?amount=0")
	c.want(200, "0")
	done := make(chan struct{})
	r.conns.forEach(func(one *httpConn) {
		one.addTask(func() {
			defer close(done)
			for _, bytes := range []int{5000, 7000} {
				shared.Take(bytes)
				one.noteCharged(bytes)
			}
			one.releaseCharged()
		})
	})
	<-done
	if used := shared.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are taken, want 0", used)
	}
}

// What an answer has is kept until that is written, and not only those before it.
func TestAnswersBeforeOneWithAHold(t *testing.T) {
	shared := budget.New(0)
	r := newRig(t, Config{Budget: shared})
	c := r.dial(t)
	c.send("/counter/c/count?amount=0")
	c.want(200, "0")
	kept := make(chan bool)
	r.conns.forEach(func(one *httpConn) {
		one.addTask(func() {
			one.loop.appendAnswer(one, writeContinue)
			ctx := one.loop.beginRequest(one)
			ctx.Response.SetBodyString(strings.Repeat("large", flushSize))
			shared.Take(5 * flushSize)
			one.granted, one.answerBytes = newWaiter(r.Server), 5*flushSize
			one.finishRequest(ctx)
			kept <- len(one.unsent) == 1 && shared.Used() == 5*flushSize && one.sending
		})
	})
	if !<-kept {
		t.Error("the hold or the bytes of an answer are let go of with the answer before")
	}
	await.True(t, "all of it is written", func() bool { return shared.Used() == 0 })
}

// Half a request has to become a whole one within ReadTimeout, also if it has come right behind another. A
// connection on which nothing has come since may be idle for longer.
func TestHalfARequestBehindAWholeOne(t *testing.T) {
	r := newRig(t, Config{ReadTimeout: 200 * time.Millisecond, IdleTimeout: time.Hour})
	c, idle := r.dial(t), r.dial(t)
	idle.send("/counter/c/count?amount=0")
	idle.want(200, "0")
	request := "GET /counter/c/count?amount=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if _, err := io.WriteString(c, request+request[:20]); err != nil {
		t.Fatal(err)
	}
	c.want(200, "0")
	c.want(408, "request did not arrive within 200ms")
	idle.send("/counter/c/count?amount=0")
	idle.want(200, "0")
}

// A connection is idle behind its last answer, also if that was written before it was known that nothing is
// left.
func TestIdleBehindAnAnswerThatFillsTheRoom(t *testing.T) {
	r := newRig(t, Config{})
	c, message := r.dial(t), strings.Repeat("x", 4000)
	c.send("/event/long/send?message=" + message)
	c.want(204, "")
	request := "GET /event/long/wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
	size := make(chan int)
	r.conns.forEach(func(one *httpConn) {
		one.addTask(func() {
			ctx := one.loop.beginRequest(one)
			_ = one.loop.readHead(ctx, []byte(request))
			r.handle(ctx, false)
			size <- len(ctx.Response.String())
		})
	})
	// The last of them is the one with which the answers are written.
	one := <-size
	count := (flushSize + one - 1) / one
	const begin = 10
	if _, err := io.WriteString(c, request[:begin]); err != nil {
		t.Fatal(err)
	}
	r.onLoops(t, "a part has come", func(c *httpConn) bool { return len(c.input) == begin })
	if _, err := io.WriteString(c, request[begin:]+strings.Repeat(request, count-1)); err != nil {
		t.Fatal(err)
	}
	for range count {
		c.want(200, message)
	}
	doing := make(chan uint32)
	r.conns.forEach(func(c *httpConn) { c.addTask(func() { doing <- c.pace.now() }) })
	if got := <-doing; got != idle {
		t.Errorf("the connection is at activity %d, want %d", got, idle)
	}
}
