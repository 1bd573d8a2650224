package resp

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A batch is what was asked about one key by commands that follow one another in a pipeline. The gate
// answers all of it as one change, which costs a third of as many changes.
type batch struct {
	key       gatehouse.Key
	demands   [gate.MaxTogether]demand
	commands  [gate.MaxTogether]gatehouse.Command // of which only few fields need be written each time
	decisions [gate.MaxTogether]gatehouse.Decision
	n         int
	checked   demand // passed Check last
}

// A flight is a batch that is put to the gate.
type flight struct {
	key       gatehouse.Key
	demands   []demand
	commands  []gatehouse.Command
	decisions []gatehouse.Decision
}

// A demand is what one command wants.
type demand struct {
	rate     rate
	quantity int64 // 0 only looks, and below 0 gives back
	answer   func(*reply, verdict)
}

// A verdict is what was decided about a rate.
type verdict struct {
	limited          bool
	limit, remaining int64
	retry            time.Duration // Forever when it was not limited, and when it can never fit
	reset            time.Duration
}

// tooMuch reports whether so much can never be taken.
func (a *demand) tooMuch() bool { return a.quantity-1 > a.rate.burst }

// takes reports whether a command for a rate goes into the batch.
func (b *batch) takes(args [][]byte) bool {
	return len(args) > 1 && b.n < len(b.demands) && b.key.Name == string(args[1])
}

// limit takes a quantity at a key's rate. It is answered by settle, which run has called when the batch
// does not take it.
func (s *session) limit(name []byte, a demand) {
	b := &s.loop.batch
	other := b.key.Name != string(name)
	if other || b.key.Kind == 0 {
		b.key = gatehouse.Key{Kind: gatehouse.GCRA, Name: s.loop.names.get(name)}
	}
	cmd := &b.commands[b.n]
	cmd.Op, cmd.Cost = gatehouse.OpAcquire, a.quantity
	cmd.Size, cmd.Interval, cmd.Burst = a.rate.count, a.rate.period, a.rate.burst
	switch {
	case a.quantity < 0:
		cmd.Op, cmd.Cost = gatehouse.OpRefund, -a.quantity
	case a.quantity == 0 || a.tooMuch():
		cmd.Op, cmd.Cost = gatehouse.OpPeek, 0
	}
	if other || a.rate != b.checked.rate || a.quantity != b.checked.quantity {
		if err := cmd.Check(b.key); err != nil {
			s.settle()
			b.checked = demand{}
			s.count(b.key, cmd.Op, nil, err)
			s.loop.reply.fail(codes[gatehouse.CodeOf(err)], err.Error())
			return
		}
		b.checked = a
	}
	b.demands[b.n] = a
	b.n++
}

// settle answers what was asked and not answered yet.
func (s *session) settle() {
	b := &s.loop.batch
	n := b.n
	if n == 0 {
		return
	}
	b.n = 0
	f := flight{b.key, b.demands[:n], b.commands[:n], b.decisions[:n]}
	if s.server.config.Gate.Slow(b.key) {
		s.fly(&f)
		return
	}
	s.answerAll(&f, s.server.config.Gate.TryAll(f.key, f.commands, f.decisions))
}

// answerAll answers a batch, or the error that took the place of its decisions.
func (s *session) answerAll(f *flight, err error) {
	for i := range f.commands {
		d := &f.decisions[i]
		s.count(f.key, f.commands[i].Op, d, err)
		switch {
		case err != nil:
			s.loop.reply.fail(codes[gatehouse.CodeOf(err)], err.Error())
		case d.Outcome > gatehouse.Granted && d.Outcome != gatehouse.Missing:
			s.refuse(f.key, d)
		default:
			f.demands[i].answer(&s.loop.reply, f.demands[i].verdict(d))
		}
	}
}

// verdict is what a decision means in the words of a rate.
func (a *demand) verdict(d *gatehouse.Decision) verdict {
	limit := a.rate.burst + 1
	if d.Outcome == gatehouse.Missing { // there is nothing to give back to
		return verdict{limit: limit, remaining: limit, retry: gatehouse.Forever}
	}
	v := verdict{
		limited: a.tooMuch() || d.Outcome == gatehouse.Refused,
		limit:   limit, retry: gatehouse.Forever, reset: d.ResetAfter,
		remaining: min(limit, d.Remaining), // what is given back knows only the rate before
	}
	if d.Outcome == gatehouse.Refused && !a.tooMuch() {
		v.retry = d.RetryAfter
	}
	return v
}

// fail and failBare answer an error, behind what was asked before.
func (s *session) fail(code, text string) {
	s.settle()
	s.loop.reply.fail(code, text)
}

func (s *session) failBare(text string) {
	s.settle()
	s.loop.reply.failBare(text)
}
