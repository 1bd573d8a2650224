package control

import "math/bits"

// This file is when a limiter lets something through again after a third party has reported: behind the
// pause, and as much as the ramp has let through by then.

// reportedFit is the earliest instant, not before that at which the limits let n through, at which what was
// reported does so too. from is the earliest at which they may.
func (l *limiterStep) reportedFit(from, at, n int64) int64 {
	t := l.extra.reports
	for _, m := range l.projectedMeters() {
		at = max(at, l.adoptedFit(m, from, n))
	}
	return l.rampFit(t, at, n)
}

// rampFit is the earliest instant, not before another, at which the ramp lets n through.
func (l *limiterStep) rampFit(t *thirdParty, from, n int64) int64 {
	from = max(from, t.until)
	if from >= t.rampEnd() {
		return from
	}
	want, length := addSaturating(t.used, l.rampCost(n)), t.rampLength()
	if t.rampSum(length) < want {
		return t.rampEnd()
	}
	// The sum rises with the time, so that the instant can be found by halving. It takes 35 steps, which only
	// a limiter on its ramp needs.
	least, most := from-t.until, length
	for least < most {
		if middle := least + (most-least)/2; t.rampSum(middle) >= want {
			most = middle
		} else {
			least = middle + 1
		}
	}
	return t.until + least
}

// rampSum is how much the ramp has let through after some time, in ns of the whole rate: the integral of
// 1/10 + 9/10·x/length.
func (t *thirdParty) rampSum(x int64) int64 {
	// With x at most 30 s no product but that of proportionOf exceeds 64 bits.
	return x/10 + proportionOf(9*x, x, 20*t.rampLength())
}

// rampCost is the time in which n come back at the whole rate, rounded up. Of several limits the one with the
// highest rate counts: it is what the ramp leads up to, as the others say little about so short a time.
func (l *limiterStep) rampCost(n int64) int64 {
	cost := int64(noTime)
	for _, m := range l.activeMeters() {
		hi, lo := bits.Mul64(uint64(n), uint64(m.windowLength())) // from 0
		size := m.currentLimit().Size
		if size <= 0 || hi >= uint64(size) {
			continue
		}
		quotient, rest := bits.Div64(hi, lo, uint64(size))
		if rest > 0 {
			quotient++
		}
		cost = min(cost, int64(min(quotient, noTime))) // checked
	}
	return cost
}

// rampLeft is how many the ramp lets through at once.
func (l *limiterStep) rampLeft(t *thirdParty) int64 {
	left := int64(0)
	unused := max(0, t.rampSum(l.now-t.until)-t.used)
	for _, m := range l.activeMeters() {
		hi, lo := bits.Mul64(uint64(unused), uint64(m.currentLimit().Size)) // from 0
		if interval := uint64(m.windowLength()); hi < interval {
			quotient, _ := bits.Div64(hi, lo, interval)
			left = max(left, int64(min(quotient, noTime))) // checked
		} else {
			left = noTime
		}
	}
	return left
}

// lowerToReported lowers what a meter has left to what was reported lets through.
func (l *limiterStep) lowerToReported(m limitMeter, r *meterReading) {
	t := l.extra.reports
	// The lower one counts, since the third party knows of calls that this limiter does not.
	if a := l.adoptedOf(m); a != nil {
		r.left = min(r.left, a.remaining)
	}
	switch {
	case t.until > l.now:
		r.left = 0
	case t.rampEnd() > l.now:
		r.left = min(r.left, l.rampLeft(t))
	}
}

// noteReportedTake counts n that start at an instant against what was reported.
func (l *limiterStep) noteReportedTake(at, n int64) {
	t := l.reports()
	if t == nil {
		return
	}
	for i := range t.adopted {
		// What starts after its reset is of the third party's next window.
		if a := &t.adopted[i]; at < a.until {
			back := min(n, a.remaining)
			a.remaining, a.taken = a.remaining-back, a.taken+back
		}
	}
	x := at - t.until
	if x < 0 || x >= t.rampLength() {
		return
	}
	// An unused ramp gives no burst later, beyond what exactness needs.
	cost, sum := l.rampCost(n), t.rampSum(x)
	unused := max(cost, sum-t.rampSum(max(0, x-rampBurst)))
	t.used = addSaturating(max(t.used, sum-min(sum, unused)), cost)
}

// undoReportedTake takes back what noteReportedTake counted of n that were taken at an instant.
func (l *limiterStep) undoReportedTake(at, n int64) {
	t := l.reports()
	if t == nil {
		return
	}
	t.giveBackAdopted(at, n)
	if x := at - t.until; x >= 0 && x < t.rampLength() {
		t.used = max(0, t.used-l.rampCost(n))
	}
}
