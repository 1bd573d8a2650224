package http

import (
	"bufio"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// A waiter is a request that waits for its decision.
//
// The gate decides on any goroutine (onDecision); all else happens on the loop of the connection:
//
//	               decided before the handler ends
//	takeDecision ------------------------------------> answerInHandler
//	      |
//	      | park
//	      v            decided
//	   waiting ---------------------> writeAnswer
//	      |                               |
//	      | onHangup                      | client is gone, or write fails
//	      v                               v
//	   out of line                    what was granted is taken back
//
// The dangerous instant is when a request is granted while its client goes away. A grant whose client is
// known to be gone is taken back, and a client that went away while it waited takes nothing with it.
//
// A waiter that has not waited is used again for other requests.
type waiter struct {
	gate.Request // none if there is a task

	server    *Server
	responder responder
	task      waiterTask          // nil for a command to one controller
	alone     [1]*gate.Request    // the request, as Submit takes it
	room      *gatehouse.Decision // for a decision that is made at once; nil for a waiter that waits

	mu          sync.Mutex
	conn        *httpConn     // nil until the request waits
	late        bool          // the decision was not there at once
	hasDecision bool          // the request is decided, or the task is done
	finished    bool          // answered, or its client is gone
	decidedAt   time.Duration // by the clock of the metrics, if it was not at once

	charged int // bytes of the answer that were taken from the budget

	user *waiterUser // nil if rights are off

	stream *stream // nil unless its client is told its place
}

// A waiterTask is what a waiter waits for where that is no command to one controller: a list of names, a
// grant, or a batch.
type waiterTask interface {
	// cancelTask ends it when the client is gone, or takes back what was granted.
	cancelTask()
	// mustReach reports whether the result holds something that no other client can have, so that it is taken
	// back if the client is gone. waited says that it was not there at once.
	mustReach(waited bool) bool
	// writeTask writes the result as a response.
	writeTask(resp *fasthttp.Response, r *responder)
	// writeShort writes a response for which room is certain, where the server has none for the result.
	writeShort(resp *fasthttp.Response, r *responder)
	// countTask counts the response in the metrics.
	countTask(s *Server, r *responder, status int)
}

func newWaiter(s *Server) *waiter {
	w := &waiter{server: s, room: new(gatehouse.Decision)}
	w.alone[0], w.Decided = &w.Request, w.onDecision
	return w
}

// prepare makes the waiter that of a request. What it was for before is answered.
func (w *waiter) prepare(ctx *fasthttp.RequestCtx, r *httpRequest, from *sender) {
	w.Key, w.Command, w.Decision = r.Key, r.Command, w.room
	w.responder = w.server.newResponder(ctx, from)
	w.responder.answersTo(r, w.server.config.Refusal)
	w.late, w.hasDecision, w.decidedAt, w.stream = false, false, 0, nil
}

// takeDecision returns whether a request was decided before Submit returned, and without the line. If not,
// its connection is to wait.
func (w *waiter) takeDecision() (atOnce bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A decision that is not in the room was made in line. A task does not tell where it was made: between
	// Submit and here is no time to wait.
	if w.hasDecision && (w.task != nil || w.Decision == w.room) {
		return true
	}
	w.late, w.room = true, nil
	// It may have come between Submit and here. The connection finds it when it begins to wait.
	if w.hasDecision {
		w.decidedAt = w.server.metrics.Now()
	}
	return false
}

// answerOrWait answers a request that was submitted, or has its connection wait until the result is there.
func (w *waiter) answerOrWait(ctx *fasthttp.RequestCtx, from *sender) {
	switch {
	case w.takeDecision():
		w.answerInHandler(ctx)
	case w.beginWait(ctx, from):
		if w.responder.stream {
			w.stream = new(stream)
		}
		w.park(ctx)
	}
}

// answerInHandler answers a request that was decided at once. A hold is taken back if the answer cannot be
// sent.
func (w *waiter) answerInHandler(ctx *fasthttp.RequestCtx) {
	w.leaveUser()
	kept := w.mustReachClient(false)
	if kept {
		connectionOf(ctx).granted = w
	}
	switch {
	case w.task != nil:
		w.task.writeTask(&ctx.Response, &w.responder)
		w.server.chargeTask(ctx, w)
	// A list of a thousand may be long, and a client may not read it. Other answers are short.
	case isReport(w.responder.op):
		w.responder.writeDecision(&ctx.Response, w.Decision, w.Err)
		w.server.chargeAnswer(ctx, &sender{wantsJSON: w.responder.wantsJSON}, w.server.config.Budget.Take)
	default:
		w.responder.writeDecision(&ctx.Response, w.Decision, w.Err)
	}
	w.countReply(ctx.Response.StatusCode())
	w.server.closeIfStopping(ctx)
	if !kept {
		w.recycle()
	}
}

// mustReachClient reports whether what was decided is taken back if the client is gone.
func (w *waiter) mustReachClient(waited bool) bool {
	if w.task != nil {
		return w.task.mustReach(waited)
	}
	return w.Err == nil && w.Decision.Outcome == gatehouse.Granted &&
		params.TakesForClient(w.responder.op, w.responder.key.Kind, waited)
}

// countReply counts the response in the metrics.
func (w *waiter) countReply(status int) {
	if w.task != nil {
		w.task.countTask(w.server, &w.responder, status)
		return
	}
	w.server.countReply(&w.responder, telemetry.OutcomeOf(w.Decision.Outcome, w.Err), status)
}

// recycle gives a waiter back that is answered, and whose grant nobody takes back any more.
func (w *waiter) recycle() {
	// One that has waited has given its room away, and the timer and the channel have cost more than a new
	// one does.
	if g, ok := w.task.(*grantTask); ok && w.room != nil {
		w.server.grantPool.Put(g)
	} else if w.room != nil && w.task == nil {
		w.server.waiterPool.Put(w)
	}
}

// cancel takes the request out of line, or takes back its grant, or ends the task.
func (w *waiter) cancel() {
	w.takeBackUser()
	w.cancelRequest()
}

// park has the connection wait once the handler has returned.
func (w *waiter) park(ctx *fasthttp.RequestCtx) { connectionOf(ctx).parked = w }

// onDecision is called by the gate when the request is decided, once, also after a cancel. It does not write:
// the gate must not wait for a socket.
func (w *waiter) onDecision(*gate.Request) {
	w.mu.Lock()
	w.hasDecision = true
	if w.late {
		w.decidedAt = w.server.metrics.Now()
	}
	conn := w.conn
	w.mu.Unlock()
	// Without conn the request does not wait yet, and beginWaiting will find the decision.
	if conn != nil {
		conn.addTask(w.writeAnswer)
	}
}

// beginWaiting begins to wait for the decision. The loop calls it, as the rest of what a waiter does but
// onDecision and deny.
func (w *waiter) beginWaiting(c *httpConn) {
	// Either this finds the decision, or onDecision finds the connection.
	w.mu.Lock()
	w.conn = c
	ready := w.hasDecision
	w.mu.Unlock()
	switch {
	case ready:
		w.writeAnswer()
	case w.stream != nil:
		w.beginStream()
	}
}

// onHangup is called when the client is gone. It takes the request out of line.
func (w *waiter) onHangup() {
	w.mu.Lock()
	finished := w.finished
	w.finished = true
	w.mu.Unlock()
	if finished {
		return
	}
	w.countWaiting(w.server.metrics.Now())
	w.stopStream()
	w.endWait()
	w.giveUp()
}

// giveUp ends a request whose client gets no answer, with what that has of the budget.
func (w *waiter) giveUp() {
	w.server.metrics.Hangups.Inc()
	w.cancel()
	w.server.config.Budget.Release(w.charged)
}

// countWaiting records how long the request was in line. The time after until counts as handling again.
func (w *waiter) countWaiting(until time.Duration) {
	// A request for names is none for a controller, and has no metrics of an operation.
	if w.responder.op == 0 {
		return
	}
	w.server.metrics.requests.Of(w.responder.key.Kind, w.responder.op).Waited(until - w.responder.began)
	w.responder.began = until
}

// writeAnswer answers a request that has waited.
func (w *waiter) writeAnswer() {
	w.mu.Lock()
	finished := w.finished
	w.finished = true
	w.mu.Unlock()
	if finished {
		return
	}
	// The connection has its timer again, and may go on with its next request.
	c := w.conn
	c.waiter = nil
	c.pace.start(c)
	w.countWaiting(w.decidedAt)
	w.leaveUser()
	event, begun := w.endStream()
	// A write to a client that has closed succeeds: only its reset tells, and that comes later. So the socket
	// is asked first, where that matters.
	if w.mustReachClient(w.responder.mayWait()) {
		if c.isGone() || w.responder.mayWait() && c.hidesHangup() {
			w.giveUp()
			c.closing = true
			return
		}
		c.addUnsent(w)
	}
	if begun {
		w.countReply(fasthttp.StatusOK)
		c.closing = true
		c.noteCharged(w.charged)
		c.loop.appendAnswer(c, func(to *bufio.Writer) error {
			_, err := to.Write(event)
			return err
		})
		return
	}
	ctx := c.loop.beginRequest(c)
	resp := &ctx.Response
	// The response is not that of the handler, so that headers for all answers are set here again.
	forbidStoring(resp)
	if w.responder.requestID != "" {
		setTextHeader(resp, headerRequestID, w.responder.requestID)
	}
	w.fillResponse(resp)
	c.noteCharged(w.charged)
	// These are as the request was.
	if w.responder.closeAfter || w.server.stopping.Load() {
		ctx.SetConnectionClose()
	}
	if w.responder.http10 {
		ctx.Request.Header.SetProtocol("HTTP/1.0")
	}
	w.countReply(resp.StatusCode())
	c.sendResponse(ctx)
}

// fillResponse writes the decision, or the result of the task, into resp.
func (w *waiter) fillResponse(resp *fasthttp.Response) {
	if w.task == nil {
		w.responder.writeDecision(resp, w.Decision, w.Err)
	} else {
		w.task.writeTask(resp, &w.responder)
	}
	// A list may be long, and a client that does not read keeps it in memory.
	size := len(resp.Body())
	switch {
	case size <= budget.Tiny || size <= w.charged:
	case w.server.config.Budget.Take(size - w.charged):
		w.charged = size
	case w.task == nil:
		w.server.writeOverloaded(resp, w.responder.wantsJSON)
	default:
		w.task.writeShort(resp, &w.responder)
	}
}
