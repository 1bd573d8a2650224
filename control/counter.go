package control

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Counter is a signed 64-bit number. It never wraps: a count that would overflow is a conflict and
// changes nothing.
type Counter struct {
	created            time.Time
	value              int64
	increments, resets int64
	until              time.Time // how long it is kept without a change
}

// Step implements [State].
func (c *Counter) Step(now time.Time, turn *Turn) { turn.Decision = c.applyCommand(now, turn) }

func (c *Counter) applyCommand(now time.Time, turn *Turn) gatehouse.Decision {
	if c.created.IsZero() {
		// A counter expires by its last change; a read does not keep it alive.
		c.created, c.until = now, now
	}
	if !now.Before(c.until) {
		c.value = 0 // it was kept long enough, and only its statistics are left
	}
	switch turn.Op {
	case gatehouse.OpCount:
		// Go's integers wrap silently. A sum has overflowed exactly when it lies on the wrong side of the
		// old value.
		sum := c.value + turn.Amount
		if (sum > c.value) != (turn.Amount > 0) && turn.Amount != 0 {
			why := fmt.Sprintf("stands at %d, and %d more would overflow 64 bits", c.value, turn.Amount)
			return failedWith(now, gatehouse.Conflict, why)
		}
		c.increments++
		c.value, c.until = sum, now.Add(keepTime(turn.Command))
	case gatehouse.OpReset:
		c.resets++
		c.value, c.until = turn.Amount, now.Add(keepTime(turn.Command))
	}
	d := grantedAt(now)
	d.Value = c.value
	if turn.Op == gatehouse.OpStats {
		d.Stats = []gatehouse.Stat{
			{Name: "value", Value: c.value},
			{Name: "increments", Value: c.increments},
			{Name: "resets", Value: c.resets},
			{Name: "created_at", Value: c.created},
		}
	}
	return d
}

// Undo implements [State]. What was counted was counted.
func (c *Counter) Undo(time.Time, *Turn) {}

// Expiry implements [State].
func (c *Counter) Expiry() time.Time { return c.until }

func (c *Counter) codeFields(form *stateCodec) {
	form.codeVersion(1)
	form.codeTime(&c.created)
	form.codeInt64(&c.value)
	form.codeInt64(&c.increments)
	form.codeInt64(&c.resets)
	form.codeTime(&c.until)
}
