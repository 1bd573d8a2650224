package resp

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A rateBatch is what was asked about one key by commands that follow one another in a pipeline. The gate
// answers all of it as one change, which costs a third of as many changes.
type rateBatch struct {
	key       gatehouse.Key
	requests  [gate.MaxTogether]rateRequest
	commands  [gate.MaxTogether]gatehouse.Command // of which only few fields need be written each time
	decisions [gate.MaxTogether]gatehouse.Decision
	n         int
	checked   rateRequest // passed Check last
}

// A submittedBatch is a batch that is put to the gate.
type submittedBatch struct {
	key       gatehouse.Key
	requests  []rateRequest
	commands  []gatehouse.Command
	decisions []gatehouse.Decision
}

// A rateRequest is what one command wants.
type rateRequest struct {
	rate     throttleRate
	quantity int64 // 0 only looks, and below 0 gives back
	answer   func(*replyWriter, rateResult)
}

// A rateResult is what was decided about a rate.
type rateResult struct {
	limited          bool
	limit, remaining int64
	retry            time.Duration // Forever when it was not limited, and when it can never fit
	reset            time.Duration
}

// exceedsBurst reports whether so much can never be taken.
func (a *rateRequest) exceedsBurst() bool { return a.quantity-1 > a.rate.burst }

// acceptsCommand reports whether a command for a rate goes into the batch.
func (b *rateBatch) acceptsCommand(args [][]byte) bool {
	return len(args) > 1 && b.n < len(b.requests) && b.key.Name == string(args[1])
}

// limitRate takes a quantity at a key's rate. It is answered by settle, which run has called when the batch
// does not take it.
func (s *session) limitRate(name []byte, a rateRequest) {
	b := &s.loop.batch
	other := b.key.Name != string(name)
	if other || b.key.Kind == 0 {
		b.key = gatehouse.Key{Kind: gatehouse.GCRA, Name: s.loop.names.internName(name)}
	}
	cmd := &b.commands[b.n]
	cmd.Op, cmd.Cost = gatehouse.OpAcquire, a.quantity
	cmd.Size, cmd.Interval, cmd.Burst = a.rate.count, a.rate.period, a.rate.burst
	switch {
	case a.quantity < 0:
		cmd.Op, cmd.Cost = gatehouse.OpRefund, -a.quantity
	case a.quantity == 0 || a.exceedsBurst():
		cmd.Op, cmd.Cost = gatehouse.OpPeek, 0
	}
	if other || a.rate != b.checked.rate || a.quantity != b.checked.quantity {
		if err := cmd.Check(b.key); err != nil {
			s.decideBatch()
			b.checked = rateRequest{}
			s.countAnswer(b.key, cmd.Op, nil, err)
			s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
			return
		}
		b.checked = a
	}
	b.requests[b.n] = a
	b.n++
}

// decideBatch answers what was asked and not answered yet.
func (s *session) decideBatch() {
	b := &s.loop.batch
	n := b.n
	if n == 0 {
		return
	}
	b.n = 0
	f := submittedBatch{b.key, b.requests[:n], b.commands[:n], b.decisions[:n]}
	if s.server.config.Gate.Slow(b.key) {
		s.submitBatch(&f)
		return
	}
	s.answerBatch(&f, s.server.config.Gate.TryAll(f.key, f.commands, f.decisions))
}

// answerBatch answers a batch, or the error that took the place of its decisions.
func (s *session) answerBatch(f *submittedBatch, err error) {
	for i := range f.commands {
		d := &f.decisions[i]
		s.countAnswer(f.key, f.commands[i].Op, d, err)
		switch {
		case err != nil:
			s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		case d.Outcome > gatehouse.Granted && d.Outcome != gatehouse.Missing:
			s.answerFailure(f.key, d)
		default:
			f.requests[i].answer(&s.loop.reply, f.requests[i].resultOf(d))
		}
	}
}

// resultOf is what a decision means in the words of a rate.
func (a *rateRequest) resultOf(d *gatehouse.Decision) rateResult {
	limit := a.rate.burst + 1
	if d.Outcome == gatehouse.Missing { // there is nothing to give back to
		return rateResult{limit: limit, remaining: limit, retry: gatehouse.Forever}
	}
	v := rateResult{
		limited: a.exceedsBurst() || d.Outcome == gatehouse.Refused,
		limit:   limit, retry: gatehouse.Forever, reset: d.ResetAfter,
		remaining: min(limit, d.Remaining), // what is given back knows only the rate before
	}
	if d.Outcome == gatehouse.Refused && !a.exceedsBurst() {
		v.retry = d.RetryAfter
	}
	return v
}

// answerError and failBare answer an error, behind what was asked before.
func (s *session) answerError(code, text string) {
	s.decideBatch()
	s.loop.reply.writeError(code, text)
}

func (s *session) answerBareError(text string) {
	s.decideBatch()
	s.loop.reply.writeBareError(text)
}
