package http

import (
	"bufio"
	"bytes"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/valyala/fasthttp"
)

// isFree reports whether the next request may be answered.
func (c *httpConn) isFree() bool { return c.waiter == nil && !c.busy && !c.sending && !c.closing }

// maxTurn is after how many bytes of requests the other connections of the loop come first. It is more than
// comes in one go, so that what was kept gets less.
const maxTurn = 2 * eventloop.ReadSize

// nextRequest looks for a whole request at the front of data, and returns how many bytes it has. ctx is nil
// if there is none, or if it was refused.
func (c *httpConn) nextRequest(data []byte) (ctx *fasthttp.RequestCtx, length int) {
	// What was looked at before is not looked at again.
	c.scanned += c.framing.scanRequest(data[c.scanned:])
	request := data[:c.scanned]
	switch {
	case c.framing.at == atEnd:
		// Its client was told to go on, if it has asked, when the head was read.
		told := c.headRead
		c.scanned, c.headRead = 0, false
		return c.readRequest(request, told), len(request)
	case c.framing.at == atMalformed:
		c.refuse(request, errMalformed)
	case !c.framing.inHead():
		c.awaitBody(request)
	case c.scanned > maxHeader:
		c.refuse(nil, &fasthttp.ErrSmallBuffer{})
	}
	return nil, 0
}

// readRequest reads a whole request, and returns nil if that was refused.
func (c *httpConn) readRequest(request []byte, told bool) *fasthttp.RequestCtx {
	c.pace.begin(working) // the client is waited for no more
	ctx := c.loop.beginRequest(c)
	err := c.loop.readHead(ctx, request)
	if err == nil {
		if !told && ctx.Request.MayContinue() {
			c.loop.appendAnswer(c, writeContinue)
		}
		err = c.loop.readBody(ctx, c, request)
	}
	if err != nil {
		c.server.answerMalformed(ctx, err)
		c.endWith(ctx)
		return nil
	}
	return ctx
}

// serveSlowly has a goroutine run the handler of a request.
func (c *httpConn) serveSlowly(ctx *fasthttp.RequestCtx) {
	// The body is copied, as it lies in the loop's room for what has come.
	body := ctx.Request.Body()
	charged := 0
	if len(body) > firstBufferBytes {
		charged = len(body)
	}
	if !c.server.config.Budget.Take(charged) {
		c.server.answerMalformed(ctx, errBufferedTooMuch)
		c.endWith(ctx)
		return
	}
	// The loop works with another context meanwhile, and with other bytes.
	c.loop.ctx = nil
	ctx.Response.Reset()
	ctx.Request.SetBodyRaw(bytes.Clone(body))
	c.busy = true
	go func() {
		c.server.handle(ctx, true)
		c.server.config.Budget.Release(charged)
		finished := c.addTask(func() {
			c.busy = false
			c.finishRequest(ctx)
		})
		if !finished {
			c.dropResult()
		}
	}()
}

// finishRequest sends what a handler has answered, or has its request wait.
func (c *httpConn) finishRequest(ctx *fasthttp.RequestCtx) {
	w := c.parked
	c.parked = nil
	if c.granted != nil {
		c.addUnsent(c.granted)
		c.granted = nil
	}
	c.noteCharged(c.answerBytes)
	c.answerBytes = 0
	switch {
	case w != nil:
		c.pace.stop()
		c.waiter = w
		w.beginWaiting(c)
	case c.abandoned:
		c.closing = true
	default:
		c.sendResponse(ctx)
	}
}

// dropResult takes back what a handler did whose client is gone.
func (c *httpConn) dropResult() {
	if w := c.parked; w != nil {
		w.onHangup()
	}
	if w := c.granted; w != nil {
		c.server.metrics.Hangups.Inc()
		w.cancel()
	}
	c.server.config.Budget.Release(c.answerBytes)
}

// refuse answers bytes that are no request, as far as its head was read, and ends the connection.
func (c *httpConn) refuse(head []byte, err error) {
	ctx := c.loop.beginRequest(c)
	if c.headRead {
		_ = c.loop.readHead(ctx, head)
	}
	c.server.answerMalformed(ctx, err)
	c.endWith(ctx)
}

// endWith sends an answer that is the last.
func (c *httpConn) endWith(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	c.finishRequest(ctx)
}

// awaitBody looks at a request whose body has not come whole: there is no need to receive much that will be
// refused.
func (c *httpConn) awaitBody(request []byte) {
	// A body in chunks says how long it is only while it comes.
	if c.headRead {
		if c.framing.body > maxBody && c.framing.body > c.mostBody(request) {
			c.refuse(request, fasthttp.ErrBodyTooLarge)
		}
		return
	}
	c.headRead = true
	ctx := c.loop.beginRequest(c)
	if err := c.loop.readHead(ctx, request); err != nil {
		c.server.answerMalformed(ctx, err)
		c.endWith(ctx)
		return
	}
	if ctx.Request.Header.ContentLength() > bodyLimit(ctx.Request.Header.RequestURI()) {
		c.server.answerMalformed(ctx, fasthttp.ErrBodyTooLarge)
		c.endWith(ctx)
		return
	}
	// Nothing of a body is received from a sender that is not known: large ones take room from others.
	from := readSender(&ctx.Request.Header)
	path, _ := splitURI(ctx.Request.Header.RequestURI())
	forbidStoring(&ctx.Response)
	nameRequest(ctx, &from)
	if !c.server.admitRequest(ctx, path, &from) {
		c.endWith(ctx)
		return
	}
	if ctx.Request.MayContinue() {
		c.loop.appendAnswer(c, writeContinue)
		c.loop.flushAnswers()
	}
}

// writeContinue tells a client to go on with the body of its request.
func writeContinue(to *bufio.Writer) error {
	_, err := to.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// mostBody is how long the body of a request may be.
func (c *httpConn) mostBody(request []byte) int64 {
	ctx := c.loop.beginRequest(c)
	if c.loop.readHead(ctx, request) != nil {
		return maxBody
	}
	return int64(bodyLimit(ctx.Request.Header.RequestURI()))
}
