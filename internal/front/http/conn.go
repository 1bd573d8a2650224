package http

import (
	"net"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/panjf2000/gnet/v2"
	"github.com/valyala/fasthttp"
)

// An httpConn is a connection of an event loop. Its fields belong to the loop, except those that say
// otherwise. What goes on elsewhere, such as a decision, is told to the loop as a task (addTask).
//
//	             whole requests come
//	            .-------------------.        a decision takes long   +-----------------------+
//	            v                   |    .-------------------------->| waiting: waiter is set |
//	      +-----------+  answered   |    |                           +-----------------------+
//	OnOpen| reading   |-------------'    |        decided, answered     |              |
//	----->| requests  |------------------'<-----------------------------'              | client hangs up
//	      |           |   a handler, or a write, takes long  +-----------------------+ |
//	      |           |------------------------------------->| busy: a goroutine has | |
//	      |           |<-------------------------------------| it, and ends with it  | |
//	      +-----------+         it is done                   +-----------------------+ v
//	            |  last answer, too slow, or the client hangs up                 +--------+
//	            '--------------------------------------------------------------->| closed |
//	                                                                             +--------+
//
// A client may end what it sends, or be gone, behind requests that have arrived: these are answered all the
// same (answerRest), as one of them may give something back, but for those behind one that waits in line, or
// whose hold is not given.
type httpConn struct {
	gnet.Conn // replaced when gnet has closed it and requests are left; off the loop, connection returns it
	server    *Server
	loop      *eventLoop
	secure    *eventloop.Secure // nil without TLS
	remote    net.Addr          // of the client
	origin    connOrigin

	framing  framing // of the request that is coming
	scanned  int     // how many bytes of it have come
	headRead bool    // it may go on: its head was looked at, and its body has not come whole
	input    []byte  // what has come and was not answered; nil while that is nothing
	charged  int     // bytes of input that were taken from the budget
	records  []byte  // of TLS, that are not written yet

	waiter  *waiter
	busy    bool     // a handler has a goroutine
	sending bool     // a write has a goroutine
	queue   [][]byte // to be written behind that
	closing bool     // it ends when what was answered is written
	ended   bool     // nothing more comes: it ends when all that has come is answered
	broken  bool     // nothing can be written: what is answered is dropped
	pending bool     // answers are in the loop, and not written

	// Of the answers that were not written yet. With sending these belong to its goroutine from the end on.
	unsent        []*waiter // with the holds that are taken back if these are not written
	answerCharged int       // bytes of the budget

	// What the handler of the present request leaves. It may run in a goroutine, while the answers before it
	// are written; finishRequest takes this over.
	parked      *waiter // its request waits
	granted     *waiter // its hold is taken back if the answer is not written
	answerBytes int     // of its answer, that were taken from the budget
	abandoned   bool    // it is not answered: its client is gone

	knownHost unique.Handle[string]         // the last Host that passed checkHost; mostly that of all
	caller    atomic.Pointer[access.Caller] // nil if rights are off, or before the first request
	pace      pace

	mu     sync.Mutex
	tasks  []func()
	closed bool // no task is taken any more
}

// A connOrigin is where a connection was accepted.
type connOrigin struct {
	secure      *tlsconn.Connection // nil without TLS
	loopback    bool                // on a loopback address
	healthAlone bool                // by ServeHealth
}

// RemoteAddr implements [net.Conn].
func (c *httpConn) RemoteAddr() net.Addr { return c.remote }

// connectionOf returns the connection that a request came on.
func connectionOf(ctx *fasthttp.RequestCtx) *httpConn {
	c, _ := ctx.Conn().(*httpConn)
	return c
}

// addTask has the loop call do soon. It reports false if the connection is closed: then it is not called.
func (c *httpConn) addTask(do func()) bool {
	c.mu.Lock()
	conn, closed := c.Conn, c.closed
	if !closed {
		c.tasks = append(c.tasks, do)
	}
	c.mu.Unlock()
	if !closed {
		_ = conn.Wake(nil)
	}
	return !closed
}

// wake has the loop look at the connection soon.
func (c *httpConn) wake() { c.addTask(func() {}) }

// runTasks calls what addTask has left for the loop. last says that no more are taken.
func (c *httpConn) runTasks(last bool) {
	for {
		// Before no more are taken: what is charged or unsent belongs to a goroutine that sends from then on.
		if last {
			c.loop.flushAnswers()
		}
		c.mu.Lock()
		tasks := c.tasks
		c.tasks = nil
		c.closed = c.closed || last && len(tasks) == 0
		c.mu.Unlock()
		if len(tasks) == 0 {
			return
		}
		for _, do := range tasks {
			do()
		}
	}
}

// connection returns the connection for use by other goroutines.
func (c *httpConn) connection() gnet.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn
}

// isGone reports whether the client is known to be gone at this instant.
func (c *httpConn) isGone() bool {
	return eventloop.IsGone(c.connection())
}

// hidesHangup reports whether a client has sent so much behind its request that its hang-up may be unseen: it
// comes behind what was not read yet.
func (c *httpConn) hidesHangup() bool {
	_, inMemory := c.Conn.(peer.Watched)
	return !inMemory && len(c.input)+eventloop.UnreadBytes(c.Conn) > maxBehind
}

// hasInput reports whether something has come that was not answered, also if the loop has not read it yet.
func (c *httpConn) hasInput() bool {
	return len(c.input) > 0 || c.InboundBuffered() > 0 || eventloop.UnreadBytes(c.Conn) > 0
}

// clientGone reports whether the client of a request is known to be gone at this instant.
func clientGone(ctx *fasthttp.RequestCtx) bool {
	return connectionOf(ctx).isGone()
}

