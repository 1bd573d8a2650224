package http

import (
	"bytes"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// maxBatch is the largest number of commands in one batch.
const maxBatch = 1000

// A batchTask is a batch of commands, each of which is judged apart.
type batchTask struct {
	server   *Server
	commands []*batchCommand
	left     atomic.Int32 // groups that are not decided
	done     func()       // called when none is left

	// The keys and holders as the user calls them; nil if rights are off.
	keys    []gatehouse.Key
	holders []string
}

// A batchCommand is one command of a batch.
type batchCommand struct {
	gate.Request
	room  gatehouse.Decision
	fault error // why it was not put to the gate; nil if it was
	pass  access.Pass
}

// A batchGroup is the commands of a batch for one key. They are decided in their order: a part of them at a
// time, as many as the gate takes together.
type batchGroup struct {
	task    *batchTask
	rest    []*gate.Request // that are not submitted
	pending atomic.Int32    // that are submitted and not decided
}

// answerBatch judges a batch. None of its commands waits in line: it is answered once the store has decided
// on all of them.
func (s *Server) answerBatch(ctx *fasthttp.RequestCtx, from *sender) {
	from.began = s.metrics.Now()
	b := &batchTask{server: s}
	if err := b.readBatch(ctx.Request.Body()); err != nil {
		s.metrics.countMalformed(0, 0, from.began)
		s.rejectRequest(ctx, from, badRequest("%s", err))
		return
	}
	if b.hasHold() && clientGone(ctx) {
		s.abandonConn(ctx)
		return
	}
	// Before the user is added to it.
	for _, c := range b.commands {
		if c.fault == nil {
			c.Command.Origin = s.noteOrigin(from) // its own, as each is decided by itself
		}
	}
	w := &waiter{server: s, task: b, responder: s.newResponder(ctx, from)}
	// Room for the shortest answer is taken in advance. What was done cannot be taken back when there is
	// none.
	if size := shortAnswer * len(b.commands); size > budget.Tiny {
		if !s.config.Budget.Take(size) {
			s.rejectRequest(ctx, from, reject(fasthttp.StatusServiceUnavailable, "%s", errBufferedTooMuch))
			return
		}
		w.charged = size
	}
	// Behind all that may refuse the batch: what is let in is counted until it is decided.
	if from.user != nil {
		b.enterUser(from.user, peer.Source(ctx.Conn()))
	}
	b.done = func() { w.onDecision(nil) }
	b.submitCommands()
	w.answerOrWait(ctx, from)
}

// enterUser judges each command for the user of the batch. One that is refused is answered so; the others go
// on.
func (b *batchTask) enterUser(user *access.User, address netip.Addr) {
	b.keys = make([]gatehouse.Key, len(b.commands))
	b.holders = make([]string, len(b.commands))
	for i, c := range b.commands {
		// Enter turns them into those of the gate, and the answer has them as the client wrote them.
		b.keys[i], b.holders[i] = c.Key, c.Command.Holder
		// Each is judged by itself, as each has an answer of its own in the batch.
		if c.fault == nil {
			c.pass, c.fault = user.Enter(&c.Key, &c.Command)
			c.pass.Address, c.pass.Protocol = address, telemetry.HTTP
			b.server.config.Users.CountFailure(telemetry.HTTP, c.fault, address, user)
		}
	}
}

// leaveUser makes what was decided something that the user may see.
func (b *batchTask) leaveUser() {
	for _, c := range b.commands {
		if c.fault != nil || b.keys == nil {
			continue
		}
		c.Err = c.pass.Leave(c.Key, &c.Command, c.Decision, c.Err)
	}
}

// shown is the key and the holder of a command as its client calls them.
func (b *batchTask) shown(i int, c *batchCommand) (key gatehouse.Key, holder string) {
	if b.keys == nil {
		return c.Key, c.Command.Holder
	}
	return b.keys[i], b.holders[i]
}

// shortAnswer is more than the bytes of an answer that has only an outcome.
const shortAnswer = 64

// readBatch reads the body. A fault of its form concerns all commands; one in a value is its command's alone.
func (b *batchTask) readBatch(body []byte) error {
	r, err := newJSONReader(body)
	if err != nil {
		return err
	}
	err = r.readObject("body", func(name []byte) error {
		if string(name) != "commands" {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is unknown, want commands", params.Quote(name))
		}
		return r.readArray("commands", func(i int) error {
			// A list that is too long is not read to its end.
			if i == maxBatch {
				return gatehouse.Errorf(gatehouse.CodeInvalid, "commands are more than %d", maxBatch)
			}
			c := new(batchCommand)
			if err := c.readCommand(&r); err != nil {
				return gatehouse.Errorf(gatehouse.CodeInvalid, "commands[%d]: %w", i, err)
			}
			b.commands = append(b.commands, c)
			return nil
		})
	})
	if err == nil {
		err = r.endText()
	}
	if err == nil && len(b.commands) == 0 {
		err = gatehouse.Errorf(gatehouse.CodeInvalid, "commands is missing or empty, want 1 to %d", maxBatch)
	}
	return err
}

// readCommand reads one command.
func (c *batchCommand) readCommand(r *jsonReader) error {
	var values params.Values
	var op []byte
	// Everywhere else the default is to wait without limit.
	values.TrySet([]byte("maxwait"), []byte("0"))
	err := r.readObject("this", func(name []byte) error {
		v, err := r.readScalar(name)
		if err != nil {
			return err
		}
		if kind, ok := gatehouse.ParseKind(string(name)); ok && kind != gatehouse.Grant {
			return setKey(&c.Key, kind, &v)
		}
		switch {
		case string(name) == "op":
			op = v.text
		case bytes.EqualFold(name, []byte("maxwait")) && string(v.text) != "0":
			return gatehouse.Errorf(gatehouse.CodeInvalid, "maxwait is %s, want 0, because no command of a "+
				"batch waits", params.Quote(v.text))
		case !values.TrySet(name, v.text):
			return params.Unknown(name, "op")
		}
		return v.checkForm(name)
	})
	if err != nil {
		return err
	}
	if c.Key.Kind == 0 {
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			`no name is given, want one by its kind, such as "gcra":"api"`)
	}
	var ok bool
	c.Command.Op, ok = gatehouse.ParseOp(string(op))
	if !ok || !batchHas(c.Key.Kind, c.Command.Op) {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "op is %s, want one of %s for a %s", params.Quote(op),
			strings.Join(opNames(c.Key.Kind, batchHas), " "), c.Key.Kind)
	}
	c.Decision, c.Checked = &c.room, true
	c.fault = values.Read(c.Key.Kind, &c.Command)
	if values.HasParents() {
		c.fault = params.ErrNoParents // each command of a batch is decided on its own
	}
	if c.fault == nil {
		c.fault = c.Command.Check(c.Key)
	}
	return nil
}

