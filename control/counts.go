package control

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A commandCounts counts what happened at one controller, for its stats. Times are nanoseconds, as Unix time
// or as a length.
type commandCounts struct {
	created int64
	passed  int64       // commands that were let through
	waits   *waitCounts // nil while none has waited or given up: so an idle limiter fits into 64 bytes
}

// A waitCounts counts commands that were not let through at once. Weights have its 16 bytes in any case, so
// that a refusal needs no room.
type waitCounts struct {
	waited   int64 // the time that those that were let through spent in line
	timedOut int64 // commands that gave up, those that would not wait at all included
}

// waitCounts returns the counts of commands that were not let through at once.
func (t *commandCounts) waitCounts() (w waitCounts) {
	if t.waits != nil {
		w = *t.waits
	}
	return w
}

// setWaitCounts replaces what waitCounts returns.
func (t *commandCounts) setWaitCounts(w waitCounts) {
	switch {
	case w == waitCounts{}:
		t.waits = nil
	case t.waits == nil:
		t.waits = new(w)
	default:
		*t.waits = w
	}
}

// noteFirstUse notes the first use.
func (t *commandCounts) noteFirstUse(now time.Time) {
	if t.created == 0 {
		t.created = now.UnixNano()
	}
}

// countPassed notes a command that was let through.
func (t *commandCounts) countPassed(now time.Time, turn *Turn) {
	t.passed++
	if !turn.Since.IsZero() {
		t.addWaited(waitedFor(now, turn))
	}
}

// addWaited adds to the time that was spent in line.
func (t *commandCounts) addWaited(length int64) {
	w := t.waitCounts()
	w.waited = max(0, min(w.waited+length, maxWaited))
	t.setWaitCounts(w)
}

// countTimedOut adds to the commands that gave up.
func (t *commandCounts) countTimedOut(count int64) {
	w := t.waitCounts()
	w.timedOut += count
	t.setWaitCounts(w)
}

// uncountPassed takes back a count of countPassed whose answer reached no client.
func (t *commandCounts) uncountPassed(turn *Turn) {
	at := turn.Granted.At
	if at.UnixNano() < t.created {
		return // it was counted by a controller that is no more
	}
	t.passed--
	t.addWaited(-waitedFor(at, turn))
}

// maxWaited is where the sum of waits stops, a hundred years before it would overflow.
const maxWaited = math.MaxInt64 - int64(gatehouse.MaxDuration)

// arrivalTime is when a command was there first.
func arrivalTime(now time.Time, turn *Turn) time.Time {
	if turn.Since.IsZero() {
		return now
	}
	return turn.Since
}

// waitedFor is how long a command that passes at now has waited.
func waitedFor(now time.Time, turn *Turn) int64 {
	if turn.Since.IsZero() {
		return 0
	}
	// It may have come by the clock of another store.
	return min(max(int64(now.Sub(turn.Since)), 0), int64(gatehouse.MaxDuration))
}

// countRefused notes a refusal that is the last word.
func (t *commandCounts) countRefused(turn *Turn) {
	if turn.MaxWait == 0 {
		t.countTimedOut(1)
	}
}

// commandStats returns the statistics under the names that bouncer gave them; passed says what the kind calls
// a command that was let through.
func (t *commandCounts) commandStats(passed string, more ...gatehouse.Stat) []gatehouse.Stat {
	// Without any command let through there is no mean wait.
	mean, waits := time.Duration(0), t.waitCounts()
	if t.passed > 0 {
		mean = time.Duration(waits.waited / t.passed)
	}
	all := []gatehouse.Stat{
		{Name: passed, Value: t.passed},
		{Name: "timed_out", Value: waits.timedOut},
		{Name: "total_wait_time", Value: time.Duration(waits.waited)},
		{Name: "average_wait_time", Value: mean},
		{Name: "created_at", Value: time.Unix(0, t.created)},
	}
	return append(all, more...)
}

// OnlyRefused reports whether a state has refused commands and let none through. When it is worth nothing
// besides, its statistics are all there is to it.
func OnlyRefused(s State) bool {
	t, ok := s.(interface{ baseCounts() *commandCounts })
	return ok && t.baseCounts().waitCounts().timedOut > 0 && t.baseCounts().passed == 0
}

// HasGranted reports whether a state has let a command through, though nothing of that may be left.
func HasGranted(s State) bool {
	t, ok := s.(interface{ baseCounts() *commandCounts })
	return ok && t.baseCounts().passed > 0
}

func (t *commandCounts) codeFields(c *stateCodec) {
	c.codeInstant(&t.created)
	c.codeInt64(&t.passed)
	waits := t.waitCounts()
	c.codeInt64(&waits.waited)
	c.codeInt64(&waits.timedOut)
	if c.reading {
		t.setWaitCounts(waits)
	}
}

// What follows is for stores to which a change costs much: what a refused command leaves behind is often no
// more than one in the statistics.

// Alters reports whether a command that is refused leaves more behind than that it was: because it puts other
// parameters in force, arrives somewhere, or is the first of all. s may be nil.
func Alters(s State, cmd *gatehouse.Command) bool {
	switch s := s.(type) {
	case *Semaphore:
		return !s.lock && (!s.sized || cmd.Size != gatehouse.InForce && s.size != cmd.Size)
	case *Event:
		return s.created == 0
	case *Watchdog:
		return s.deadline.IsZero()
	// A command that may wait arrives. Before the first arrival any command puts its size in force.
	case *Barrier:
		return cmd.MaxWait != 0 || len(s.arrivals) == 0 && s.size != cmd.Size
	case anyLimiter:
		step := s.stepAt(0, nil)
		return step.created == 0 || !step.keepsLimits(cmd)
	}
	// The first command of all makes the controller.
	return true
}

// Refusals are how many commands gave up, and since when they are counted; the zero time if they are not.
func Refusals(s State) (count int64, since time.Time) {
	if t, ok := s.(interface{ baseCounts() *commandCounts }); ok && t.baseCounts().created != 0 {
		return t.baseCounts().waitCounts().timedOut, time.Unix(0, t.baseCounts().created)
	}
	return 0, time.Time{}
}

// AddRefusals counts commands that gave up without the state being told.
func AddRefusals(s State, count int64) {
	if t, ok := s.(interface{ baseCounts() *commandCounts }); ok {
		t.baseCounts().countTimedOut(count)
	}
}

func (t *commandCounts) baseCounts() *commandCounts { return t }

// Created is when a controller was used first, the zero time if it was not.
func Created(s State) time.Time {
	if c, ok := s.(*Counter); ok {
		return c.created
	}
	_, since := Refusals(s)
	return since
}

func (r *meterRate) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Size, rule.Interval = r.size, time.Duration(r.interval)
	return rule
}

func (g *gcraMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Burst = g.burst
	return g.meterRate.inForce(rule)
}

func (w *slidingWindowMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	switch {
	case w.fine == nil:
		rule.Mode = gatehouse.ModeDefault
	case w.fine.strict:
		rule.Mode = gatehouse.ModeStrict
	default:
		rule.Mode = gatehouse.ModeFine
	}
	return w.meterRate.inForce(rule)
}

func (p *paceMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Guard, rule.Mode = time.Duration(p.span-p.interval), p.mode
	return p.meterRate.inForce(rule)
}