// receive returns all that has come and was not answered.
func (c *httpConn) receive() (data []byte) {
	// Mostly whole requests come, and are answered where the loop has read them, without a copy.
	came := c.arrived()
	if len(came) > 0 && c.pace.isQuiet() {
		c.pace.begin(receiving)
	}
	if len(c.input) == 0 {
		return came
	}
	c.input = append(c.input, came...)
	return c.input
}

// arrived returns what has come and was not taken yet.
func (c *httpConn) arrived() []byte {
	if c.secure != nil {
		c.secure.Receive(&c.loop.room)
		c.sendOwnRecords()
		data, _ := c.secure.Peek(c.secure.InboundBuffered())
		return data
	}
	n := c.InboundBuffered()
	if n == 0 {
		return nil
	}
	data, _ := c.Peek(n)
	return data
}

func (c *httpConn) discardArrived() {
	if c.secure != nil {
		_, _ = c.secure.Discard(c.secure.InboundBuffered())
		return
	}
	if n := c.InboundBuffered(); n > 0 {
		_, _ = c.Discard(n)
	}
}

// waitsInLine reports whether the present request may wait, and not just for the store to answer.
func (c *httpConn) waitsInLine() bool {
	return c.waiter != nil && (c.waiter.stream != nil || c.waiter.responder.mayWait())
}

// leavesWithClient reports whether the present request is given up when its client has ended what it sends.
func (c *httpConn) leavesWithClient() bool {
	if c.waiter == nil {
		return false
	}
	_, isList := c.waiter.task.(*nameList) // which may search for long
	return isList || c.waitsInLine()
}

// maxBehind is how many bytes may come behind a request that waits in line, and maxBehindBusy behind one that
// is being answered. A client that sends more counts as gone.
const maxBehind, maxBehindBusy = 32 << 10, 8 << 20

// keepInput keeps what has come and could not be answered.
func (c *httpConn) keepInput(rest []byte) {
	array := 0 // of which rest is the end; 0 if it is a new one
	switch {
	case c.closing || len(rest) == 0:
		c.input = nil
	// What is left of much must not keep its array.
	case len(c.input) == 0 || len(rest) < max(cap(c.input), c.charged)/4:
		kept := make([]byte, len(rest)) // of that size: Clone may take more
		copy(kept, rest)
		c.input = kept
	default: // not moved: to move thousands of requests behind each of them takes long
		array = c.charged
		c.input = rest
	}
	// An answer may have been written before it was known what is left.
	switch {
	case !c.isFree():
	case len(c.input) > 0 && c.pace.isQuiet():
		c.pace.begin(receiving)
	case len(c.input) == 0 && c.pace.now() == receiving:
		c.pace.begin(idle)
	}
	charged := 0
	// A request in two pieces is common, and bounded by the number of connections. Behind one that waits
	// nothing is to be expected.
	if cap(c.input) > firstBufferBytes || c.waiter != nil {
		charged = max(cap(c.input), array)
	}
	if charged != c.charged {
		within := c.server.config.Budget.Move(charged-c.charged, charged)
		c.charged = charged
		if !within && charged > 0 {
			c.server.config.Budget.Refuse()
			c.refuseInput()
		}
	}
	if len(c.input) > maxBehindBusy || c.waitsInLine() && len(c.input) > maxBehind {
		c.closing = true
	}
}

// refuseInput ends a connection for whose input all connections together have no room.
func (c *httpConn) refuseInput() {
	if c.busy || c.waiter != nil {
		c.closing = true
		return
	}
	ctx := c.loop.beginRequest(c)
	if c.headRead { // its head is there, and says how the client reads errors
		_ = c.loop.readHead(ctx, c.input)
	}
	c.server.answerMalformed(ctx, errBufferedTooMuch)
	c.endWith(ctx)
}

// answerRest has what has arrived answered on a connection that gnet is closing, as it does when its client
// has ended what it sends, or has left. It reports false if there is nothing to answer.
func (c *httpConn) answerRest(h *connHandler) bool {
	// Who waited and is decided waits no more, and what came behind is looked at.
	c.runTasks(false)
	// What a goroutine has ends with an answer, which may be the last of the connection.
	left := c.busy || c.sending || !c.closing && (c.waiter != nil || len(c.input) > 0)
	if !left || c.leavesWithClient() {
		return false
	}
	half := eventloop.NewHalfClosed(c.Conn, h)
	c.mu.Lock()
	c.Conn = half
	c.mu.Unlock()
	c.ended = true
	c.wake()
	return true
}

// end is called once, when the connection is closed and nothing is left to answer.
func (c *httpConn) end() {
	// What is decided by now is answered, as long as there is a descriptor: a client that has closed only its
	// half reads it.
	c.runTasks(true)
	c.pace.stop()
	c.closing = true
	c.keepInput(nil)
	if w := c.waiter; w != nil {
		c.waiter = nil
		w.onHangup()
	}
	c.caller.Load().End()
	if c.secure != nil {
		c.secure.Forget()
	}
	// Otherwise the goroutine that sends does this, once it knows how much the client may have read.
	if !c.sending {
		c.forgetConn()
	}
}

// forgetConn is called once, when nothing is sent any more on a connection that is closed.
func (c *httpConn) forgetConn() {
	c.undoUnsent()
	c.releaseCharged()
	c.server.conns.removeConn(c)
	c.server.countClosed(peer.Source(c))
}

// cutIdle ends the connection unless it has a request: one that is being served, or one that has arrived and
// was not read yet. That request is answered, and its answer is the last.
func (c *httpConn) cutIdle() {
	if c.isFree() && !c.hasInput() {
		c.closing = true
	}
}