// batchHas reports whether an operation of a kind may be in a batch: any but a delete, an undo and a list,
// which is an answer of its own.
func batchHas(kind gatehouse.Kind, op gatehouse.Op) bool {
	return op < gatehouse.OpDelete && !isReport(op) && kind.Has(op)
}

// opNames returns the names of the operations that a kind has, as has tells, those to delete and to undo left
// out.
func opNames(kind gatehouse.Kind, has func(gatehouse.Kind, gatehouse.Op) bool) (names []string) {
	for op := gatehouse.OpAcquire; op < gatehouse.OpDelete; op++ {
		if has(kind, op) {
			names = append(names, op.String())
		}
	}
	return names
}

// submitCommands puts the commands to the gate. Those for different names may be decided in any order, and
// those for one name are in theirs.
func (b *batchTask) submitCommands() {
	groups := make(map[gatehouse.Key]*batchGroup)
	var inOrder []*batchGroup
	for _, c := range b.commands {
		if c.fault != nil {
			continue
		}
		c.Command.Keep = b.server.config.Keep
		g := groups[c.Key]
		if g == nil {
			g = &batchGroup{task: b}
			groups[c.Key] = g
			inOrder = append(inOrder, g)
		}
		c.Decided = g.onDecided
		g.rest = append(g.rest, &c.Request)
	}
	// One more keeps the last group from ending the task while this still submits.
	b.left.Store(int32(len(inOrder) + 1)) // at most maxBatch and one
	for _, g := range inOrder {
		g.submitNext()
	}
	b.endGroup()
}

// submitNext submits as many commands as the gate takes together.
func (g *batchGroup) submitNext() {
	next := g.rest[:min(len(g.rest), gate.MaxTogether)]
	g.rest = g.rest[len(next):]
	g.pending.Store(int32(len(next))) // at most gate.MaxTogether
	g.task.server.config.Gate.Submit(next...)
}

