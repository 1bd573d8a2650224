package control

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A commandCounts counts what happened at one controller, for its stats. Times are nanoseconds, as Unix time
// or as a length.
type commandCounts struct {
	created  int64
	passed   int64 // commands that were let through
	waited   int64 // the time that those spent in line
	timedOut int64 // commands that gave up, those that would not wait at all included
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
	t.waited = min(t.waited+waitedFor(now, turn), maxWaited)
}

// uncountPassed takes back a count of countPassed whose answer reached no client.
func (t *commandCounts) uncountPassed(turn *Turn) {
	at := turn.Granted.At
	if at.UnixNano() < t.created {
		return // it was counted by a controller that is no more
	}
	t.passed--
	t.waited = max(0, t.waited-waitedFor(at, turn))
}

// maxWaited is where the sum of waits stops, a hundred years before it would overflow.
const maxWaited = math.MaxInt64 - int64(gatehouse.MaxDuration)

// arrivalTime is when a command was there first.
func arrivalTime(now time.Time, turn *Turn) time.Time {
	if turn.Again && !turn.Since.IsZero() {
		return turn.Since
	}
	return now
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
		t.timedOut++
	}
}

// commandStats returns the statistics under the names that bouncer gave them; passed says what the kind calls
// a command that was let through.
func (t *commandCounts) commandStats(passed string, more ...gatehouse.Stat) []gatehouse.Stat {
	// Without any command let through there is no mean wait.
	mean := time.Duration(0)
	if t.passed > 0 {
		mean = time.Duration(t.waited / t.passed)
	}
	all := []gatehouse.Stat{
		{Name: passed, Value: t.passed},
		{Name: "timed_out", Value: t.timedOut},
		{Name: "total_wait_time", Value: time.Duration(t.waited)},
		{Name: "average_wait_time", Value: mean},
		{Name: "created_at", Value: time.Unix(0, t.created)},
	}
	return append(all, more...)
}

// hasOnlyRefused is OnlyRefused of all kinds that have a tally.
func (t *commandCounts) hasOnlyRefused() bool { return t.timedOut > 0 && t.passed == 0 }

// OnlyRefused reports whether a state has refused commands and let none through. When it is worth nothing
// besides, its statistics are all there is to it.
func OnlyRefused(s State) bool {
	refuser, ok := s.(interface{ hasOnlyRefused() bool })
	return ok && refuser.hasOnlyRefused()
}

func (t *commandCounts) codeFields(c *stateCodec) {
	c.codeInstant(&t.created)
	c.codeInt64(&t.passed)
	c.codeInt64(&t.waited)
	c.codeInt64(&t.timedOut)
}
