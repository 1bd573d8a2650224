package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A gcraMeter is the meter of the generic cell rate algorithm of the ATM Forum, as redis-cell has it: every
// request moves the theoretical arrival time on by one step, and is let through while that time is no
// further ahead than the burst allows. In a window of w at most burst+1 + w/step pass.
//
// The step, interval/size, is cut to whole nanoseconds. It is kept, as to divide at each use would be a tenth
// of a decision.
type gcraMeter struct {
	meterRate
	step  int64 // between two requests; 0 when the size is
	burst int64
	tat   int64        // the theoretical arrival time of the next request
	undos *undoHistory // nil until an undo or a refund has moved that back
}

// undoHistory are what was taken back since the arrival time is ahead of the present without a break.
type undoHistory struct {
	busySince   int64        // since when, as far as it matters
	unlistedSum int64        // of refunds, and of undos that are no longer in the list
	unlistedAt  int64        // when the last of those was
	list        []undoRecord // the last undos, the oldest first
}

// A undoRecord is one undo.
type undoRecord struct {
	taken, reset int64 // when its requests were let through, and when the last was to come back
	length       int64 // by how much it moved the arrival time back
	at           int64 // when
}

// maxUndoRecords is how many undos are kept apart, at 32 bytes each. Those of more count as if they were in
// front.
const maxUndoRecords = 16

func (g *gcraMeter) setLimit(_ int64, to *gatehouse.Rule, _ *time.Location) (restarted bool) {
	restarted = g.size != to.Size || g.interval != int64(to.Interval)
	g.size, g.interval, g.burst = to.Size, int64(to.Interval), to.Burst
	if restarted {
		g.setStep()
	}
	return restarted
}

// setStep works out the step of the rate in force.
func (g *gcraMeter) setStep() {
	g.step = 0
	if g.size > 0 {
		g.step = max(1, g.interval/g.size)
	}
}

// burstTolerance is how far ahead the theoretical arrival time may be after a request.
func (g *gcraMeter) burstTolerance() int64 { return mulSaturating(g.step, g.burst+1) }

func (g *gcraMeter) earliestFit(from, n int64) int64 {
	if g.size == 0 && n > 0 {
		return noTime
	}
	tat := addSaturating(max(from, g.tat), mulSaturating(g.step, n))
	return max(from, tat-g.burstTolerance())
}

func (g *gcraMeter) takeTokens(_, at, n int64) {
	// All earlier requests have come back: their undos cannot matter any more.
	if g.undos != nil && g.tat <= at {
		*g.undos = undoHistory{busySince: at}
	}
	g.tat = addSaturating(max(g.tat, at), mulSaturating(g.step, n))
}

func (g *gcraMeter) giveBack(now, n int64) {
	if length := g.moveBack(now, mulSaturating(g.step, n)); length > 0 {
		g.undos.addUnlisted(now, length)
	}
}

// moveBack takes back at most a length of time of what has not come back by itself, and returns how much.
func (g *gcraMeter) moveBack(now, most int64) (length int64) {
	length = min(most, g.tat-now)
	if length <= 0 {
		return 0
	}
	if g.undos == nil {
		g.undos = new(undoHistory)
	}
	g.tat -= length
	return length
}

// undoTake takes back what has not come back by itself. Requests come back one step after the other in the
// order in which they were let through, and of these n the last was to at reset. It does earlier by what
// was taken back since of those in front of it.
func (g *gcraMeter) undoTake(now, at, reset, n int64) {
	// Undos since then moved the requests in front of these forward, so these come back earlier as well.
	last := reset
	if m := g.undos; m != nil {
		if at < m.busySince {
			return // all that was taken then has come back
		}
		if now > at { // before that, nothing can have come back
			last -= m.movedBefore(at, reset)
		}
	}
	if length := g.moveBack(now, min(mulSaturating(g.step, n), last-now)); length > 0 {
		g.undos.addUndo(undoRecord{taken: at, reset: reset, length: length, at: now})
	}
}

