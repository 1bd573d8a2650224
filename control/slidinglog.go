package control

import "slices"

// A slidingLog is the meter that remembers every start: in any interval at most the size pass, and
// nothing is refused that would fit. It costs 16 bytes for each start within the interval.
//
// So that its memory is bounded, a size above maxExact is kept in steps of interval/maxExact: every
// start counts as if it had come at the end of its step, at most that much too long.
type slidingLog struct {
	rate
	grain int64 // the length of a step; 1 when every start is kept as it is
	span  int64 // how long a start counts from the beginning of its step
	count int64 // of all runs
	runs  []run // in order of their starts
}

// A run is so many starts at one instant.
type run struct{ at, n int64 }

// The most starts that are told apart within an interval, and the most runs that are kept: what
// lies ahead makes the log longer than an interval, and some of it may be taken back.
const (
	maxExact = 16_384
	maxRuns  = 2 * maxExact
)

func (l *slidingLog) set(now int64, to bound) {
	l.size, l.interval, l.grain = to.size, to.interval, 1
	if to.size > maxExact {
		l.grain = max(1, to.interval/maxExact)
	}
	l.span = to.interval + to.guard + l.grain - 1
	l.forget(now)
}

// forget drops the runs that no interval ending now or later holds.
func (l *slidingLog) forget(now int64) {
	passed := 0
	for passed < len(l.runs) && l.runs[passed].at <= now-l.span {
		l.count -= l.runs[passed].n
		passed++
	}
	l.drop(passed)
}

// drop cuts the oldest runs off. The array is let go of when most of it is not used.
func (l *slidingLog) drop(n int) {
	if n == 0 {
		return
	}
	l.runs = l.runs[n:]
	if cap(l.runs) < 2*n || len(l.runs) == 0 {
		l.runs = slices.Clone(l.runs)
	}
}

// last is the latest start.
func (l *slidingLog) last(from int64) int64 {
	if len(l.runs) == 0 {
		return from
	}
	return max(from, l.runs[len(l.runs)-1].at)
}

// when is not before the latest start there is: starts are promised in order.
func (l *slidingLog) when(from, n int64) int64 {
	switch {
	case l.size == 0 && n > 0:
		return noTime
	case n > l.size: // it never fits, and not now
		return l.when(from, l.size) + 1
	}
	at := from
	if n > 0 {
		at = l.last(from)
	}
	room, count := l.size-n, l.count
	for _, r := range l.runs {
		if count <= room {
			break
		}
		count -= r.n
		at = max(at, r.at+l.span)
	}
	return at
}

func (l *slidingLog) take(now, at, n int64) {
	if n == 0 {
		return
	}
	l.forget(now)
	at -= at % l.grain
	l.count += n
	if i := len(l.runs) - 1; i >= 0 && l.runs[i].at >= at {
		l.runs[i].n += n
		return
	}
	if len(l.runs) >= maxRuns {
		l.count -= l.runs[0].n
		l.drop(1)
	}
	l.runs = append(l.runs, run{at, n})
}

// giveBack takes back the oldest: whichever was meant, no interval gets more than its size.
func (l *slidingLog) giveBack(now, n int64) {
	l.forget(now)
	for n > 0 && len(l.runs) > 0 && l.runs[0].at <= now {
		back := min(n, l.runs[0].n)
		l.shrink(0, back)
		n -= back
	}
}

func (l *slidingLog) shrink(i int, n int64) {
	n = min(n, l.runs[i].n)
	l.count -= n
	if l.runs[i].n -= n; l.runs[i].n == 0 {
		l.runs = slices.Delete(l.runs, i, i+1)
	}
}

func (l *slidingLog) undo(_, at, _, n int64) { l.remove(at, n) }

// remove implements [ledger].
func (l *slidingLog) remove(at, n int64) {
	at -= at % l.grain
	i, found := slices.BinarySearchFunc(l.runs, at, func(r run, at int64) int {
		return int(max(-1, min(1, r.at-at)))
	})
	if found {
		l.shrink(i, n)
	}
}

func (l *slidingLog) read(now int64) reading {
	r := reading{limit: l.size, interval: l.interval, reset: now}
	count := l.count
	for _, run := range l.runs {
		if run.at > now-l.span {
			break
		}
		count -= run.n
	}
	r.left = max(0, l.size-count)
	if count > 0 {
		r.reset = l.last(now-l.span) + l.span
	}
	return r
}

func (l *slidingLog) clear() { l.runs, l.count = nil, 0 }

func (l *slidingLog) clone() meter {
	c := *l
	c.runs = slices.Clone(l.runs)
	return &c
}
