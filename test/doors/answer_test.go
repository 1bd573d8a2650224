package doors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An answer is what a decision came out as: of a Go call all of it, through a door what its wire tells.
type answer struct {
	outcome string // of a decision, or the code of an error
	// figures are by name; those of one of several limits have its text behind, as "remaining 5/1m".
	// Times are there once for each unit in which some wire tells them.
	figures map[string]string
}

// String is the answer with its figures in order.
func (a answer) String() string {
	text := a.outcome
	for _, name := range slices.Sorted(maps.Keys(a.figures)) {
		text += fmt.Sprintf(" %s=%q", name, a.figures[name])
	}
	return text
}

// compare says what a door tells otherwise than it was decided, "" when nothing is.
func (a answer) compare(told answer) string {
	var bad []string
	if told.outcome != a.outcome {
		bad = append(bad, "outcome")
	}
	for _, name := range slices.Sorted(maps.Keys(told.figures)) {
		if value, known := a.figures[name]; !known || told.figures[name] != value {
			bad = append(bad, name)
		}
	}
	return strings.Join(bad, ", ")
}

// set notes a figure.
func (a answer) set(name string, value any) { a.figures[name] = fmt.Sprint(value) }

// answerOf makes an answer of what a gate returned.
func answerOf(op *operation, d gatehouse.Decision, err error) answer {
	a := answer{outcome: d.Outcome.String(), figures: map[string]string{}}
	if err != nil {
		a.outcome = gatehouse.CodeOf(err).String()
		a.set("text", err)
		return a
	}
	switch d.Outcome {
	case gatehouse.Missing:
		a.set("text", op.key.String()+" does not exist")
	case gatehouse.Refused, gatehouse.Granted:
		a.decided(op, d)
	default:
		a.set("text", op.key.String()+" "+d.Message)
	}
	return a
}

// decided notes all that there is to know about a grant or a refusal.
func (a answer) decided(op *operation, d gatehouse.Decision) {
	a.set("limit", d.Limit)
	a.set("remaining", d.Remaining)
	a.time("retry", d.RetryAfter)
	a.time("reset", d.ResetAfter)
	a.time("delay", d.Delay)
	a.set("cell_retry", cellSeconds(d.RetryAfter, d.Outcome == gatehouse.Refused))
	a.set("cell_reset", cellSeconds(d.ResetAfter, true))
	a.set("fence", d.Fence)
	a.set("expires_ms", d.ExpiresAfter.Milliseconds()) // rounded down
	if d.ExpiresAfter == gatehouse.Forever {
		a.set("expires_ms", -1)
	}
	a.set("value", d.Value)
	a.set("message", d.Message)
	if op.holds() {
		a.set("key", op.cmd.Holder)
	}
	for _, w := range d.Windows {
		a.set("limit "+w.Limit.String(), w.Limit.Size)
		a.set("remaining "+w.Limit.String(), w.Remaining)
		a.time("retry", w.RetryAfter, w.Limit.String())
		a.time("reset", w.ResetAfter, w.Limit.String())
	}
	for _, stat := range d.Stats {
		switch value := stat.Value.(type) {
		case time.Duration:
			a.set("stat "+stat.Name, value.Milliseconds())
		case time.Time:
			a.set("stat "+stat.Name, "")
			if !value.IsZero() {
				a.set("stat "+stat.Name, value.UTC().Format(time.RFC3339))
			}
		default:
			a.set("stat "+stat.Name, value)
		}
	}
}

// time notes a length of time, rounded up to every unit.
func (a answer) time(name string, d time.Duration, of ...string) {
	for suffix, unit := range map[string]time.Duration{"_s": time.Second, "_ms": time.Millisecond} {
		key := strings.Join(append([]string{name + suffix}, of...), " ")
		if d == gatehouse.Forever {
			a.set(key, -1)
			continue
		}
		a.set(key, int64((d+unit-1)/unit))
	}
}

// cellSeconds is a time as redis-cell tells it: milliseconds cut off, seconds rounded up, -1 for none.
func cellSeconds(d time.Duration, there bool) int64 {
	if !there || d == gatehouse.Forever {
		return -1
	}
	return (d.Milliseconds() + 999) / 1000
}
