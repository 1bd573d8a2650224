package lazy

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// noteHeld notes until when the store lends no chunk, because of what a third party has reported. A decision
// without a report says that there is none any more, as after an open or a delete.
func (n *namedLimiter) noteHeld(d *gatehouse.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.Reported == nil {
		n.heldUntil = time.Time{}
		return
	}
	longest := max(d.Reported.PausedFor, d.Reported.RampFor, d.Reported.AdoptedFor)
	n.heldUntil = d.At.Add(longest)
}

// noteHeldBy notes what the decisions of a queue tell of that.
func (n *namedLimiter) noteHeldBy(queue []control.Turn) {
	for i := range queue {
		turn := &queue[i]
		tells := turn.Op == gatehouse.OpAcquire ||
			turn.Op == gatehouse.OpOpen || turn.Op == gatehouse.OpDelete
		decided := turn.Decision.Outcome == gatehouse.Granted || turn.Decision.Outcome == gatehouse.Refused
		if turn.Err == nil && tells && decided {
			n.noteHeld(&turn.Decision)
		}
	}
}

// lendsNothing reports whether the store lends no chunk, as far as is known here.
func (n *namedLimiter) lendsNothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.heldUntil.IsZero() && !n.storeTime().Before(n.heldUntil) {
		n.heldUntil = time.Time{}
	}
	return !n.heldUntil.IsZero()
}
