package control

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A grantee is what one or more answers told of: tokens taken at once, or a place.
type grantee struct {
	startRun
	number  uint64 // of a place that lies ahead
	key     string
	answers int  // that were not undone
	told    int  // all answers
	void    bool // cancelled, or from before a reset: nobody goes by it
	past    bool // from before a change of the limits
}

// A ledger is what was let through under one limit, counted from the last reset or change of limits.
type ledger struct {
	all      []*grantee
	refunds  record
	answered []answer
}

// An answer is a decision that can be undone.
type answer struct {
	cmd  gatehouse.Command
	d    gatehouse.Decision
	to   *grantee
	done int // how often it was undone
}

// begin counts from here on. What was let through before can still be undone. Places stay if it is no reset.
func (l *ledger) begin(reset bool) {
	for _, g := range l.all {
		g.past, g.void = true, g.void || reset
	}
	if reset {
		l.refunds = nil
	}
}

// granted notes what was let through.
func (l *ledger) granted(t *rapid.T, cmd gatehouse.Command, d gatehouse.Decision) {
	to := l.ahead(cmd.Holder, d.At.UnixNano())
	if cmd.Op == gatehouse.OpReserve && to != nil {
		if d.Reservation != to.number {
			t.Fatalf("reserve %s = %d, want the place %+v again", cmd.Holder, d.Reservation, to)
		}
		to.answers, to.told = to.answers+1, to.told+1
	} else {
		start := d.At.Add(d.Delay).UnixNano()
		to = &grantee{
			startRun: startRun{start, cmd.Cost}, number: d.Reservation, key: cmd.Holder, answers: 1, told: 1,
		}
		if i := slices.IndexFunc(l.answered, func(a answer) bool {
			return d.Reservation != 0 && a.d.Reservation == d.Reservation
		}); i >= 0 {
			t.Fatalf("%+v has the number of %+v", d, l.answered[i].d)
		}
		l.all = append(l.all, to)
	}
	l.answered = append(l.answered, answer{cmd, d, to, 0})
}

// ahead is the place of a key that lies ahead, with which somebody still goes.
func (l *ledger) ahead(key string, now int64) *grantee {
	for _, g := range l.all {
		if key != "" && g.key == key && g.number != 0 && g.at > now && g.answers > 0 && !g.void {
			return g
		}
	}
	return nil
}

// undo draws an answer to take back: one that was not yet, or one of a place that no other answer told of.
func (l *ledger) undo(t *rapid.T) *Turn {
	if len(l.answered) == 0 {
		return nil
	}
	a := &l.answered[rapid.IntRange(0, len(l.answered)-1).Draw(t, "answer")]
	if a.done > 0 && (a.d.Reservation == 0 || a.to.told > 1) {
		return nil
	}
	if a.done == 0 {
		a.to.answers--
	}
	a.done++
	d := a.d
	undo := UndoOf(&Turn{Command: &a.cmd}, &d)
	return &undo
}

// passes are what somebody goes by, in order of the starts; admitted is all that was let in.
func (l *ledger) passes() (passes, admitted record) {
	for _, g := range l.all {
		admitted = append(admitted, startRun{g.at, g.n})
		if g.answers > 0 && !g.void && !g.past {
			passes = append(passes, g.startRun)
		}
	}
	slices.SortStableFunc(passes, func(a, b startRun) int { return int(a.at - b.at) })
	return passes, admitted
}

// check holds the passes to the bound of the kind, beyond which there is only what was refunded.
func (l *ledger) check(t *rapid.T, v variety, cmd *gatehouse.Command) {
	passes, admitted := l.passes()
	for i := range limitCount(&cmd.Rule) {
		limit, burst := limitAt(&cmd.Rule, i), cmd.Burst
		if cmd.Limits.Len() > 0 {
			burst = limit.Size - 1
		}
		for i := range passes {
			r := counted{v, limit.Size, int64(limit.Interval), burst, passes[:i+1], admitted, l.refunds}
			if broken := r.broken(); broken != "" {
				t.Fatalf("%s under %s: %v, refunded %v", broken, limit, passes, l.refunds)
			}
		}
	}
}

// A counted is passes under a limit, to be held to its bound at the last of them.
type counted struct {
	v                 variety
	size, w, burst    int64
	passes            record
	admitted, refunds record
}

// since is how many passed from one instant to another, less what was refunded. What was refunded can be
// undone too, as long as it counts, and then gives back as much once more: so refunds from before count too.
func (c counted) since(from, to int64) int64 {
	before := c.w
	switch {
	case c.v.kind == gatehouse.GCRA:
		before = max(1, c.w/c.size) * (c.burst + 1)
	case c.v.mode == gatehouse.ModeStrict:
		before = (c.w + partsPerWindow - 1) / partsPerWindow
	case c.v.exact():
		before = 0 // starts of one instant are alike, and no others
	}
	return c.passes.within(from-1, to) - c.refunds.within(from-1-before, to)
}

