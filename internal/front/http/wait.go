package http

import (
	"net"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// A waiter is a request that waits for its decision. The dangerous instant is when it is granted
// while its client goes away: whatever was granted to a client that is known to be gone is taken
// back, and a client that went away while it waited takes nothing with it.
type waiter struct {
	server       *Server
	responder    responder
	list         *nameList     // nil unless the request is one for names
	cancel       func()        // takes the command out of line, or takes back its grant
	decidedEarly chan struct{} // closed when it is settled; nil when nobody waits for that

	mu          sync.Mutex
	conn        *parkedConn // nil while the request's handler still runs
	hasDecision bool        // decision and err are there
	finished    bool        // answered, or its client is gone
	decision    gatehouse.Decision
	err         error
	decidedAt   time.Duration // when they came, by the clock of the metrics

	charged int // bytes of the answer that are taken from the budget
}

// waitForDecision submits the request and answers it, at once if it can be, otherwise when it is decided.
// Until then the connection is parked.
func (s *Server) waitForDecision(ctx *fasthttp.RequestCtx, r *httpRequest, from *sender) {
	w := &waiter{server: s, responder: s.newResponder(ctx, r, from)}
	w.cancel = s.config.Gate.Submit(r.key, r.cmd, w.onDecision)
	w.mu.Lock()
	settled := w.hasDecision
	w.mu.Unlock()
	if settled {
		w.answerInHandler(ctx)
		return
	}
	w.parkAfterHandler(ctx)
}

// slowStorePatience is how long a request that may wait in line keeps its goroutine for the first answer of a
// slow store: most have come by then, and parking costs more than they do.
const slowStorePatience = 20 * time.Millisecond

// waitForSlowStore is wait for a request whose store takes its time. Only one that may wait in line is
// parked.
func (s *Server) waitForSlowStore(ctx *fasthttp.RequestCtx, r *httpRequest, from *sender) {
	w := &waiter{server: s, responder: s.newResponder(ctx, r, from), decidedEarly: make(chan struct{})}
	w.cancel = s.config.Gate.Submit(r.key, r.cmd, w.onDecision)
	if r.cmd.Op.Waits() && r.cmd.MaxWait != 0 {
		patience := time.NewTimer(slowStorePatience)
		defer patience.Stop()
		select {
		case <-w.decidedEarly:
		case <-patience.C:
			w.parkAfterHandler(ctx)
			return
		}
	}
	<-w.decidedEarly
	w.answerInHandler(ctx)
}

// answerInHandler answers a request whose connection was not parked. A hold is taken back if its client has
// left, which gets no answer then, or if the answer cannot be sent.
func (w *waiter) answerInHandler(ctx *fasthttp.RequestCtx) {
	if w.responder.holds && w.err == nil && w.decision.Outcome == gatehouse.Granted {
		if clientGone(ctx.Conn()) {
			w.cancel()
			w.server.abandonConn(ctx)
			return
		}
		takeBackUnsent(ctx.Conn(), w.cancel)
	}
	w.server.answerInHandler(ctx, &w.responder, &w.decision, w.err)
}

// clientGone reports whether the client is known to be gone at this instant.
func clientGone(conn net.Conn) bool {
	c := pacedConnOf(conn)
	if c == nil {
		return false
	}
	if w, ok := c.Conn.(peer.Watched); ok {
		return w.Gone()
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) { gone = peer.Gone(int32(fd)) }) // #nosec G115 -- a descriptor
	return gone || err != nil
}

// parkAfterHandler takes the connection away from the HTTP server.
func (w *waiter) parkAfterHandler(ctx *fasthttp.RequestCtx) {
	conn := ctx.Conn()
	if c := pacedConnOf(conn); c != nil {
		// The HTTP server sends the answers to earlier requests first. When that fails it closes the
		// connection and never hands it over.
		gone := w.onHangup
		c.onGone.Store(&gone)
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(hijacked net.Conn) { w.parkConn(conn, hijacked) })
}

// onDecision is called by the gate when the command is decided.
func (w *waiter) onDecision(d gatehouse.Decision, err error) {
	w.mu.Lock()
	w.hasDecision = true
	w.decision, w.err = d, err
	w.decidedAt = w.server.metrics.Now()
	ready := w.conn != nil && !w.finished
	w.finished = w.finished || ready
	w.mu.Unlock()
	if w.decidedEarly != nil {
		close(w.decidedEarly)
	}
	if ready {
		w.server.writers.enqueueWaiter(w)
	}
}

