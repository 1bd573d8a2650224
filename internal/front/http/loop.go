package http

import (
	"bufio"
	"bytes"
	"context"
	"net"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/panjf2000/gnet/v2"
	"github.com/valyala/fasthttp"
)

// An eventLoop is what all connections of one event loop share, because only one of them is served at a time:
// room to work in, and the answers that were made and not written.
//
// Answers that are made in one turn of the loop are written at its end, as Redis does. The write that finds a
// client asleep wakes it, which costs more than the rest of a request. A client of many connections, such as
// a proxy, is woken once then, and finds its other answers there.
type eventLoop struct {
	server *Server
	ctx    *fasthttp.RequestCtx // nil while a goroutine has the last one
	source bytes.Reader
	reader *bufio.Reader
	writer *bufio.Writer
	room   []byte // for what was decrypted

	out       []byte // of all answers
	answers   []writtenAnswer
	turnEnds  bool // the end of the turn will be told
	writes    uint64
	untilLook uint64 // the write before which others are expected to be ready
}

// A writtenAnswer is what one connection has in the answers of its loop.
type writtenAnswer struct {
	conn *httpConn
	end  int // of it, in loop.out
}

func newLoop(s *Server) *eventLoop {
	l := &eventLoop{server: s, reader: bufio.NewReaderSize(nil, maxHeader)}
	l.writer = bufio.NewWriterSize(answerSink{l}, 4<<10)
	return l
}

// loopOf returns what the connections of an event loop share.
func (s *Server) loopOf(of gnet.EventLoop) *eventLoop {
	if l, ok := s.loops.Load(of); ok {
		return l.(*eventLoop)
	}
	l, _ := s.loops.LoadOrStore(of, newLoop(s))
	return l.(*eventLoop)
}

// A connHandler learns from the event loops what happens to connections.
type connHandler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// OnOpen implements [gnet.EventHandler].
func (h *connHandler) OnOpen(conn gnet.Conn) ([]byte, gnet.Action) {
	c := &httpConn{Conn: conn, server: h.server, loop: h.server.loopOf(conn.EventLoop())}
	c.remote = net.TCPAddrFromAddrPort(eventloop.TakeAddress(conn))
	if origin, ok := conn.Context().(*connOrigin); ok {
		c.origin = *origin
		if origin.secure != nil {
			c.secure = eventloop.NewSecure(recordWriter{c}, origin.secure)
			_ = conn.Wake(nil) // a request may have come behind the handshake
		}
	} else if h.server.countOpened(peer.Source(c)) != "" { // of Embed: no listener has counted it
		return nil, gnet.Close
	}
	conn.SetContext(c)
	h.server.conns.addConn(c)
	c.pace.start(c) // a client that sends nothing is cut, too
	// Shutdown looks at all connections once. It may have done so before this one was stored.
	if h.server.listenersEnded.Load() {
		c.wake()
	}
	return nil, gnet.None
}

// OnTraffic implements [gnet.EventHandler]. It is called when a client has sent something, and when there are
// tasks.
func (h *connHandler) OnTraffic(conn gnet.Conn) gnet.Action {
	c, ok := conn.Context().(*httpConn)
	if !ok {
		return gnet.Close
	}
	// A decision makes the connection free for what has come behind its request, hence in this order.
	c.runTasks(false)
	data, done, unfinished := c.receive(), 0, false
	// The whole requests at its front are answered one after the other.
	for c.isFree() && done+c.scanned < len(data) {
		// A client can have had megabytes kept behind an answer that took long.
		unfinished = done >= maxTurn
		if unfinished {
			break
		}
		ctx, length := c.nextRequest(data[done:])
		done += length
		switch {
		case ctx == nil:
		case h.server.handle(ctx, false):
			c.finishRequest(ctx)
		default:
			c.serveSlowly(ctx) // it was only looked at so far, and is handled from the beginning elsewhere
		}
	}
	c.keepInput(data[done:])
	c.discardArrived()
	c.ended = c.ended || c.secure != nil && c.secure.Ended()
	switch {
	case !c.ended && h.server.listenersEnded.Load():
		c.cutIdle()
	case c.ended && (c.leavesWithClient() || c.isFree() && !unfinished):
		c.closing = true
	}
	return c.endTurn(unfinished)
}

// endTurn has what was answered written, now or with the answers of other connections. unfinished says that
// there are more requests.
func (c *httpConn) endTurn(unfinished bool) gnet.Action {
	l := c.loop
	switch {
	case len(l.answers) == 0:
	// A hold is not kept back: its client may leave meanwhile.
	case len(c.unsent) > 0 || c.closing || unfinished:
		l.flushAnswers()
	default:
		l.flushLater(c.Conn)
	}
	if unfinished {
		// The loop does the tasks that it leaves itself before it looks for what has come. One from elsewhere
		// mostly comes while it looks.
		go c.wake() // ends at once
	}
	if c.mayClose() {
		return gnet.Close
	}
	return gnet.None
}

