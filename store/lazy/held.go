package lazy

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// noteHeld notes until when the store lends no chunk, because of what a third party has reported.
func (n *namedLimiter) noteHeld(d *gatehouse.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	longest := max(d.Reported.PausedFor, d.Reported.RampFor, d.Reported.AdoptedFor)
	n.heldUntil = d.At.Add(longest)
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
