package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A tally counts what happened at one controller, for its stats. Times are nanoseconds, as Unix time
// or as a length.
type tally struct {
	created  int64
	passed   int64 // commands that were let through
	waited   int64 // the time that those spent in line
	timedOut int64 // commands that gave up, those that would not wait at all included
}

// begin notes the first use.
func (t *tally) begin(now time.Time) {
	if t.created == 0 {
		t.created = now.UnixNano()
	}
}

// pass notes a command that was let through.
func (t *tally) pass(now time.Time, cmd *gatehouse.Command) {
	t.passed++
	if !cmd.Since.IsZero() {
		t.waited += int64(now.Sub(cmd.Since))
	}
}

// refused notes a refusal that is the last word.
func (t *tally) refused(cmd *gatehouse.Command) {
	if cmd.MaxWait == 0 {
		t.timedOut++
	}
}

// stats returns the figures under the names that bouncer gave them; passed says what the kind calls
// a command that was let through.
func (t *tally) stats(passed string, more ...gatehouse.Stat) []gatehouse.Stat {
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
