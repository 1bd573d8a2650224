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
	server *Server
	reply  reply
	list   *list         // nil unless the request is one for names
	cancel func()        // takes the command out of line, or takes back its grant
	early  chan struct{} // closed when it is settled; nil when nobody waits for that

	mu       sync.Mutex
	conn     *parked // nil while the request's handler still runs
	settled  bool    // decision and err are there
	over     bool    // answered, or its client is gone
	decision gatehouse.Decision
	err      error
	decided  time.Duration // when they came, by the clock of the metrics

	charged int // bytes of the answer that are taken from the budget
}

// wait submits the request and answers it, at once if it can be, otherwise when it is decided. Until
// then the connection is parked.
func (s *Server) wait(ctx *fasthttp.RequestCtx, r *request, from *sender) {
	w := &waiter{server: s, reply: s.reply(ctx, r, from)}
	w.cancel = s.config.Gate.Submit(r.key, r.cmd, w.done)
	w.mu.Lock()
	settled := w.settled
	w.mu.Unlock()
	if settled {
		w.answer(ctx)
		return
	}
	w.leave(ctx)
}

// roundTrip is how long a request that may wait in line keeps its goroutine for the first answer of a slow
// store: most have come by then, and parking costs more than they do.
const roundTrip = 20 * time.Millisecond

// waitSlow is wait for a request whose store takes its time. Only one that may wait in line is parked.
func (s *Server) waitSlow(ctx *fasthttp.RequestCtx, r *request, from *sender) {
	w := &waiter{server: s, reply: s.reply(ctx, r, from), early: make(chan struct{})}
	w.cancel = s.config.Gate.Submit(r.key, r.cmd, w.done)
	if r.cmd.Op.Waits() && r.cmd.MaxWait != 0 {
		patience := time.NewTimer(roundTrip)
		defer patience.Stop()
		select {
		case <-w.early:
		case <-patience.C:
			w.leave(ctx)
			return
		}
	}
	<-w.early
	w.answer(ctx)
}

// answer answers a request whose connection was not parked. A hold is taken back if its client has left,
// which gets no answer then, or if the answer cannot be sent.
func (w *waiter) answer(ctx *fasthttp.RequestCtx) {
	if w.reply.holds && w.err == nil && w.decision.Outcome == gatehouse.Granted {
		if hungUp(ctx.Conn()) {
			w.cancel()
			w.server.abandon(ctx)
			return
		}
		takeBackUnsent(ctx.Conn(), w.cancel)
	}
	w.server.finish(ctx, &w.reply, &w.decision, w.err)
}

