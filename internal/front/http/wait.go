package http

import (
	"net"
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
// Three things happen in any order, in different goroutines: the gate decides (onDecision), the HTTP server
// lets the connection go (parkConn), and the client hangs up (onHangup). Whichever of the first two comes
// last starts the answer. finished is set once, either by that or by the hang-up:
//
//	                   decided before the handler ends
//	awaitDecision ------------------------------------------> answerInHandler
//	      |
//	      | parkAfterHandler
//	      v           parkConn and onDecision
//	   waiting --------------------------------> finished, writeAnswer ---> awaitRequest
//	      |                                              |
//	      | onHangup                                     | client is gone, or write fails
//	      v                                              v
//	   finished, out of line                      takeBackGrant
//
// The dangerous instant is when a request is granted while its client goes away. A grant whose client is
// known to be gone is taken back, and a client that went away while it waited takes nothing with it.
//
// A waiter that is not parked is used again for other requests.
type waiter struct {
	gate.Request // none if there is a task

	server    *Server
	responder responder
	task      waiterTask          // nil for a command to one controller
	alone     [1]*gate.Request    // the request, as Submit takes it
	room      *gatehouse.Decision // for a decision that is made at once; nil for a waiter that waits

	mu          sync.Mutex
	early       chan struct{} // closed by onDecision; nil unless the handler waits for that
	conn        *parkedConn   // nil while the request's handler still runs
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
	w.early, w.late, w.hasDecision, w.decidedAt, w.stream = nil, false, false, 0, nil
}

// awaitDecision waits in the handler for the decision of a request that was submitted. decided is false if it
// takes longer than patience, so that the connection is to be parked; atOnce says that it was decided without
// the line, before Submit returned.
func (w *waiter) awaitDecision() (atOnce, decided bool) {
	w.mu.Lock()
	decided = w.hasDecision
	// A decision that is not in the room was made in line. A task does not tell where it was made: between
	// Submit and here is no time to wait.
	atOnce = decided && (w.task != nil || w.Decision == w.room)
	if !decided {
		w.early, w.late = make(chan struct{}), true
	}
	w.mu.Unlock()
	if atOnce {
		return true, true
	}
	w.room = nil
	if decided {
		return false, true
	}
	// A request that does not wait in line is decided by the store's first answer, and the store has a
	// timeout of its own. So such a request keeps its goroutine.
	if !w.responder.mayWait() {
		<-w.early
		return false, true
	}
	patient := &w.server.patient
	defer patient.end()
	if !patient.begin() {
		return false, w.leaveHandler()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.early:
		patient.note(true)
		return false, true
	case <-timer.C:
		patient.note(false)
		return false, w.leaveHandler()
	}
}

// answerInHandler answers a request whose connection was not parked. A hold, and what was granted after
// waiting, is taken back if its client has left, and then there is no answer, or if the answer cannot be
// sent.
func (w *waiter) answerInHandler(ctx *fasthttp.RequestCtx, atOnce bool) {
	w.leaveUser()
	kept, waited := false, !atOnce && w.responder.mayWait()
	if w.mustReachClient(waited) {
		// The client may have left while the store was asked. It must not read a fencing token for a hold
		// that was taken back, so the connection ends without an answer (docs/decisions/0022).
		if !atOnce && (clientGone(ctx.Conn()) || waited && hidesHangup(ctx.Conn())) {
			w.cancel()
			w.server.config.Budget.Release(w.charged)
			w.server.abandonConn(ctx)
			return
		}
		kept = takeBackUnsent(ctx.Conn(), w)
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

// parkAfterHandler has the connection parked once the handler has returned and the HTTP library is done with
// it.
func (w *waiter) parkAfterHandler(ctx *fasthttp.RequestCtx) {
	conn := ctx.Conn()
	p := &parkedConn{pacedConn: pacedConnOf(conn), waiter: w}
	// The library first sends the answers to earlier requests of a pipeline. When that fails, it closes the
	// connection at once, which takes the request out of line.
	p.parking.Store(p)
	ctx.HijackSetNoResponse(true)
	// Behind this the library gives its buffer back and closes the connection, which parks it.
	ctx.Hijack(func(hijacked net.Conn) { p.keepUnread(conn, hijacked) })
}

// onDecision is called by the gate when the request is decided, once, also after a cancel. It does not write:
// the gate must not wait for a socket.
func (w *waiter) onDecision(*gate.Request) {
	w.mu.Lock()
	w.hasDecision = true
	early := w.early
	if w.late {
		w.decidedAt = w.server.metrics.Now()
	}
	// Without conn the request is not parked yet, and parkConn will find the decision.
	ready := w.conn != nil && !w.finished
	w.finished = w.finished || ready
	w.mu.Unlock()
	if early != nil {
		close(early)
	}
	if ready {
		w.server.writers.enqueueWaiter(w)
	}
}

// parkConn takes the connection over from the HTTP library.
func (w *waiter) parkConn(p *parkedConn) {
	err := w.server.parkConn(p)
	if err != nil {
		w.onHangup()
		return
	}
	// The decision and the hang-up may both have come while the connection was being parked. Neither could
	// act on it then, so whatever came first is done here.
	w.mu.Lock()
	w.conn = p
	gone := w.finished
	ready := w.hasDecision && !w.finished
	w.finished = w.finished || ready
	w.mu.Unlock()
	switch {
	case gone:
		p.closeParked()
	case ready:
		w.server.writers.enqueueWaiter(w)
	case w.stream != nil:
		w.beginStream()
	}
}

// onHangup is called when the client is gone. It takes the request out of line.
func (w *waiter) onHangup() {
	w.mu.Lock()
	finished := w.finished
	w.finished = true
	conn := w.conn
	w.mu.Unlock()
	// A request that is being answered takes back its own grant: writeAnswer asks the socket, and its write
	// fails. To cancel here as well would do that twice.
	if finished {
		return
	}
	w.countWaiting(w.server.metrics.Now())
	w.server.metrics.Hangups.Inc()
	w.stopStream()
	w.endWait()
	w.cancel()
	// Without conn, parkConn closes the connection when it gets there.
	if conn != nil {
		conn.closeParked()
	}
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

// usualAnswer is how many bytes the headers of most answers have at most.
const usualAnswer = 256

// writeAnswer answers the parked connection.
func (w *waiter) writeAnswer() {
	w.countWaiting(w.decidedAt)
	w.leaveUser()
	event, begun := w.endStream()
	// A write to a client that has closed succeeds: only its reset tells, and that comes later. So the socket
	// is asked first, where that matters.
	if w.mustReachClient(true) && clientGone(w.conn) {
		w.takeBackGrant()
		return
	}
	if begun {
		w.countReply(fasthttp.StatusOK)
		w.sendAnswer(event, true)
		return
	}
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	// The response is not that of the handler, so that headers for all answers are set here again.
	forbidStoring(resp)
	if w.responder.requestID != "" {
		setTextHeader(resp, headerRequestID, w.responder.requestID)
	}
	w.fillResponse(resp)
	// The HTTP server does these when it writes a response. It has no part in this one.
	last := w.responder.closeAfter || w.server.stopping.Load()
	if last {
		resp.SetConnectionClose()
	} else if w.responder.http10 {
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	if resp.StatusCode() != fasthttp.StatusNoContent {
		resp.Header.SetContentLength(len(resp.Body()))
	}
	w.countReply(resp.StatusCode())
	message := make([]byte, 0, usualAnswer+len(resp.Body()))
	w.sendAnswer(append(resp.Header.AppendBytes(message), resp.Body()...), last)
}

// fillResponse writes the decision, or the result of the task, into resp.
func (w *waiter) fillResponse(resp *fasthttp.Response) {
	if w.task == nil {
		w.responder.writeDecision(resp, w.Decision, w.Err)
		return
	}
	w.task.writeTask(resp, &w.responder)
	// A list may be long, and a client that does not read keeps it in memory. The answer to a decision is
	// never longer than budget.Tiny.
	size := len(resp.Body())
	switch {
	case size <= budget.Tiny:
	case w.server.config.Budget.Take(size):
		w.charged = size
	default:
		w.task.writeShort(resp, &w.responder)
	}
}

// sendAnswer writes the answer. A client that does not read, so that its buffer is full, delays no other one:
// it gets the rest from a goroutine of its own, which ends with the write timeout.
func (w *waiter) sendAnswer(message []byte, last bool) {
	// Nearly every answer fits into the socket's buffer. Without epoll, sent is always 0.
	sent, err := w.conn.writeNow(message)
	if err == nil && sent < len(message) {
		go func() {
			// A parked connection has no write timeout of the HTTP server, hence a timer.
			stuck := time.AfterFunc(w.server.config.WriteTimeout, w.conn.closeParked)
			err := w.conn.writeRest(message[sent:])
			stuck.Stop()
			w.afterSending(err, last)
		}()
		return
	}
	w.afterSending(err, last)
}

// afterSending closes the connection or makes it idle, after its answer was written or could not be.
func (w *waiter) afterSending(err error, last bool) {
	// On every path, as the answer is in no memory of this server any more.
	w.server.config.Budget.Release(w.charged)
	switch {
	case err != nil:
		w.takeBackGrant()
	case last:
		w.conn.closeParked()
	default:
		w.conn.awaitRequest()
	}
}

// takeBackGrant takes back what was granted to a client that is gone.
func (w *waiter) takeBackGrant() {
	w.server.metrics.Hangups.Inc()
	w.cancel()
	w.conn.closeParked()
}
