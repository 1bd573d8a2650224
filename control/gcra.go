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
	tat   int64  // the theoretical arrival time of the next request
	moves *moves // nil until an undo or a refund has moved that back
}

// moves are what was taken back.
type moves struct {
	busy int64 // since when the arrival time is ahead of the present without a break, as far as it matters
	sum  int64 // by how much it was moved back since
	at   int64 // when it was last
}

func (g *gcra) set(_ int64, to *gatehouse.Command, _ *time.Location) (anew bool) {
	interval := int64(to.Interval)
	g.burst = to.Burst
	if g.size == to.Size && g.interval == interval {
		return false
	}
	g.size, g.interval = to.Size, interval
	return true
}

// step is the time between two requests; 0 when the size is.
func (g *gcra) step() int64 {
	if g.size == 0 {
		return 0
	}
	return max(1, g.interval/g.size)
}

// tolerance is how far ahead the theoretical arrival time may be after a request.
func (g *gcra) tolerance() int64 { return times(g.step(), g.burst+1) }

func (g *gcra) when(from, n int64) int64 {
	if g.size == 0 && n > 0 {
		return noTime
	}
	return max(from, plus(max(from, g.tat), times(g.step(), n))-g.tolerance())
}

func (g *gcra) take(_, at, n int64) {
	if g.moves != nil && g.tat <= at {
		g.moves.busy, g.moves.sum = at, 0
	}
	g.tat = plus(max(g.tat, at), times(g.step(), n))
}

func (g *gcra) giveBack(now, n int64) { g.moveBack(now, times(g.step(), n)) }

// moveBack takes back a length of time of what has not come back by itself.
func (g *gcra) moveBack(now, length int64) {
	if length = min(length, g.tat-now); length <= 0 {
		return
	}
	if g.moves == nil {
		g.moves = new(moves)
	}
	g.tat -= length
	g.moves.sum = plus(g.moves.sum, length)
	g.moves.at = now
}

// undo takes back what has not come back by itself. Requests come back one step after the other in the order
// in which they were let through, and of these n the last was to at reset. It does earlier by what was taken
// back since. Some of that may have been taken back before, or of requests behind it; but then too little is
// given back, which is safe.
func (g *gcra) undo(now, at, reset, n int64) {
	if m := g.moves; m != nil {
		if at < m.busy {
			return // all that was taken then has come back
		}
		if at <= m.at {
			reset -= m.sum
		}
	}
	g.moveBack(now, min(times(g.step(), n), reset-now))
}

func (g *gcra) read(now int64) reading {
	tat := max(now, g.tat)
	if g.size == 0 {
		return reading{reset: tat, interval: g.interval}
	}
	left := max(0, g.tolerance()-(tat-now)) / g.step()
	return reading{limit: g.burst + 1, left: left, reset: tat, interval: g.tolerance()}
}

func (g *gcra) clear() { g.tat, g.moves = 0, nil }

func (g *gcra) clone() meter {
	c := *g
	if g.moves != nil {
		m := *g.moves
		c.moves = &m
	}
	return &c
}

func (g *gcra) code(c *codec) {
	g.rate.code(c)
	c.size(&g.burst)
	c.instant(&g.tat)
	if c.form > 1 {
		g.codeMoves(c)
	}
}

// codeMoves codes what was taken back, of which the first form knew nothing.
func (g *gcra) codeMoves(c *codec) {
	moved := g.moves != nil
	if !c.bool(&moved) {
		return
	}
	if c.reading {
		g.moves = new(moves)
	}
	c.instant(&g.moves.busy)
	c.upTo(&g.moves.sum, noTime)
	c.instant(&g.moves.at)
}
