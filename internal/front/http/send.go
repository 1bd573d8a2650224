package http

import (
	"bytes"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/valyala/fasthttp"
)

// sendResponse sends what a handler has answered.
func (c *httpConn) sendResponse(ctx *fasthttp.RequestCtx) {
	resp := &ctx.Response
	resp.SkipBody = ctx.IsHead()
	// HTTP/1.0 ends a connection unless both say that it goes on.
	c.closing = c.closing || ctx.Request.Header.ConnectionClose() || resp.Header.ConnectionClose()
	if c.closing {
		resp.SetConnectionClose()
	} else if !ctx.Request.Header.IsHTTP11() {
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	if body := resp.Body(); len(body) > flushSize && !resp.SkipBody {
		resp.Header.SetContentLength(len(body))
		c.loop.flushAnswers()
		c.sendLarge(ctx, body)
		return
	}
	c.loop.appendAnswer(c, resp.Write)
}

// sendLarge has a goroutine send an answer. Its body may be the same bytes for many, and is not copied.
func (c *httpConn) sendLarge(ctx *fasthttp.RequestCtx, body []byte) {
	// The end of an answer that was given up must not be followed by another.
	if c.broken {
		c.dropAnswers()
		return
	}
	header := ctx.Response.Header.Header()
	if c.secure == nil {
		c.loop.ctx = nil // which has the body until that is sent
		c.send(bytes.Clone(header), body)
	} else if records, ok := c.encrypt(header, body); ok && c.chargeRest(len(records)) {
		c.send(records)
	}
}

// encrypt returns the records of what is to be sent next, behind those that TLS itself wants to send. None of
// them may be left out: each is numbered. It ends the connection, and reports false, if it cannot.
func (c *httpConn) encrypt(parts ...[]byte) (records []byte, ok bool) {
	for _, part := range parts {
		if _, err := c.secure.Write(part); err != nil {
			c.fail()
			return nil, false
		}
	}
	return c.takeRecords(), true
}

// takeRecords returns what TLS has made to be sent, once.
func (c *httpConn) takeRecords() []byte {
	records := c.records
	c.records = nil
	return records
}

// sendOwnRecords sends what TLS itself has to say, such as that it has other keys. What a goroutine sends
// comes before it.
func (c *httpConn) sendOwnRecords() {
	if len(c.records) == 0 || c.sending || c.broken {
		return
	}
	records := c.takeRecords()
	n, err := eventloop.WriteNow(c.Conn, records)
	switch {
	case err != nil:
		c.fail()
	case n < len(records):
		c.send(records[n:])
	}
}

// write writes bytes of answers. What the system does not take at once is left to a goroutine.
func (c *httpConn) write(b []byte) {
	if c.broken {
		c.dropAnswers()
		return
	}
	if c.secure != nil {
		records, ok := c.encrypt(b)
		if !ok {
			return
		}
		b = records
	}
	if c.sending {
		if c.chargeRest(len(b)) {
			c.send(bytes.Clone(b))
		}
		return
	}
	n, err := eventloop.WriteNow(c.Conn, b)
	switch {
	case err != nil:
		c.fail()
	case n < len(b):
		// A client keeps the holds of which it may have read. If only a part of several answers in one write
		// gets out, all of them count as read.
		if n > 0 {
			c.forgetUnsent(len(c.unsent))
		}
		if c.chargeRest(len(b) - n) {
			c.send(bytes.Clone(b[n:]))
		}
	default:
		c.forgetUnsent(len(c.unsent))
		c.afterWriting()
	}
}

// chargeRest takes from the budget what a goroutine is to send besides the answers that are charged: many
// small ones together, or the records of a page. It ends the connection, and reports false, if there is no
// room.
func (c *httpConn) chargeRest(size int) (ok bool) {
	if !c.sending {
		size -= c.answerCharged // which has these; otherwise it has also those before
	}
	if size <= budget.Tiny {
		return true
	}
	if !c.server.config.Budget.Take(size) {
		c.fail()
		return false
	}
	c.answerCharged += size
	return true
}

// fail ends the connection, as what was to be written cannot be, once what has arrived is done.
func (c *httpConn) fail() {
	// Of a client that is gone something may be left to be read: the loop tells when there is no more.
	c.ended = c.ended || !c.isGone()
	c.broken = true
	c.dropAnswers()
	c.wake()
}

// dropAnswers is afterWriting for answers that cannot be written.
func (c *httpConn) dropAnswers() {
	// What a goroutine sends the client may read all the same: it finds out how much that is. The others are
	// dropped with the connection.
	if !c.sending {
		c.undoUnsent()
		c.afterWriting()
	}
}

// afterWriting is called when all that there was to write is written.
func (c *httpConn) afterWriting() {
	c.releaseCharged()
	if c.isFree() && len(c.input) == 0 {
		c.pace.begin(idle)
	} else if c.isFree() { // of the next request
		c.pace.begin(receiving)
	}
	// Shutdown looks at a connection once, and has passed over one whose answer was under way.
	if c.server.listenersEnded.Load() {
		c.cutIdle()
	}
	if c.closing {
		c.wake() // it ends there, unless a goroutine still has a request of it
	}
}

// send has a goroutine write, which may wait for the client. What it is given must stay as it is.
func (c *httpConn) send(parts ...[]byte) {
	c.queue = append(c.queue, parts...)
	if c.sending {
		return
	}
	fd, err := c.Dup()
	if err != nil {
		c.fail()
		return
	}
	file := os.NewFile(uintptr(fd), "")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		c.fail()
		return
	}
	c.sending = true
	queue := c.queue
	c.queue = nil
	go c.sendQueue(conn, queue, len(c.unsent)) // ends with the write timeout
}