// OnClose implements [gnet.EventHandler].
func (h *connHandler) OnClose(conn gnet.Conn, why error) gnet.Action {
	c, ok := conn.Context().(*httpConn)
	switch {
	case !ok:
	case why == nil: // it was closed here
		c.end()
	case !c.answerRest(h):
		c.end()
	}
	return gnet.None
}

// mayClose reports whether the connection is at its end, and sends the last record of TLS then.
func (c *httpConn) mayClose() bool {
	if !c.closing || c.busy || c.sending || c.pending {
		return false
	}
	if c.secure != nil {
		c.secure.EndSending()
		c.sendOwnRecords()
	}
	return !c.sending // that record has no room behind a large answer
}

// beginRequest returns the context for a request of a connection.
func (l *eventLoop) beginRequest(c *httpConn) *fasthttp.RequestCtx {
	if l.ctx == nil {
		l.ctx = new(fasthttp.RequestCtx)
	}
	l.ctx.Request.Reset()
	l.ctx.Response.Reset()
	l.ctx.ResetUserValues()
	l.ctx.Init2(c, libraryLogger{l.server.log}, false)
	return l.ctx
}

// readHead reads the head of a request.
func (l *eventLoop) readHead(ctx *fasthttp.RequestCtx, request []byte) error {
	// The reader is as large as a head may be: the library refuses what does not fit in.
	l.source.Reset(request)
	l.reader.Reset(&l.source)
	return ctx.Request.Header.Read(l.reader)
}

// readBody reads the body of a request whose head was read.
func (l *eventLoop) readBody(ctx *fasthttp.RequestCtx, c *httpConn, request []byte) error {
	if c.framing.body == 0 {
		return nil
	}
	most := bodyLimit(ctx.Request.Header.RequestURI())
	switch n := ctx.Request.Header.ContentLength(); {
	case c.framing.body > int64(most):
		return fasthttp.ErrBodyTooLarge
	case n >= 0:
		// It points into what has come, which stays there until the request is answered.
		ctx.Request.SetBodyRaw(request[len(request)-n:])
	default:
		return ctx.Request.ContinueReadBody(l.reader, most, false)
	}
	return nil
}

// lookEach is after how many writes it is tried again whether others are ready. Where none is, to be told of
// the end of the turn costs more than it gains.
const lookEach = 64

// flushLater has the answers written at the end of this turn of the loop, where others are likely to come.
func (l *eventLoop) flushLater(conn gnet.Conn) {
	if l.turnEnds {
		return
	}
	l.writes++
	if l.writes%lookEach != 0 && l.writes >= l.untilLook {
		l.flushAnswers()
		return
	}
	l.turnEnds = conn.EventLoop().Execute(context.Background(), gnet.RunnableFunc(l.endTurn)) == nil
	if !l.turnEnds {
		l.flushAnswers()
	}
}

// endTurn writes the answers of a turn.
func (l *eventLoop) endTurn(context.Context) error {
	l.turnEnds = false
	if len(l.answers) > 1 {
		l.untilLook = l.writes + lookEach
	}
	l.flushAnswers()
	return nil
}

// flushSize is how much is collected before it is written, and the least of an answer that a goroutine
// writes.
const flushSize = 64 << 10

// flushAnswers writes the answers that were collected.
func (l *eventLoop) flushAnswers() {
	// Taken out first: writing may lead back to here.
	answers, out := l.answers, l.out
	if len(answers) == 0 {
		return
	}
	l.answers, l.out = nil, nil
	begin := 0
	for i, a := range answers {
		a.conn.pending = false
		a.conn.write(out[begin:a.end])
		begin = a.end
		answers[i].conn = nil
	}
	l.answers = answers[:0]
	// One huge answer must not keep its memory for as long as the loop runs.
	if cap(out) <= 2*flushSize {
		l.out = out[:0]
	}
}

// appendAnswer adds bytes of a connection to those that are to be written.
func (l *eventLoop) appendAnswer(c *httpConn, write func(*bufio.Writer) error) {
	_ = write(l.writer)
	_ = l.writer.Flush()
	if n := len(l.answers); n > 0 && l.answers[n-1].conn == c {
		l.answers[n-1].end = len(l.out)
	} else {
		l.answers = append(l.answers, writtenAnswer{c, len(l.out)})
	}
	c.pending = true
	if len(l.out) >= flushSize {
		l.flushAnswers()
	}
}

// An answerSink collects what is written in the answers of a loop.
type answerSink struct{ *eventLoop }

// Write implements [io.Writer].
func (s answerSink) Write(b []byte) (int, error) {
	s.out = append(s.out, b...)
	return len(b), nil
}