// hungUp reports whether the client is known to be gone at this instant.
func hungUp(conn net.Conn) bool {
	c := paced(conn)
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

// leave takes the connection away from the HTTP server.
func (w *waiter) leave(ctx *fasthttp.RequestCtx) {
	conn := ctx.Conn()
	if c := paced(conn); c != nil {
		// The HTTP server sends the answers to earlier requests first. When that fails it closes the
		// connection and never hands it over.
		gone := w.hungUp
		c.gone.Store(&gone)
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(hijacked net.Conn) { w.park(conn, hijacked) })
}

// done is called by the gate when the command is decided.
func (w *waiter) done(d gatehouse.Decision, err error) {
	w.mu.Lock()
	w.settled = true
	w.decision, w.err = d, err
	w.decided = w.server.metrics.Now()
	ready := w.conn != nil && !w.over
	w.over = w.over || ready
	w.mu.Unlock()
	if w.early != nil {
		close(w.early)
	}
	if ready {
		w.server.writers.add(w)
	}
}

// park takes the connection over from the HTTP server. What the client has sent already of its next
// request is kept for later.
func (w *waiter) park(conn, hijacked net.Conn) {
	if c := paced(conn); c != nil {
		c.gone.Store(nil)
	}
	p, err := w.server.park(conn, hijacked, w.hungUp)
	if err != nil {
		w.hungUp()
		return
	}
	w.mu.Lock()
	w.conn = p
	gone := w.over // hung up while it was being parked
	ready := w.settled && !w.over
	w.over = w.over || ready
	w.mu.Unlock()
	switch {
	case gone:
		p.close()
	case ready:
		w.server.writers.add(w)
	}
}

// hungUp is called when the client is gone.
func (w *waiter) hungUp() {
	w.mu.Lock()
	over := w.over
	w.over = true
	conn := w.conn
	w.mu.Unlock()
	if over {
		return // it is being answered; write sees that the client is gone
	}
	w.waited(w.server.metrics.Now())
	w.server.metrics.Hangups.Inc()
	w.cancel()
	if conn != nil {
		conn.close()
	}
}

// waited notes how long the request was in line. What follows is handling it again.
func (w *waiter) waited(until time.Duration) {
	if w.list != nil {
		return
	}
	w.server.metrics.requests.Of(w.reply.key.Kind, w.reply.op).Waited(until - w.reply.began)
	w.reply.began = until
}

// write answers the parked connection.
func (w *waiter) write() {
	w.waited(w.decided)
	if w.conn.hungUp() {
		w.lost()
		return
	}
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	forbidStoring(resp)
	w.fill(resp)
	last := w.reply.close || w.server.stopping.Load()
	if last {
		resp.SetConnectionClose()
	} else if w.reply.http10 {
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	if resp.StatusCode() != fasthttp.StatusNoContent {
		resp.Header.SetContentLength(len(resp.Body()))
	}
	if w.list == nil {
		w.server.count(&w.reply, telemetry.OutcomeOf(w.decision.Outcome, w.err), resp.StatusCode())
	} else {
		w.server.metrics.responded(resp.StatusCode())
	}
	w.send(append(resp.Header.AppendBytes(nil), resp.Body()...), last)
}

// fill makes the answer.
func (w *waiter) fill(resp *fasthttp.Response) {
	if w.list == nil {
		w.reply.answer(resp, &w.decision, w.err)
		return
	}
	w.list.answer(resp, &w.reply)
	size := len(resp.Body())
	switch {
	case size <= budget.Tiny:
	case w.server.config.Budget.Take(size):
		w.charged = size
	default:
		w.server.overloaded(resp, w.reply.json)
	}
}

// send writes the answer. A client whose buffer is full, because it does not read, keeps nobody else
// waiting: it gets the rest from a goroutine of its own, which ends with the write timeout.
func (w *waiter) send(message []byte, last bool) {
	sent, err := w.conn.writeNow(message)
	if err == nil && sent < len(message) {
		go func() {
			stuck := time.AfterFunc(w.server.config.WriteTimeout, w.conn.close)
			_, err := w.conn.Write(message[sent:])
			stuck.Stop()
			w.sent(err, last)
		}()
		return
	}
	w.sent(err, last)
}

// sent decides what becomes of a connection after its answer.
func (w *waiter) sent(err error, last bool) {
	w.server.config.Budget.Release(w.charged)
	switch {
	case err != nil:
		w.lost()
	case last:
		w.conn.close()
	default:
		w.conn.resume()
	}
}

// lost takes back what was granted to a client that is gone.
func (w *waiter) lost() {
	w.server.metrics.Hangups.Inc()
	w.cancel()
	w.conn.close()
}

// writers answer parked connections: up to so many goroutines, and none when there is nothing to do.
// They keep slow sockets away from the gate, and let many waiters be woken by every core.
type writers struct {
	mu    sync.Mutex
	queue []*waiter
	busy  int
	most  int
}

func (ws *writers) add(w *waiter) {
	ws.mu.Lock()
	ws.queue = append(ws.queue, w)
	start := ws.busy < ws.most
	if start {
		ws.busy++
	}
	ws.mu.Unlock()
	if start {
		go ws.work() // ends when the queue is empty
	}
}

func (ws *writers) work() {
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
		w.write()
	}
}
