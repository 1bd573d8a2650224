package http

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// answerSeveral answers a request about several names: a grant, or a batch. ok is false if the path is
// another.
func (s *Server) answerSeveral(ctx *fasthttp.RequestCtx, path, query []byte, from *sender) (ok bool) {
	t, ok := readSeveral(path)
	if !ok {
		return false
	}
	from.wantsJSON = true // whoever sends JSON reads it
	method, _, _ := strings.Cut(t.allow, ",")
	var p *rejection
	switch {
	case string(ctx.Method()) != method:
		p = wrongMethod(ctx.Method(), t.allow)
	case t.odd:
		p = redirectTo(ctx.Method(), withQuery(t.properPath(), query))
	case len(query) > 0:
		p = badRequest("query is %s, want all of it in the body as JSON", params.Quote(query))
	}
	switch {
	case p != nil:
		// This may be the browser's preflight, as it is for a route.
		if s.allowedOrigin(from) != "" {
			ctx.Response.Header.Set(fasthttp.HeaderAccessControlAllowHeaders, fasthttp.HeaderContentType)
		}
		s.rejectRequest(ctx, from, p)
	case !s.checkOrigin(ctx, from):
	case t.batch:
		s.answerBatch(ctx, from)
	default:
		s.answerGrant(ctx, &t, from)
	}
	return true
}

// A grantTask is an operation on a grant over several names.
type grantTask struct {
	gate.GrantRequest
	server *Server
	stream bool    // its places are told as a stream of events, and then its outcome
	waiter *waiter // its own

	// What is read, until the command has it.
	values params.GrantValues
	member params.MemberValues

	// What is written, until it is in the response.
	wantText []byte
	object   jsonObject
}

// newGrantTask returns a task that is used for one request after the other.
func newGrantTask(s *Server) *grantTask {
	g := &grantTask{server: s}
	g.waiter = &waiter{server: s, task: g, room: new(gatehouse.Decision)}
	g.Decided = func(*gate.GrantRequest) { g.waiter.onDecision(nil) }
	return g
}

// prepare makes the task that of a request, which has only its operation yet.
func (g *grantTask) prepare(op gatehouse.Op) {
	// The memory of what was wanted before is used again.
	g.Command = gatehouse.GrantCommand{Op: op, Want: g.Command.Want[:0]}
	// It is checked where it is read.
	g.Checked, g.stream, g.Judge = true, false, nil
	w := g.waiter
	w.late, w.hasDecision, w.decidedAt, w.charged = false, false, 0, 0
}

// answerGrant puts an operation on a grant to the gate. A client that has left gets no grant.
func (s *Server) answerGrant(ctx *fasthttp.RequestCtx, t *severalTarget, from *sender) {
	g := s.grantPool.Get().(*grantTask)
	g.prepare(t.op)
	cmd := &g.Command
	from.began = s.metrics.Now()
	if p := g.readGrantRequest(ctx, t, from); p != nil {
		s.metrics.countMalformed(gatehouse.Grant, t.op, from.began)
		s.rejectRequest(ctx, from, p)
		s.grantPool.Put(g)
		return
	}
	// As for a single hold, this is asked before the store is.
	if params.TakesForRecord(cmd) && clientGone(ctx) {
		s.abandonConn(ctx)
		return
	}
	w := g.waiter
	w.responder = s.newResponder(ctx, from)
	r := &w.responder
	r.key = gatehouse.Key{Kind: gatehouse.Grant, Name: cmd.ID}
	r.op, r.maxWait, r.v1, r.stream = cmd.Op, cmd.MaxWait, true, g.stream
	if !w.enterUser(ctx, from) {
		s.grantPool.Put(g)
		return
	}
	s.config.Gate.SubmitGrant(&g.GrantRequest)
	w.answerOrWait(ctx, from)
}

// readGrantRequest reads the id and the body of a request.
func (g *grantTask) readGrantRequest(ctx *fasthttp.RequestCtx, t *severalTarget, from *sender) *rejection {
	cmd := &g.Command
	if t.id != nil {
		id, ok := decodePercent(t.id, false)
		if !ok {
			return badEscape("id", t.id)
		}
		cmd.ID = string(id)
	}
	var err error
	g.values.Reset()
	if cmd.Op != gatehouse.OpPeek {
		err = g.readGrant(ctx.Request.Body())
	}
	if err == nil {
		err = cmd.Check()
	}
	if err != nil {
		return badRequest("%s", err)
	}
	cmd.Explain = cmd.Op == gatehouse.OpAcquire
	cmd.Origin = g.server.noteOrigin(from)
	// As for a hold: a repeated request must be the same grant.
	g.stream = cmd.Op == gatehouse.OpAcquire && bytes.Contains(from.accept, []byte(eventStreamType))
	if g.stream && !g.values.HasID() {
		return reject(fasthttp.StatusNotAcceptable,
			"Accept is %s, which needs an id, so that a repeated request is the same grant", eventStreamType)
	}
	return nil
}

