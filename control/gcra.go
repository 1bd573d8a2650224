package control

import (
	"slices"
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

// moves are what was taken back since the arrival time is ahead of the present without a break.
type moves struct {
	busy int64  // since when, as far as it matters
	sum  int64  // of refunds, and of undos that are no longer in the list
	at   int64  // when the last of those was
	list []move // the last undos, the oldest first
}

// A move is one undo.
type move struct {
	taken, reset int64 // when its requests were let through, and when the last was to come back
	length       int64 // by how much it moved the arrival time back
	at           int64 // when
}

// maxMoves is how many undos are kept apart, at 32 bytes each. Those of more count as if they were in front.
const maxMoves = 16

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
		*g.moves = moves{busy: at}
	}
	g.tat = plus(max(g.tat, at), times(g.step(), n))
}

func (g *gcra) giveBack(now, n int64) {
	if length := g.moveBack(now, times(g.step(), n)); length > 0 {
		g.moves.add(now, length)
	}
}

// moveBack takes back at most a length of time of what has not come back by itself, and returns how much.
func (g *gcra) moveBack(now, most int64) (length int64) {
	length = min(most, g.tat-now)
	if length <= 0 {
		return 0
	}
	if g.moves == nil {
		g.moves = new(moves)
	}
	g.tat -= length
	return length
}

// undo takes back what has not come back by itself. Requests come back one step after the other in the order
// in which they were let through, and of these n the last was to at reset. It does earlier by what was taken
// back since of those in front of it.
func (g *gcra) undo(now, at, reset, n int64) {
	last := reset
	if m := g.moves; m != nil {
		if at < m.busy {
			return // all that was taken then has come back
		}
		if now > at { // before that, nothing can have come back
			last -= m.before(at, reset)
		}
	}
	if length := g.moveBack(now, min(times(g.step(), n), last-now)); length > 0 {
		g.moves.note(move{taken: at, reset: reset, length: length, at: now})
	}
}

// add counts what was taken back of requests that are not known.
func (m *moves) add(now, length int64) {
	m.sum, m.at = plus(m.sum, length), max(m.at, now)
}

// note notes an undo.
func (m *moves) note(one move) {
	if len(m.list) >= maxMoves {
		m.add(m.list[0].at, m.list[0].length)
		m.list = slices.Delete(m.list, 0, 1)
	}
	m.list = append(m.list, one)
}

// before is by how much the requests that were let through at an instant, the last of which was to come back
// at reset, come back earlier. It is exact, or too much, and then too little is given back, which is safe:
// a refund may have been of requests behind these, and of those let through at one instant at which something
// was taken back as well, nobody knows which were in front.
func (m *moves) before(at, reset int64) (length int64) {
	if at <= m.at {
		length = m.sum
	}
	mixed := slices.ContainsFunc(m.list, func(one move) bool { return one.at == at })
	for _, one := range m.list {
		inFront := one.taken < at || one.taken == at && (one.reset <= reset || mixed)
		if one.at >= at && inFront {
			length = plus(length, one.length)
		}
	}
	return length
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
		m.list = slices.Clone(m.list)
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
	n := c.items(len(g.moves.list), leastMove)
	if n > maxMoves {
		c.fail("%d undos, want at most %d", n, maxMoves)
		return
	}
	if c.reading && n > 0 {
		g.moves.list = make([]move, n)
	}
	for i := range g.moves.list {
		one := &g.moves.list[i]
		c.instant(&one.taken)
		c.instant(&one.reset)
		c.upTo(&one.length, noTime)
		c.instant(&one.at)
	}
}

// leastMove is the least that an undo takes in a form: three instants and a length.
const leastMove = 25
