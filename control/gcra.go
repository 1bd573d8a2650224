package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A gcra is the meter of the generic cell rate algorithm of the ATM Forum, as redis-cell has it: every
// request moves the theoretical arrival time on by one step, and is let through while that time is no
// further ahead than the burst allows. In a window of w at most burst+1 + w/step pass.
//
// The step, interval/size, is cut to whole nanoseconds.
type gcra struct {
	rate
	burst int64
	step  int64 // between two requests; 0 when size is
	tat   int64 // the theoretical arrival time of the next request
}

func (g *gcra) set(_ int64, to *gatehouse.Command, _ *time.Location) {
	interval := int64(to.Interval)
	g.burst = to.Burst
	if g.size == to.Size && g.interval == interval {
		return
	}
	g.size, g.interval = to.Size, interval
	g.cut()
}

// cut makes the step that the rate asks for.
func (g *gcra) cut() {
	g.step = 0
	if g.size > 0 {
		g.step = max(1, g.interval/g.size)
	}
}

// tolerance is how far ahead the theoretical arrival time may be after a request.
func (g *gcra) tolerance() int64 { return times(g.step, g.burst+1) }

func (g *gcra) when(from, n int64) int64 {
	if g.size == 0 && n > 0 {
		return noTime
	}
	return max(from, plus(max(from, g.tat), times(g.step, n))-g.tolerance())
}

func (g *gcra) take(_, at, n int64) { g.tat = plus(max(g.tat, at), times(g.step, n)) }

func (g *gcra) giveBack(now, n int64) {
	if g.tat > now {
		g.tat = max(now, g.tat-times(g.step, n))
	}
}

// undo takes back what has not come back by itself: of n requests the last comes back at reset.
func (g *gcra) undo(now, _, reset, n int64) {
	if reset > now && g.tat > now {
		g.tat = max(now, g.tat-min(times(g.step, n), reset-now))
	}
}

func (g *gcra) read(now int64) reading {
	tat := max(now, g.tat)
	if g.size == 0 {
		return reading{reset: tat, interval: g.interval}
	}
	left := max(0, g.tolerance()-(tat-now)) / g.step
	return reading{limit: g.burst + 1, left: left, reset: tat, interval: g.tolerance()}
}

func (g *gcra) clear() { g.tat = 0 }

func (g *gcra) clone() meter {
	c := *g
	return &c
}

func (g *gcra) code(c *codec) {
	g.rate.code(c)
	c.size(&g.burst)
	if c.instant(&g.tat); c.reading {
		g.cut()
	}
}
