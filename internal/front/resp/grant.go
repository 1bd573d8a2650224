package resp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A jointCall is an operation on a grant over several names. It is answered as what no single controller
// decides.
type jointCall struct {
	gate.GrantRequest
	laterReply
	user *commandUser // nil if rights are off
	// level is the command of a limiter with parents, as which the decision is answered; nil for a grant.
	level *nativeCall
}

// newJointCall returns a call that is not submitted yet.
func (s *session) newJointCall() *jointCall {
	g := new(jointCall)
	g.later, g.grant = &g.laterReply, g
	g.session = s
	g.Decided = func(*gate.GrantRequest) { g.setDecided() }
	g.cancel = func() { s.server.config.Gate.CancelGrant(&g.GrantRequest) }
	return g
}

// key returns the grant's own key.
func (g *jointCall) key() gatehouse.Key {
	if g.user != nil {
		return g.user.key
	}
	if g.level != nil {
		return g.level.Key
	}
	return gatehouse.Key{Kind: gatehouse.Grant, Name: g.Command.ID}
}

// concerns reports whether the call is about a grant with this key, or wants this name.
func (g *jointCall) concerns(key gatehouse.Key) bool {
	return g.user != nil || g.key() == key ||
		slices.ContainsFunc(g.Command.Want, func(m gatehouse.Member) bool { return m.Key == key })
}

// acquireGrant answers GH.GRANT.
func (s *session) acquireGrant(args [][]byte) {
	g := s.newJointCall()
	s.submitGrant(g, s.readGrant(g, args))
}

// changeGrant answers GH.<OP> grant/ID.
func (s *session) changeGrant(op gatehouse.Op, args [][]byte) {
	g := s.newJointCall()
	s.submitGrant(g, g.readGrantOp(op, args))
}

// submitGrant gives an operation on a grant to the gate, unless it could not be read, and answers it if that
// decides at once.
func (s *session) submitGrant(g *jointCall, err error) {
	cmd := &g.Command
	if err != nil {
		s.countOutcome(g.key(), cmd.Op, telemetry.OutcomeOf(0, err), 1)
		s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		return
	}
	acquires := cmd.Op == gatehouse.OpAcquire
	if params.TakesForRecord(cmd) && s.hungUp() { // its client would not have it
		s.server.metrics.Hangups.Inc()
		s.last = true
		return
	}
	cmd.Explain = acquires && g.details
	g.alone = (acquires || cmd.Op == gatehouse.OpTopUp) && cmd.MaxWait != 0
	if !s.enterGrant(g) {
		return
	}
	s.server.config.Gate.SubmitGrant(&g.GrantRequest)
	if s.waiting != nil || !g.isDecided() {
		s.putOff(&g.waiter)
		if g.alone {
			s.beginGrantWait(g)
		}
		return
	}
	s.answerGrant(g)
	if g.mustReach() {
		s.loop.unwritten = append(s.loop.unwritten, revocableDecision{end: s.answeredBytes(), grant: g})
	}
}

// mustReach reports whether the result is taken back if the client is gone: what was taken for a grant with a
// record, and whatever was waited for.
func (g *jointCall) mustReach() bool {
	return g.Err == nil && g.Decision.Outcome == gatehouse.Granted &&
		(g.alone || params.TakesForRecord(&g.Command))
}

// answerGrant answers an operation on a grant that is decided.
func (s *session) answerGrant(g *jointCall) {
	// First, as it turns names and ids into those that the user knows.
	g.leaveGrant()
	if g.level != nil {
		s.answerLevels(g)
		return
	}
	d, err := &g.Decision, g.Err
	s.countOutcome(g.key(), g.Command.Op, telemetry.OutcomeOf(d.Outcome, err), 1)
	s.noteRefusal(d.Number)
	r := &s.loop.reply
	switch {
	case err != nil:
		r.writeFailed(err)
	case d.Outcome == gatehouse.Missing:
		r.writeError(outcomes[d.Outcome], cmp.Or(d.Message, g.key().String()+" does not exist"))
	case d.Outcome > gatehouse.Granted:
		r.writeError(outcomes[d.Outcome], cmp.Or(d.Message, fmt.Sprintf("%s: %s", g.key(), d.Outcome)))
	// A refusal is null, as where SET NX of Redis takes nothing, unless details are wanted.
	case d.Outcome == gatehouse.Refused && !g.details:
		r.writeNull()
	default:
		r.writeGrant(g)
	}
}