// broken says which bound is broken at the last pass.
func (c counted) broken() string {
	at := c.passes[len(c.passes)-1].at
	last := c.since(at-c.w+1, at)
	interval := time.Duration(c.w)
	aligned := c.passes.aligned(at, interval) - c.refunds.aligned(at, interval)
	switch {
	case c.v.exact() && last > c.size:
		return "more than the size in an interval"
	case c.v.kind == gatehouse.TokenBucket && last > 2*c.size:
		return "more than twice the size in an interval"
	case c.v.kind == gatehouse.FixedWindow && (last > 2*c.size || aligned > c.size):
		return "more than the size in a window, or than twice that in an interval"
	case c.v.kind == gatehouse.SlidingWindow && c.v.mode == gatehouse.ModeDefault:
		if last > 2*c.size || aligned > c.size {
			return "more than the size in a window, or than twice that in an interval"
		}
	case c.v.mode == gatehouse.ModeFine:
		part := (c.w + partsPerWindow - 1) / partsPerWindow
		oldest := (at - c.w + 1) / part
		if last-c.size > c.admitted.within(oldest*part-1, (oldest+1)*part-1) {
			return "more than the size and what was let into the oldest part"
		}
	case c.v.kind == gatehouse.GCRA:
		for _, first := range c.passes {
			if c.since(first.at, at) > c.burst+1+(at-first.at)/max(1, c.w/c.size) {
				return "more than the burst, one, and what came back"
			}
		}
	}
	return ""
}

// TestUndosKeepTheLimit: whatever mixture of acquires, places, cancels, undos, refunds, resets, deletes and
// changes of the limits, under one limit or several: what somebody goes by keeps the limit, counted from the
// last reset or change, but for what was refunded. An undo gives nothing back but what it takes away from
// whoever was answered; and a place that somebody was told of, and goes by, stays theirs.
func TestUndosKeepTheLimit(t *testing.T) { each(t, checkUndos) }

func checkUndos(t *rapid.T, v variety) {
	choices, now := drawChoices(t, v), origin(t)
	cmd := choices[0]
	s, l := subject{kind: v.kind}, ledger{}
	keys := []string{"a", "b", ""}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		now = now.Add(later(t, longest(&cmd)))
		cmd.Cost, cmd.Holder = rapid.Int64Range(1, least(v, &cmd)).Draw(t, "cost"), ""
		switch what := rapid.IntRange(0, 24).Draw(t, "what"); {
		case what < 6:
			cmd.Op = gatehouse.OpAcquire
			if d := s.step(now, cmd); d.Outcome == gatehouse.Granted {
				l.granted(t, cmd, d)
			}
		case what < 13:
			cmd.Op, cmd.Holder = gatehouse.OpReserve, rapid.SampledFrom(keys).Draw(t, "key")
			if d := s.step(now, cmd); d.Outcome == gatehouse.Granted {
				l.granted(t, cmd, d)
			}
		case what < 15:
			key := rapid.SampledFrom(keys[:2]).Draw(t, "key")
			d := s.step(now, gatehouse.Command{Op: gatehouse.OpCancel, Holder: key})
			place := l.ahead(key, now.UnixNano())
			if (d.Outcome == gatehouse.Granted) != (place != nil) {
				t.Fatalf("cancel %s = %s with the place %+v", key, d.Outcome, place)
			}
			if place != nil {
				place.void = true
			}
		case what < 21:
			if undo := l.undo(t); undo != nil {
				s.stepTurn(now, undo)
			}
		case what < 22:
			if s.with(now, gatehouse.OpRefund, cmd.Cost).Outcome == gatehouse.Granted {
				l.refunds = append(l.refunds, startRun{now.UnixNano(), cmd.Cost})
			}
		case what < 23:
			op := rapid.SampledFrom([]gatehouse.Op{gatehouse.OpReset, gatehouse.OpDelete}).Draw(t, "op")
			s.with(now, op, 0)
			l.begin(true)
			if op == gatehouse.OpDelete { // what comes in another queue than a delete comes later
				now = now.Add(1)
			}
		case len(choices) > 1 && s.state != nil: // which takes one, so that the limits are in force
			cmd = rapid.SampledFrom(choices).Draw(t, "limits")
			cmd.Op, cmd.Cost = gatehouse.OpAcquire, 0
			s.stepTurn(now, &Turn{Command: &cmd, Forced: true})
			l.begin(false)
		}
		l.check(t, v, &cmd)
	}
}

// drawChoices draws the limits between which a sequence changes, of which there is mostly one.
func drawChoices(t *rapid.T, v variety) (choices []gatehouse.Command) {
	for range max(1, rapid.IntRange(-2, 3).Draw(t, "limits to choose from")) {
		cmd := v.draw(t)
		cmd.Guard, cmd.Interval = 0, time.Duration(rapid.Int64Range(1, 40).Draw(t, "ms"))*time.Millisecond
		if rapid.IntRange(0, 2).Draw(t, "several") == 0 {
			more := cmd.Interval * time.Duration(rapid.Int64Range(2, 5).Draw(t, "times"))
			cmd.Limits = gatehouse.NewLimitList(
				gatehouse.Limit{Size: cmd.Size, Interval: cmd.Interval},
				gatehouse.Limit{Size: rapid.Int64Range(1, 2*cmd.Size).Draw(t, "larger"), Interval: more},
			)
		}
		choices = append(choices, cmd)
	}
	return choices
}

// longest is the longest interval of a command's limits.
func longest(cmd *gatehouse.Command) time.Duration {
	return limitAt(&cmd.Rule, limitCount(&cmd.Rule)-1).Interval
}

// least is the most that all limits of a command let through at once.
func least(v variety, cmd *gatehouse.Command) int64 {
	if cmd.Limits.Len() == 0 {
		return capacity(v, cmd)
	}
	return min(cmd.Limits.At(0).Size, cmd.Limits.At(1).Size)
}

// hasPlace reports whether a state has a reservation of this number that lies ahead.
func hasPlace(s State, number uint64) bool {
	l, ok := s.(interface{ findByNumber(number uint64) int })
	return ok && l.findByNumber(number) >= 0
}
