package decisions

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Asked is the limit that was asked for, in words such as 5/1m, of a semaphore its size; empty where the name
// has none, or the one in force was meant.
func (e *Explained) Asked() string {
	r, kind := &e.Command.Rule, e.Name().Kind
	switch {
	// With several names and none that binds, no one limit was the cause.
	case r.Size == gatehouse.InForce || kind == gatehouse.Lock || e.Binding < 0 && len(e.Members) > 0:
		return ""
	case kind.Limiter() && r.Limits.Len() > 0:
		return r.Limits.String()
	case kind.Limiter() && r.HasLimit():
		return gatehouse.Limit{Size: r.Size, Interval: r.Interval, Calendar: r.Calendar}.String()
	case kind == gatehouse.Semaphore:
		return strconv.FormatInt(r.Size, 10)
	}
	return ""
}

// Passes is when the answer could have been another one, if nothing else had changed; ok is false if no time
// was known.
func (e *Explained) Passes() (at time.Time, ok bool) {
	if e.Decision.RetryAfter == gatehouse.Forever {
		return at, false
	}
	return e.Decision.At.Add(e.Decision.RetryAfter).UTC(), true
}

// Sentence says in one line what was refused, why, and when it could have passed.
func (e *Explained) Sentence() string {
	d, cmd := &e.Decision, &e.Command
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s was refused", e.Key, cmd.Op)
	// Less is how long the way through the server took, and was no wait to anybody.
	if e.Waited >= time.Millisecond {
		fmt.Fprintf(&text, " after %d ms in line", e.Waited.Milliseconds())
	}
	// Of a grant or a limiter with parents one name refused, and the rest had room.
	if name := e.Name(); name != e.Key {
		fmt.Fprintf(&text, " by %s", name)
	}
	switch {
	// The state's own reason says more than figures, which such refusals mostly lack.
	case d.Message != "":
		text.WriteString("; it " + d.Message)
	case d.Limit > 0 || d.Remaining > 0:
		fmt.Fprintf(&text, "; %d of %d were free, and it wanted %d", d.Remaining, d.Limit, cmd.Cost)
	}
	for i := range d.Windows {
		if w := &d.Windows[i]; w.RetryAfter != 0 {
			fmt.Fprintf(&text, "; %s allowed no more", w.Limit)
		}
	}
	if e.Waiting > 0 {
		fmt.Fprintf(&text, "; %d waited there", e.Waiting)
	}
	if at, known := e.Passes(); known {
		fmt.Fprintf(&text, "; it could pass from %s on", at.Format("2006-01-02T15:04:05.000Z07:00"))
	} else {
		text.WriteString("; only another request could change that")
	}
	return text.String()
}
