package resp

import (
	"bytes"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A rateBatch is what was asked about one key by commands that follow one another in a pipeline. The gate
// answers all of it as one change, which costs a third of as many changes.
type rateBatch struct {
	waiter
	key       gatehouse.Key
	wanted    rateRequest // by the last command, which passed Check; the zero value if that did not
	version   uint64      // counts the changes of key and wanted
	calls     [gate.MaxTogether]*rateCall
	n         int                             // of calls that are in use
	submitted []*gate.Request                 // of these
	room      [gate.MaxTogether]*gate.Request // those of calls
	onLast    func(*gate.Request)
}

// A rateCall is one command for a rate.
type rateCall struct {
	gate.Request
	pass    access.Pass
	wanted  rateRequest
	room    gatehouse.Decision
	version uint64 // of the batch when the call was filled in; 0 if it is to be filled in again
	limit   []byte // the line of an answer that tells it
}

func newRateBatch() *rateBatch {
	b := new(rateBatch)
	b.batch = b
	b.onLast = func(*gate.Request) { b.setDecided() }
	return b
}

// A rateRequest is what one command wants.
type rateRequest struct {
	rate     throttleRate
	quantity int64 // 0 only looks, and below 0 gives back
	form     rateForm
}

// A rateForm is the form in which a command for a rate is answered.
type rateForm uint8

const (
	cellForm rateForm = iota // CL.THROTTLE
	crabForm                 // THROTTLE
	gcraForm                 // GCRA
)

// A rateResult is what was decided about a rate.
type rateResult struct {
	limited   bool
	remaining int64
	retry     time.Duration // Forever when it was not limited, and when it can never fit
	reset     time.Duration
}

// limit is how many calls pass at once.
func (a *rateRequest) limit() int64 { return a.rate.burst + 1 }

// exceedsBurst reports whether the quantity can never be taken at once.
func (a *rateRequest) exceedsBurst() bool { return a.quantity-1 > a.rate.burst }

// acceptsCommand reports whether a command of a session for a rate goes into the batch.
func (b *rateBatch) acceptsCommand(s *session, args [][]byte) bool {
	if len(args) < 2 || b.n == len(b.calls) || b.key.Name != string(args[1]) {
		return false
	}
	// A policy that came since the first command may mean another name by this one.
	return s.account() == nil || s.user() == b.calls[0].pass.User()
}

// limitAgain adds the last command to the batch as often as it comes again at once, byte for byte, in what
// stands behind it. It returns how often that is.
func (s *session) limitAgain(behind []byte) (times int) {
	l, b := s.loop, s.loop.batch
	// Each command of a user is judged by itself.
	if l.rated == nil || len(l.parser.last) == 0 || s.account() != nil {
		return 0
	}
	for b.n > 0 && b.n < len(b.calls) && bytes.HasPrefix(behind, l.parser.last) {
		behind = behind[len(l.parser.last):]
		b.nextCall()
		b.n++
		times++
	}
	return times
}

// limitRate adds a command for a key's rate to the batch, which decideBatch answers. runCommand has called
// that already when the batch does not accept this command.
func (s *session) limitRate(name []byte, a *rateRequest) {
	l, b := s.loop, s.loop.batch
	// A pipeline mostly repeats one rate of one key, which needs one check.
	changed := b.key.Name != string(name) || b.wanted != *a
	if changed {
		b.key = gatehouse.Key{Kind: gatehouse.GCRA, Name: l.names.internName(name)}
		b.wanted = *a
		b.version++
	}
	call := b.nextCall()
	if changed {
		if err := call.Command.Check(b.key); err != nil {
			s.refuseRate(b, call, err)
			l.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
			return
		}
	}
	if s.account() != nil {
		var err error
		call.pass, err = s.user().Enter(&call.Key, &call.Command)
		call.pass.Address, call.pass.Protocol = s.client.Addr(), telemetry.RESP
		call.version = 0 // key and command are those of this user
		if err != nil {
			s.refuseRate(b, call, err)
			s.answerRefused(err)
			return
		}
	}
	l.rated = l.latest
	b.n++
}

// refuseRate leaves out of the batch a call with an error, which is to be answered next.
func (s *session) refuseRate(b *rateBatch, call *rateCall, err error) {
	b.wanted = rateRequest{}
	// The commands before this one are answered first: answers keep the order of commands.
	s.decideBatch()
	s.countAnswer(b.key, call.Command.Op, nil, err)
}

// nextCall returns the next call of the batch, filled in.
func (b *rateBatch) nextCall() *rateCall {
	call := b.calls[b.n]
	if call == nil {
		call = new(rateCall)
		call.Checked, call.Decision = true, &call.room
		b.calls[b.n], b.room[b.n] = call, &call.Request
	}
	// The calls of the loop are used again and again, and mostly for the same.
	if call.version != b.version {
		call.version = b.version
		call.fillCall(b.key, &b.wanted)
	}
	return call
}

// fillCall makes the call one for a rate of a key. Only these fields differ between commands for a rate, so
// the others are never written.
func (c *rateCall) fillCall(key gatehouse.Key, a *rateRequest) {
	c.Key, c.wanted = key, *a
	c.limit = appendLine(c.limit[:0], ':', a.limit())
	cmd := &c.Command
	cmd.KeepLimit, cmd.NeedLimit, cmd.TellResize, cmd.Origin = false, false, false, nil
	cmd.Op, cmd.Cost = gatehouse.OpAcquire, a.quantity
	cmd.Size, cmd.Interval, cmd.Burst = a.rate.count, a.rate.period, a.rate.burst
	switch {
	case a.quantity < 0:
		cmd.Op, cmd.Cost = gatehouse.OpRefund, -a.quantity
	// Looking is enough where nothing can be taken. A quantity above the burst would be invalid, but these
	// protocols answer it as limited.
	case a.quantity == 0 || a.exceedsBurst():
		cmd.Op, cmd.Cost = gatehouse.OpPeek, 0
	}
}

// decideBatch answers what was asked and not answered yet.
func (s *session) decideBatch() {
	b := s.loop.batch
	if b.n == 0 {
		return
	}
	b.submitted = b.room[:b.n]
	// Before the gate is asked: answering must not find the same commands in the batch again.
	b.n = 0
	b.session, b.next, b.since = s, nil, instant{}
	b.state.Store(submitted)
	// None of them may wait, so that the last is decided last.
	last := b.submitted[len(b.submitted)-1]
	last.Decided = b.onLast
	s.server.config.Gate.Submit(b.submitted...)
	if s.waiting == nil && b.isDecided() {
		last.Decided = nil
		s.answerBatch(b)
		return
	}
	// It is under way, so that the loop needs another one.
	s.loop.batch = newRateBatch()
	s.loop.batch.key, s.loop.batch.wanted, s.loop.batch.version = b.key, b.wanted, b.version
	s.putOff(&b.waiter)
}

// answerBatch answers a batch that is decided.
func (s *session) answerBatch(b *rateBatch) {
	// Equal answers that follow one another are counted together.
	var op gatehouse.Op
	var outcome telemetry.RequestOutcome
	equal := uint64(0)
	for _, call := range b.calls[:len(b.submitted)] {
		d, err := call.Decision, call.Err
		if call.pass.User() != nil {
			err = call.pass.Leave(call.Key, &call.Command, d, err)
		}
		s.noteRefusal(d.Number)
		next := telemetry.OutcomeOf(d.Outcome, err)
		if equal > 0 && (op != call.Command.Op || outcome != next) {
			s.countOutcome(b.key, op, outcome, equal)
			equal = 0
		}
		op, outcome, equal = call.Command.Op, next, equal+1
		switch {
		case err != nil:
			s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		// A refund at a name that does not exist is no error of these protocols: all of its limit is
		// there.
		case d.Outcome > gatehouse.Granted && d.Outcome != gatehouse.Missing:
			s.answerFailure(b.key, d)
		default:
			call.wanted.fillResult(&s.loop.result, d)
			s.loop.reply.writeRate(call, &s.loop.result)
		}
	}
	s.countOutcome(b.key, op, outcome, equal)
}

// fillResult sets what a decision means in the words of a rate.
func (a *rateRequest) fillResult(v *rateResult, d *gatehouse.Decision) {
	v.limited, v.retry = false, gatehouse.Forever
	if d.Outcome == gatehouse.Missing { // there is nothing to give back to
		v.remaining, v.reset = a.limit(), 0
		return
	}
	v.remaining = min(a.limit(), d.Remaining) // what is given back knows only the rate before
	v.reset = d.ResetAfter
	switch {
	case a.exceedsBurst():
		v.limited = true
	case d.Outcome == gatehouse.Refused:
		v.limited, v.retry = true, d.RetryAfter
	}
}

// answerError answers the batch, and then an error.
func (s *session) answerError(code, text string) {
	s.decideBatch()
	s.loop.reply.writeError(code, text)
}

// answerBareError is answerError for an error that has no code.
func (s *session) answerBareError(text string) {
	s.decideBatch()
	s.loop.reply.writeBareError(text)
}