// cancelTask implements [waiterTask].
func (g *grantTask) cancelTask() { g.server.config.Gate.CancelGrant(&g.GrantRequest) }

// mustReach implements [waiterTask]. A grant with a record holds something, even if that is only the right
// to settle; and a client that repeats a topup because it got no answer would pay twice.
func (g *grantTask) mustReach(waited bool) bool {
	return g.Err == nil && g.Decision.Outcome == gatehouse.Granted &&
		(waited || params.TakesForRecord(&g.Command))
}

// countTask implements [waiterTask].
func (g *grantTask) countTask(s *Server, r *responder, status int) {
	s.countReply(r, telemetry.OutcomeOf(g.Decision.Outcome, g.Err), status)
}

// writeTask implements [waiterTask].
func (g *grantTask) writeTask(resp *fasthttp.Response, r *responder) {
	g.writeGrant(resp, r, g.wantJSON())
}

// writeShort implements [waiterTask]: it leaves the names out. The grant is there, so that its client has to
// learn of it.
func (g *grantTask) writeShort(resp *fasthttp.Response, r *responder) { g.writeGrant(resp, r, nil) }

// writeGrant writes the decision as a response, with what it says of each name.
func (g *grantTask) writeGrant(resp *fasthttp.Response, r *responder, want []byte) {
	allowOrigin(resp, r.origin)
	d := &g.Decision
	switch {
	case r.stream && g.Err == nil:
		resp.Header.SetContentType(eventStreamType)
		resp.Header.Set(headerNoSniff, "nosniff")
		resp.SetBodyRaw(g.outcomeEvent(r, want))
		return
	case g.Err != nil:
		f := errorRejection(g.Err)
		f.writeTo(resp, true)
		return
	case d.Outcome != gatehouse.Granted:
		setDecisionHeader(resp, d.Number)
		f := g.denialOf(r.maxWait, want)
		f.writeTo(resp, true)
		return
	}
	if d.ID != "" {
		setUintHeader(resp, headerFence, d.Fence)
		setUintHeader(resp, headerExpires, uint64(g.timeLeft().Milliseconds())) // from 0
	}
	describeJSON(resp, "application/json")
	g.object = append(g.grantObject(append(g.object[:0], '{'), want), '}')
	resp.SetBody(g.object)
}

// timeLeft is how long the grant lasts.
func (g *grantTask) timeLeft() time.Duration {
	if g.Command.Op == gatehouse.OpRelease {
		return 0 // it has ended with this
	}
	return g.Decision.ExpiresAfter
}

// grantObject adds what a grant is answered, with what it says of each name.
func (g *grantTask) grantObject(o jsonObject, want []byte) jsonObject {
	d := &g.Decision
	if d.ID != "" {
		o = o.addText("id", d.ID).addRaw("fence", fmt.Append(nil, d.Fence))
		// A time left is rounded down: a client never relies on more than it has.
		o = o.addNumber("expires_in", params.FloorMillis(g.timeLeft()))
	}
	if g.Command.Op == gatehouse.OpPeek {
		o = o.addRaw("ended", fmt.Append(nil, d.Ended))
	}
	if want != nil {
		o = o.addRaw("want", want)
	}
	return o
}

// outcomeEvent returns the last event of a stream.
func (g *grantTask) outcomeEvent(r *responder, want []byte) []byte {
	switch {
	case g.Err != nil:
		return r.outcomeEvent(nil, g.Err)
	case g.Decision.Outcome == gatehouse.Granted:
		return appendRawEvent(nil, g.Decision.Outcome.String(), g.grantObject(nil, want).closeObject())
	}
	f := g.denialOf(r.maxWait, want)
	return appendRawEvent(nil, g.Decision.Outcome.String(), f.problemJSON())
}

// wantJSON is appendWant, until the task is used again.
func (g *grantTask) wantJSON() []byte {
	if len(g.Decision.Want) == 0 {
		return nil
	}
	g.wantText = appendWant(g.wantText[:0], &g.GrantRequest)
	return g.wantText
}

// wantJSON returns an array of what was decided about each name; nil if nothing was.
func wantJSON(g *gate.GrantRequest) []byte { return appendWant(nil, g) }