// parkConn takes the connection over from the HTTP server. What the client has sent already of its next
// request is kept for later.
func (w *waiter) parkConn(conn, hijacked net.Conn) {
	if c := pacedConnOf(conn); c != nil {
		c.onGone.Store(nil)
	}
	p, err := w.server.parkConn(conn, hijacked, w.onHangup)
	if err != nil {
		w.onHangup()
		return
	}
	w.mu.Lock()
	w.conn = p
	gone := w.finished // hung up while it was being parked
	ready := w.hasDecision && !w.finished
	w.finished = w.finished || ready
	w.mu.Unlock()
	switch {
	case gone:
		p.closeParked()
	case ready:
		w.server.writers.enqueueWaiter(w)
	}
}

// onHangup is called when the client is gone.
func (w *waiter) onHangup() {
	w.mu.Lock()
	over := w.finished
	w.finished = true
	conn := w.conn
	w.mu.Unlock()
	if over {
		return // it is being answered; write sees that the client is gone
	}
	w.countWaiting(w.server.metrics.Now())
	w.server.metrics.Hangups.Inc()
	w.cancel()
	if conn != nil {
		conn.closeParked()
	}
}

// countWaiting notes how long the request was in line. What follows is handling it again.
func (w *waiter) countWaiting(until time.Duration) {
	if w.list != nil {
		return
	}
	w.server.metrics.requests.Of(w.responder.key.Kind, w.responder.op).Waited(until - w.responder.began)
	w.responder.began = until
}

// writeAnswer answers the parked connection.
func (w *waiter) writeAnswer() {
	w.countWaiting(w.decidedAt)
	if w.conn.clientGone() {
		w.takeBackGrant()
		return
	}
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	forbidStoring(resp)
	w.fillResponse(resp)
	last := w.responder.closeAfter || w.server.stopping.Load()
	if last {
		resp.SetConnectionClose()
	} else if w.responder.http10 {
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	if resp.StatusCode() != fasthttp.StatusNoContent {
		resp.Header.SetContentLength(len(resp.Body()))
	}
	if w.list == nil {
		w.server.countReply(&w.responder, telemetry.OutcomeOf(w.decision.Outcome, w.err), resp.StatusCode())
	} else {
		w.server.metrics.countResponse(resp.StatusCode())
	}
	w.sendAnswer(append(resp.Header.AppendBytes(nil), resp.Body()...), last)
}

// fillResponse makes the answer.
func (w *waiter) fillResponse(resp *fasthttp.Response) {
	if w.list == nil {
		w.responder.writeDecision(resp, &w.decision, w.err)
		return
	}
	w.list.writeList(resp, &w.responder)
	size := len(resp.Body())
	switch {
	case size <= budget.Tiny:
	case w.server.config.Budget.Take(size):
		w.charged = size
	default:
		w.server.writeOverloaded(resp, w.responder.wantsJSON)
	}
}

// sendAnswer writes the answer. A client whose buffer is full, because it does not read, keeps nobody else
// waiting: it gets the rest from a goroutine of its own, which ends with the write timeout.
func (w *waiter) sendAnswer(message []byte, last bool) {
	sent, err := w.conn.writeNow(message)
	if err == nil && sent < len(message) {
		go func() {
			stuck := time.AfterFunc(w.server.config.WriteTimeout, w.conn.closeParked)
			_, err := w.conn.Write(message[sent:])
			stuck.Stop()
			w.afterSending(err, last)
		}()
		return
	}
	w.afterSending(err, last)
}

// afterSending decides what becomes of a connection after its answer.
func (w *waiter) afterSending(err error, last bool) {
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

// answerWriters answer parked connections: up to so many goroutines, and none when there is nothing to do.
// They keep slow sockets away from the gate, and let many waiters be woken by every core.
type answerWriters struct {
	mu      sync.Mutex
	queue   []*waiter
	busy    int
	maxBusy int
}

func (ws *answerWriters) enqueueWaiter(w *waiter) {
	ws.mu.Lock()
	ws.queue = append(ws.queue, w)
	start := ws.busy < ws.maxBusy
	if start {
		ws.busy++
	}
	ws.mu.Unlock()
	if start {
		go ws.writeQueued() // ends when the queue is empty
	}
}

func (ws *answerWriters) writeQueued() {
	for {
		ws.mu.Lock()
		if len(ws.queue) == 0 {
			ws.busy--
			ws.queue = nil
			ws.mu.Unlock()
			return
		}
		w := ws.queue[0]
		ws.queue[0] = nil
		ws.queue = ws.queue[1:]
		ws.mu.Unlock()
		w.writeAnswer()
	}
}