// sendQueue writes to a descriptor of its own, and tells the loop. So many unsent holds are in the queue;
// those that come meanwhile are in what is written next.
func (c *httpConn) sendQueue(conn net.Conn, queue net.Buffers, holds int) {
	// A client that does not read keeps this goroutine and the answer for that long.
	stuck := time.AfterFunc(c.server.config.WriteTimeout, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	n, err := queue.WriteTo(conn)
	stuck.Stop()
	_ = conn.Close()
	told := c.addTask(func() {
		c.sending = false
		switch {
		case err != nil && n == 0:
			c.fail()
		case err != nil:
			c.forgetUnsent(holds)
			c.fail()
		case len(c.queue) > 0:
			c.forgetUnsent(holds)
			c.send()
		default:
			c.forgetUnsent(holds)
			c.afterWriting()
		}
	})
	if told {
		return
	}
	if n > 0 {
		c.forgetUnsent(holds)
	}
	c.forgetConn()
}

// addUnsent notes that the next answer has a hold, which is taken back if that is not written.
func (c *httpConn) addUnsent(w *waiter) {
	c.writeEarlier()
	c.unsent = append(c.unsent, w)
}

// writeEarlier writes the answers before one that has a hold, or bytes of the budget. Each write lets go of
// all that is noted by then.
func (c *httpConn) writeEarlier() {
	if c.pending {
		c.loop.flushAnswers()
	}
}

// forgetUnsent forgets the first waiters, whose answers were written.
func (c *httpConn) forgetUnsent(first int) {
	for _, w := range c.unsent[:first] {
		w.recycle()
	}
	c.unsent = slices.Delete(c.unsent, 0, first)
}

// undoUnsent takes back holds whose answers will never be written.
func (c *httpConn) undoUnsent() {
	for _, w := range c.unsent {
		c.server.metrics.Hangups.Inc()
		w.cancel()
	}
	c.unsent = nil
}

// A recordWriter is what TLS writes to: what it writes is kept until write takes it.
type recordWriter struct{ *httpConn }

// Write implements [net.Conn].
func (r recordWriter) Write(b []byte) (int, error) {
	r.records = append(r.records, b...)
	return len(b), nil
}