// writeGrant answers all there is to know about a grant, or about why there is none.
func (r *replyWriter) writeGrant(g *jointCall) {
	d := &g.Decision
	granted, peeks := d.Outcome == gatehouse.Granted, g.Command.Op == gatehouse.OpPeek
	binds := d.Binding >= 0 && d.Binding < len(d.Want) && !granted
	// RESP sends the number of pairs before the pairs, so each block below is counted here as well.
	r.writeMap(2 + 3*boolToInt(granted && d.ID != "") + boolToInt(peeks) + boolToInt(!granted) +
		boolToInt(binds) + boolToInt(d.Number != 0))
	r.writePair("granted", int64(boolToInt(granted)))
	if granted && d.ID != "" {
		r.writeTexts("id", d.ID)
		r.writePair("fence", int64(d.Fence)) // microseconds since 1970, or a count from there
		left := d.ExpiresAfter
		if g.Command.Op == gatehouse.OpRelease {
			left = 0 // it has ended with this
		}
		r.writePair("expires_in", params.FloorMillis(left))
	}
	if peeks {
		r.writePair("ended", int64(boolToInt(d.Ended)))
	}
	if !granted {
		r.writePair("retry_after", params.CeilMillis(d.RetryAfter))
	}
	if binds {
		r.writeTexts("binding", d.Want[d.Binding].Key.String())
	}
	if d.Number != 0 {
		r.writeTexts("decision", gatehouse.DecisionID(d.Number))
	}
	r.writeWant(g)
}

// writeWant tells about each name.
func (r *replyWriter) writeWant(g *jointCall) {
	r.writeText("want")
	r.writeArray(len(g.Decision.Want))
	for i := range g.Decision.Want {
		r.writeMember(g, i)
	}
}

// writeMember tells about one name of a grant. Where the grant was not given, that has an outcome, and its
// cost is the one that was wanted.
func (r *replyWriter) writeMember(g *jointCall, i int) {
	m := &g.Decision.Want[i]
	granted, limiter := g.Decision.Outcome == gatehouse.Granted, m.Key.Kind.Limiter()
	cost := m.Cost
	if !granted && i < len(g.Command.Want) {
		cost = g.Command.Want[i].Cost
	}
	// An operation looks only at the names that it is about.
	looked := !granted || m.Limit != 0
	why := !granted && m.Outcome == gatehouse.Refused && m.Message != ""
	delay := granted && g.Command.Op == gatehouse.OpDelay
	r.writeMap(2 + boolToInt(m.Booked > 0) + boolToInt(m.Capped > 0) + boolToInt(!granted) +
		3*boolToInt(looked) + boolToInt(looked && limiter) + boolToInt(len(m.Windows) > 0) +
		boolToInt(delay) + boolToInt(why))
	r.writeTexts("name", m.Key.String())
	r.writePair("cost", cost)
	if m.Booked > 0 {
		r.writePair("booked", m.Booked)
	}
	if m.Capped > 0 {
		r.writePair("capped", m.Capped)
	}
	if !granted {
		r.writeTexts("outcome", m.Outcome.String())
	}
	if looked {
		r.writePair("limit", m.Limit)
		r.writePair("remaining", m.Remaining)
		r.writePair("retry_after", params.CeilMillis(m.RetryAfter))
	}
	if looked && limiter {
		r.writePair("reset_after", params.CeilMillis(m.ResetAfter))
	}
	if len(m.Windows) > 0 {
		r.writeText("windows")
		r.writeWindows(m.Windows)
	}
	if delay {
		r.writePair("delay", params.CeilMillis(m.Delay))
	}
	if why {
		r.writeTexts("detail", m.Key.String()+" "+m.Message)
	}
}
