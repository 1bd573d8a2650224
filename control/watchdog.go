package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// unkicked is how long a watchdog that was never kicked waits for its first kick, counted from the
// first wait.
const unkicked = time.Minute

// A Watchdog lets its waiters go when no kick has come for as long as the last one allowed. It is
// level-triggered: once it has fired, every wait returns at once until the next kick. So a monitor
// that comes late still learns that the patient is silent.
type Watchdog struct {
	commandCounts
	deadline time.Time // zero before the first kick or wait
	lastKick time.Time
	kicks    int64
	keep     time.Duration
}

// Step implements [State].
func (w *Watchdog) Step(now time.Time, turn *Turn) { turn.Decision = w.applyCommand(now, turn) }

func (w *Watchdog) applyCommand(now time.Time, turn *Turn) gatehouse.Decision {
	w.noteFirstUse(now)
	switch turn.Op {
	case gatehouse.OpKick:
		// Even a watchdog that has fired goes back to waiting with a kick.
		w.kicks++
		w.lastKick = now
		w.deadline = now.Add(turn.Expires)
		w.keep = keepTime(turn.Command)
		return grantedAt(now)
	case gatehouse.OpWait:
		return w.waitForSilence(now, turn)
	// Statistics, which all kinds have.
	default:
		d := grantedAt(now)
		d.Stats = w.commandStats("waited",
			gatehouse.Stat{Name: "kicks", Value: w.kicks},
			gatehouse.Stat{Name: "last_kick", Value: w.lastKick},
			gatehouse.Stat{Name: "fired", Value: boolToInt(!w.deadline.After(now) && now.Before(w.Expiry()))})
		return d
	}
}

func (w *Watchdog) waitForSilence(now time.Time, turn *Turn) gatehouse.Decision {
	// It is new, or was kept long enough. A command that was waiting before the watchdog expired still sees
	// that it fired, whenever the store looks at it again.
	if w.deadline.IsZero() || !arrivalTime(now, turn).Before(w.Expiry()) {
		w.deadline, w.keep = now.Add(unkicked), keepTime(turn.Command)
	}
	if w.deadline.After(now) {
		w.countRefused(turn)
		return refusedFor(now, w.deadline.Sub(now))
	}
	w.countPassed(now, turn)
	return grantedAt(now)
}

// Undo implements [State]. There is nothing to give back.
func (w *Watchdog) Undo(time.Time, *Turn) {}

// Expiry implements [State]. A watchdog that fired is kept for those who come late.
func (w *Watchdog) Expiry() time.Time { return w.deadline.Add(w.keep) }

func (w *Watchdog) codeFields(c *stateCodec) {
	c.codeVersion(1)
	w.commandCounts.codeFields(c)
	c.codeTime(&w.deadline)
	c.codeTime(&w.lastKick)
	c.codeInt64(&w.kicks)
	c.codeDuration(&w.keep)
}