// onDecided is called by the gate for each command of the group.
func (g *batchGroup) onDecided(*gate.Request) {
	if g.pending.Add(-1) > 0 {
		return
	}
	if len(g.rest) > 0 {
		g.submitNext()
		return
	}
	g.task.endGroup()
}

// endGroup notes that a group is decided.
func (b *batchTask) endGroup() {
	if b.left.Add(-1) == 0 {
		b.done()
	}
}

// acquiresHold reports whether a command acquires a hold.
func (c *batchCommand) acquiresHold() bool {
	return c.fault == nil && params.TakesForClient(c.Command.Op, c.Key.Kind, false)
}

// hasHold reports whether a command of the batch acquires a hold.
func (b *batchTask) hasHold() bool {
	for _, c := range b.commands {
		if c.acquiresHold() {
			return true
		}
	}
	return false
}

// cancelTask implements [waiterTask]: it takes back what is held. Everything else is done, as it is for a
// single command whose client has left.
func (b *batchTask) cancelTask() {
	for _, c := range b.commands {
		if c.acquiresHold() {
			c.pass.TakeBack(c.Key, &c.Command)
			b.server.config.Gate.Cancel(&c.Request)
		}
	}
}

// mustReach implements [waiterTask].
func (b *batchTask) mustReach(bool) bool {
	for _, c := range b.commands {
		if c.acquiresHold() && c.Err == nil && c.Decision.Outcome == gatehouse.Granted {
			return true
		}
	}
	return false
}

// countTask implements [waiterTask]: each command counts as one of its kind.
func (b *batchTask) countTask(s *Server, r *responder, status int) {
	took := s.metrics.Now() - r.began
	for _, c := range b.commands {
		outcome := telemetry.RequestOutcome(gatehouse.Invalid)
		if c.fault == nil {
			outcome = telemetry.OutcomeOf(c.Decision.Outcome, c.Err)
		}
		s.metrics.requests.Of(c.Key.Kind, c.Command.Op).Count(outcome, 1, took)
	}
	s.metrics.countResponse(status)
}

// writeTask implements [waiterTask]: each answer is what the command alone gets with details=true.
func (b *batchTask) writeTask(resp *fasthttp.Response, r *responder) {
	b.writeAnswers(resp, r, func(one *responder, c *batchCommand) []byte {
		if err := c.findFault(); err != nil {
			var o jsonObject
			o = o.addText("outcome", gatehouse.CodeOf(err).String()).addRaw("granted", []byte("false"))
			return o.addText("detail", err.Error()).closeObject()
		}
		return one.decisionJSON(c.Decision)
	})
}

// writeShort implements [waiterTask]: each answer has only its outcome.
func (b *batchTask) writeShort(resp *fasthttp.Response, r *responder) {
	b.writeAnswers(resp, r, func(_ *responder, c *batchCommand) []byte {
		// It has to fit into the room that was taken in advance (shortAnswer).
		var o jsonObject
		var outcome string
		granted := []byte("false")
		switch err := c.findFault(); {
		case err != nil:
			outcome = gatehouse.CodeOf(err).String()
		case c.Decision.Outcome == gatehouse.Granted:
			granted = []byte("true")
			fallthrough
		default:
			outcome = c.Decision.Outcome.String()
		}
		return o.addText("outcome", outcome).addRaw("granted", granted).closeObject()
	})
}

// findFault returns why a command has no decision, nil if it has one.
func (c *batchCommand) findFault() error {
	if c.fault != nil {
		return c.fault
	}
	return c.Err
}

// writeAnswers writes the answers to all commands, in their order.
func (b *batchTask) writeAnswers(
	resp *fasthttp.Response, r *responder, encode func(one *responder, c *batchCommand) []byte,
) {
	allowOrigin(resp, r.origin)
	out := []byte(`{"answers":[`)
	for i, c := range b.commands {
		if i > 0 {
			out = append(out, ',')
		}
		key, holder := b.shown(i, c)
		one := responder{key: key, op: c.Command.Op, holder: holder, v1: true}
		out = append(out, encode(&one, c)...)
	}
	writeRawJSON(resp, "application/json", append(out, `]}`...))
}
