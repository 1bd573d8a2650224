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
	tally
	deadline time.Time // zero before the first kick or wait
	lastKick time.Time
	kicks    int64
	keep     time.Duration
}

// Step implements [State].
func (w *Watchdog) Step(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	w.begin(now)
	switch cmd.Op {
	case gatehouse.OpKick:
		w.kicks++
		w.lastKick = now
		w.deadline = now.Add(cmd.Expires)
		w.keep = keep(cmd)
		return grant(now)
	case gatehouse.OpWait:
		return w.wait(now, cmd)
	default:
		d := grant(now)
		d.Stats = w.stats("waited",
			gatehouse.Stat{Name: "kicks", Value: w.kicks},
			gatehouse.Stat{Name: "last_kick", Value: w.lastKick},
			gatehouse.Stat{Name: "fired", Value: count(!w.deadline.After(now) && now.Before(w.Expiry()))})
		return d
	}
}

func (w *Watchdog) wait(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if w.deadline.IsZero() || !came(now, cmd).Before(w.Expiry()) { // it is new, or was kept long enough
		w.deadline, w.keep = now.Add(unkicked), keep(cmd)
	}
	if w.deadline.After(now) {
		w.refused(cmd)
		return refuse(now, w.deadline.Sub(now))
	}
	w.pass(now, cmd)
	return grant(now)
}

// Undo implements [State]. There is nothing to give back.
func (w *Watchdog) Undo(time.Time, *gatehouse.Command) {}

// Expiry implements [State]. A watchdog that fired is kept for those who come late.
func (w *Watchdog) Expiry() time.Time { return w.deadline.Add(w.keep) }

func (w *Watchdog) code(c *codec) {
	c.version(1)
	w.tally.code(c)
	c.time(&w.deadline)
	c.time(&w.lastKick)
	c.int64(&w.kicks)
	c.duration(&w.keep)
}
