package control

import (
	"slices"
	"sort"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A slidingLogMeter is the meter that remembers every start: in any interval at most the size pass, and
// nothing is refused that would fit. It costs 16 bytes for each start within the interval.
//
// So that its memory is bounded, a size above maxExact is kept in steps of interval/maxExact: the
// starts within one step count until the last of them no longer does, at most a step too long.
type slidingLogMeter struct {
	meterRate
	grain       int64      // the length of a step; 1 when every start is kept as it is
	span        int64      // how long a start counts
	count       int64      // of all runs
	runs        []startRun // in order of their instants
	borrowed    bool       // runs are another log's, and to be copied before they are written to
	arrayLength int32      // the length of the array that runs are in
}

// A startRun is n starts, the last of them at an instant. Those before are after the run before it.
type startRun struct{ at, n int64 }

const (
	// maxExact is the most starts that are distinguished within an interval.
	maxExact = 16_384
	// maxRuns is the most runs that are kept: what lies ahead makes the log longer than an interval.
	maxRuns = 2 * maxExact
	// maxCount is more than all that may be cancelled and a size after that. What is older than so
	// many decides nothing: no interval that holds it has room.
	maxCount = noTime / 8 * 7
)

func (l *slidingLogMeter) setLimit(now int64, to *gatehouse.Rule, _ *time.Location) (restarted bool) {
	return l.setSpan(now, to, to.Interval)
}

// setSpan puts a limit in force under which a start counts for so long.
func (l *slidingLogMeter) setSpan(now int64, to *gatehouse.Rule, span time.Duration) (restarted bool) {
	before, grain := l.span, l.grain
	l.size, l.interval, l.span = to.Size, int64(to.Interval), int64(span)
	l.setGrain()
	l.forgetOld(now)
	return l.span != before || l.grain != grain
}

// setGrain makes the steps that the size asks for.
func (l *slidingLogMeter) setGrain() {
	l.grain = 1
	// Up to maxExact starts are kept exactly. Above that they share steps, which bounds the memory.
	if l.size > maxExact {
		l.grain = max(1, l.span/maxExact)
	}
}

// forgetOld drops the runs that no interval ending now or later holds.
func (l *slidingLogMeter) forgetOld(now int64) {
	passed := 0
	for passed < len(l.runs) && l.runs[passed].at <= now-l.span {
		passed++
	}
	l.dropOldest(passed)
}

// dropOldest cuts the oldest runs off. The array is let go of when less than half of it is used.
func (l *slidingLogMeter) dropOldest(n int) {
	if n == 0 {
		return
	}
	for _, r := range l.runs[:n] {
		l.count -= r.n
	}
	l.runs = l.runs[n:]
	if int(l.arrayLength) > 2*len(l.runs)+leastRuns && !l.borrowed {
		// Slicing keeps the whole array alive; a copy frees what is no longer used.
		l.copyRuns()
	}
}

// leastRuns is so few that an array of them need not be let go of.
const leastRuns = 16

// ownRuns makes the runs the log's own, before they are written to.
func (l *slidingLogMeter) ownRuns() {
	if l.borrowed {
		l.copyRuns()
	}
}

func (l *slidingLogMeter) copyRuns() {
	l.runs = slices.Clone(l.runs)
	l.arrayLength, l.borrowed = int32(cap(l.runs)), false // about maxRuns at most
}

// insertRun puts a run in its place.
func (l *slidingLogMeter) insertRun(i int, r startRun) {
	before := cap(l.runs)
	l.runs = slices.Insert(l.runs, i, r)
	if cap(l.runs) > before {
		l.arrayLength = int32(cap(l.runs)) // about maxRuns at most
	}
}

// latestStart is the latest start, but not before from.
func (l *slidingLogMeter) latestStart(from int64) int64 {
	if len(l.runs) == 0 {
		return from
	}
	return max(from, l.runs[len(l.runs)-1].at)
}

// earliestFit is not before the latest start there is: reservations are made in order.
func (l *slidingLogMeter) earliestFit(from, n int64) int64 {
	switch {
	case l.size == 0 && n > 0:
		return noTime
	case n > l.size: // it never fits, and not now
		return addSaturating(l.earliestFit(from, l.size), 1)
	case n > 0:
		// A cost of 0 takes nothing, and needs not go behind the last start.
		from = l.latestStart(from)
	}
	return max(from, l.freedAt(l.size-n))
}

// freedAt is when no more than room still count. It looks at the runs from the end that is nearer.
func (l *slidingLogMeter) freedAt(room int64) int64 {
	over := l.count - room
	if over <= 0 {
		return 0
	}
	i := 0 // the last run that must pass
	// Both ways find the run whose end leaves no more than room. Which is shorter depends on how full the
	// log is.
	if over <= room {
		for over -= l.runs[0].n; over > 0; over -= l.runs[i].n {
			i++
		}
	} else {
		i = len(l.runs) - 1
		for room -= l.runs[i].n; room >= 0; room -= l.runs[i].n {
			i--
		}
	}
	return addSaturating(l.runs[i].at, l.span)
}

// findRun is the first run that is not before an instant: the one that a start then is in.
func (l *slidingLogMeter) findRun(at int64) int {
	n := len(l.runs)
	if n == 0 || l.runs[n-1].at < at {
		return n
	}
	return sort.Search(n, func(i int) bool { return l.runs[i].at >= at })
}

func (l *slidingLogMeter) takeTokens(now, at, n int64) {
	l.forgetOld(now)
	l.ownRuns()
	if len(l.runs) >= maxRuns { // the oldest two count as one
		first := l.runs[0].n
		l.dropOldest(1)
		l.runs[0].n += first
		l.count += first
	}
	l.count += n
	// Starts within one step share a run. The run keeps its latest instant, so that none counts for too
	// short a time.
	switch i := l.findRun(at); {
	case i < len(l.runs) && l.runs[i].at/l.grain == at/l.grain:
		l.runs[i].n += n
	case i > 0 && l.runs[i-1].at/l.grain == at/l.grain:
		l.runs[i-1].at = at
		l.runs[i-1].n += n
	default:
		l.insertRun(i, startRun{at, n})
	}
	// The oldest starts beyond this decide nothing, and dropping them keeps sums from overflowing.
	for l.count > maxCount {
		over := min(l.count-maxCount, l.runs[0].n)
		l.count -= over
		l.runs[0].n -= over
		if l.runs[0].n == 0 {
			l.dropOldest(1)
		}
	}
}

// giveBack takes back the oldest: whichever was meant, no interval gets more than its size.
func (l *slidingLogMeter) giveBack(now, n int64) {
	l.forgetOld(now)
	passed := 0
	// Starts ahead are reservations, which a refund leaves alone.
	for passed < len(l.runs) && l.runs[passed].at <= now && n >= l.runs[passed].n {
		n -= l.runs[passed].n
		passed++
	}
	l.dropOldest(passed)
	if n > 0 && len(l.runs) > 0 && l.runs[0].at <= now {
		l.ownRuns()
		l.runs[0].n -= n
		l.count -= n
	}
}

func (l *slidingLogMeter) undoTake(_, at, _, n int64) { l.removeStart(at, n) }

// removeStart implements [schedulingMeter].
func (l *slidingLogMeter) removeStart(at, n int64) {
	i := l.findRun(at)
	if i == len(l.runs) || l.runs[i].at/l.grain != at/l.grain {
		return
	}
	// A trial copy shares its runs with the log, so that they are copied before the first write.
	l.ownRuns()
	n = min(n, l.runs[i].n)
	l.count -= n
	l.runs[i].n -= n
	if l.runs[i].n == 0 {
		l.runs = slices.Delete(l.runs, i, i+1)
	}
}

// earliestReservation implements [schedulingMeter].
func (l *slidingLogMeter) earliestReservation(now, n int64) int64 { return l.earliestFit(now, n) }

// reservedAfter implements [schedulingMeter].
func (l *slidingLogMeter) reservedAfter(now int64) int64 {
	ahead := int64(0)
	for i := len(l.runs) - 1; i >= 0 && l.runs[i].at > now; i-- {
		ahead += l.runs[i].n
	}
	return ahead
}

// readMeter forgets in passing what no longer counts.
func (l *slidingLogMeter) readMeter(now int64) meterReading {
	l.forgetOld(now)
	r := meterReading{limit: l.size, interval: l.interval, reset: now}
	if l.latestStart(now) == now {
		r.left = max(0, l.size-l.count)
	}
	if l.count > 0 {
		r.reset = addSaturating(l.latestStart(0), l.span)
	}
	return r
}

func (l *slidingLogMeter) clearTaken() { l.runs, l.count, l.arrayLength, l.borrowed = nil, 0, 0, false }

func (l *slidingLogMeter) clone() limitMeter {
	c := *l
	c.copyRuns()
	return &c
}

func (l *slidingLogMeter) codeFields(c *stateCodec) {
	l.meterRate.codeFields(c)
	guard := l.span - l.interval
	c.codeUpTo(&guard, int64(gatehouse.MaxDuration))
	if c.reading {
		// The grain follows from size and span, so it is not stored.
		l.span = l.interval + guard
		l.setGrain()
	}
	codeSlice(c, &l.runs, 2)
	if n := len(l.runs); n > maxRuns {
		c.failDecoding("log of %d runs, want at most %d", n, maxRuns)
		return
	}
	if c.reading {
		l.arrayLength = int32(len(l.runs)) // at most maxRuns
	}
	at := int64(0)
	for i := range l.runs {
		at = l.codeRun(c, i, at)
	}
}

// codeRun gives a run as how long it is after the one before, whose instant it is told and returns.
func (l *slidingLogMeter) codeRun(c *stateCodec, i int, at int64) int64 {
	r := &l.runs[i]
	// The first run is an instant; the others are small differences, which take a byte or two.
	if i == 0 {
		c.codeInstant(&r.at)
		at = r.at - 1
	} else {
		later := r.at - at
		c.codeUpTo(&later, noTime-max(0, at))
		if c.reading {
			r.at = at + later
		}
	}
	c.codeUpTo(&r.n, maxCount)
	if !c.reading {
		return r.at
	}
	l.count += r.n
	if r.n == 0 || l.count > maxCount || l.count < 0 || r.at == at {
		c.failDecoding("log of too many, or run %d of it is empty or out of order", i)
	}
	return r.at
}