// appendWant appends an array of what was decided about each name, and nothing if nothing was.
func appendWant(out []byte, g *gate.GrantRequest) []byte {
	if len(g.Decision.Want) == 0 {
		return nil
	}
	out = append(out, '[')
	for i := range g.Decision.Want {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendMember(out, g, i)
	}
	return append(out, ']')
}

// appendMember appends what was decided about one name. Where the grant was not given, that has an outcome,
// and its cost is the one that was wanted.
func appendMember(out []byte, g *gate.GrantRequest, i int) []byte {
	m := &g.Decision.Want[i]
	granted := g.Decision.Outcome == gatehouse.Granted
	cost := m.Cost
	if !granted && i < len(g.Command.Want) {
		cost = g.Command.Want[i].Cost
	}
	o := jsonObject(append(out, '{'))
	o = o.addText(m.Key.Kind.String(), m.Key.Name).addNumber("cost", cost)
	if m.Booked > 0 {
		o = o.addNumber("booked", m.Booked)
	}
	if m.Capped > 0 {
		o = o.addNumber("capped", m.Capped)
	}
	if !granted {
		o = o.addText("outcome", m.Outcome.String())
	}
	// A limiter that is stopped, or a semaphore that was asked who holds, has more to say than figures.
	if !granted && m.Outcome == gatehouse.Refused && m.Message != "" {
		o = o.addText("detail", m.Key.String()+" "+m.Message)
	}
	// An operation looks only at the names that it is about.
	if granted && m.Limit == 0 {
		return append(o, '}')
	}
	o = o.addFigures(m.Key.Kind, &m.Decision)
	if g.Command.Op == gatehouse.OpDelay && granted {
		o = o.addNumber("delay", params.CeilMillis(m.Delay))
	}
	return append(o, '}')
}

// denialOf returns the answer to any outcome other than a grant. It names the member that decided.
func (g *grantTask) denialOf(maxWait time.Duration, want []byte) rejection {
	d := &g.Decision
	f := rejection{
		status: outcomeStatuses[d.Outcome], detail: g.denialText(maxWait), code: d.Outcome.String(),
	}
	var o jsonObject
	if d.Binding >= 0 && d.Binding < len(d.Want) {
		o = o.addRaw("binding", appendMember(nil, &g.GrantRequest, d.Binding))
	}
	f.more = o
	if d.Outcome != gatehouse.Refused {
		return f
	}
	// How the names stand is of use to somebody who tries again.
	if want != nil {
		f.more = o.addRaw("want", want)
	}
	f.status, f.number = fasthttp.StatusTooManyRequests, d.Number
	f.violated = []string{}
	for i := range d.Want {
		if d.Want[i].Outcome == gatehouse.Refused {
			f.violated = append(f.violated, d.Want[i].Key.String())
		}
	}
	if d.RetryAfter != gatehouse.Forever {
		f.retryAfter = max(1, d.RetryAfter) // 0 would leave the header out
	}
	return f
}

// shownID is the id of the grant as its user calls it.
func (g *grantTask) shownID() string { return g.waiter.responder.key.Name }

// denialText returns the sentence that says why there is no grant. The last look at a request is one without
// its maxWait, so that the command does not tell that.
func (g *grantTask) denialText(maxWait time.Duration) string {
	d, cmd := &g.Decision, &g.Command
	switch {
	case d.Outcome == gatehouse.Missing && d.Message == "":
		return fmt.Sprintf("grant/%s does not exist: it never did, or ended long ago", g.shownID())
	case d.Outcome != gatehouse.Refused:
		return cmp.Or(d.Message, "the decision on grant/"+g.shownID()+" is "+d.Outcome.String())
	}
	when := "only another request can change that"
	if d.RetryAfter != gatehouse.Forever {
		when = fmt.Sprintf("try again in %d ms", ratelimit.CeilUnits(d.RetryAfter, time.Millisecond))
	}
	within := "at once"
	if maxWait != 0 {
		within = fmt.Sprintf("within maxwait=%d ms", maxWait.Milliseconds())
	}
	// None of its names refused: there was room, which requests before it are to have.
	binds := "others wait for these names"
	if d.Binding >= 0 && d.Binding < len(d.Want) {
		m := &d.Want[d.Binding]
		binds = m.Key.String() + " " + cmp.Or(m.Message, "allows no more")
	}
	return fmt.Sprintf("%s of %d names not granted %s: %s; %s", cmd.Op,
		max(len(cmd.Want), len(cmd.Costs)), within, binds, when)
}