// addUnlisted counts what was taken back of requests that are not known.
func (m *undoHistory) addUnlisted(now, length int64) {
	m.unlistedSum, m.unlistedAt = addSaturating(m.unlistedSum, length), max(m.unlistedAt, now)
}

// addUndo notes an undo.
func (m *undoHistory) addUndo(one undoRecord) {
	// The oldest record is folded into the sum, which counts as in front of everything before its time.
	if len(m.list) >= maxUndoRecords {
		m.addUnlisted(m.list[0].at, m.list[0].length)
		m.list = slices.Delete(m.list, 0, 1)
	}
	m.list = append(m.list, one)
}

// movedBefore is by how much the requests that were let through at an instant, the last of which was to
// come back at reset, come back earlier. It is exact, or too much, and then too little is given back, which
// is safe: a refund may have been of requests behind these, and of those let through at one instant at
// which something was taken back as well, it is unknown which were in front.
func (m *undoHistory) movedBefore(at, reset int64) (length int64) {
	if at <= m.unlistedAt {
		length = m.unlistedSum
	}
	// If something taken at the same instant was undone, the order within that instant is unknown, and all
	// of it counts as in front.
	mixed := slices.ContainsFunc(m.list, func(one undoRecord) bool { return one.at == at })
	for _, one := range m.list {
		inFront := one.taken < at || one.taken == at && (one.reset <= reset || mixed)
		if one.at >= at && inFront {
			length = addSaturating(length, one.length)
		}
	}
	return length
}

func (g *gcraMeter) readMeter(now int64) meterReading {
	tat := max(now, g.tat)
	// A size of 0 has no step to divide by.
	if g.size == 0 {
		return meterReading{reset: tat, interval: g.interval}
	}
	tolerance := g.burstTolerance()
	left := max(0, tolerance-(tat-now)) / g.step
	return meterReading{limit: g.burst + 1, left: left, reset: tat, interval: tolerance}
}

func (g *gcraMeter) clearTaken() { g.tat, g.undos = 0, nil }

func (g *gcraMeter) clone() limitMeter {
	c := *g
	// The history is a pointer: a copy that is only tried out must not write into it.
	if g.undos != nil {
		m := *g.undos
		m.list = slices.Clone(m.list)
		c.undos = &m
	}
	return &c
}

func (g *gcraMeter) codeFields(c *stateCodec) {
	g.meterRate.codeFields(c)
	if c.reading {
		g.setStep() // not while it is written, as others may read it then
	}
	c.codeSize(&g.burst)
	c.codeInstant(&g.tat)
	if c.version > 1 {
		g.codeUndos(c)
	}
}

// codeUndos codes what was taken back, which version 1 did not have.
func (g *gcraMeter) codeUndos(c *stateCodec) {
	// Version 1 ended here. A limiter that never had an undo costs one byte for this.
	moved := g.undos != nil
	if !c.codeBool(&moved) {
		return
	}
	if c.reading {
		g.undos = new(undoHistory)
	}
	c.codeInstant(&g.undos.busySince)
	c.codeUpTo(&g.undos.unlistedSum, noTime)
	c.codeInstant(&g.undos.unlistedAt)
	codeSlice(c, &g.undos.list, leastUndoRecord)
	// No more are ever kept, and none may take more memory than is counted for them.
	if n := len(g.undos.list); n > maxUndoRecords {
		c.failDecoding("%d undos, want at most %d", n, maxUndoRecords)
		return
	}
	for i := range g.undos.list {
		one := &g.undos.list[i]
		c.codeInstant(&one.taken)
		c.codeInstant(&one.reset)
		c.codeUpTo(&one.length, noTime)
		c.codeInstant(&one.at)
	}
}

// leastUndoRecord is the least that an undo takes in a form: three instants and a length.
const leastUndoRecord = 25
