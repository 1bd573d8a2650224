package control

// A fixedWindow is the meter that counts in windows which follow one another without a gap, counted
// from Go's zero time: a window of a day begins at midnight UTC, one of a week on Monday. In any
// window of the same length, wherever it begins, at most twice the size pass.
type fixedWindow struct {
	rate
	start int64 // of the window that count is of
	count int64
}

func (w *fixedWindow) set(now int64, to bound) {
	w.size = to.size
	if w.interval != to.interval {
		w.interval = to.interval
		// What was taken in the window so far counts in the one that takes its place.
		w.start = windowStart(max(now, w.start), w.interval)
	}
	w.roll(now)
}

func (w *fixedWindow) roll(at int64) {
	if at-w.start >= w.interval {
		w.start, w.count = windowStart(at, w.interval), 0
	}
}

func (w *fixedWindow) when(from, n int64) int64 {
	at := *w
	at.roll(from)
	return at.next(from, at.start+w.interval, n)
}

// next is when n fit into a window that ends at an instant, or into those that follow it.
func (w *fixedWindow) next(from, end, n int64) int64 {
	free := max(0, w.size-w.count)
	switch {
	case n <= free:
		return from
	case w.size == 0:
		return noTime
	}
	return end + further((n-free-1)/w.size, w.interval)
}

func (w *fixedWindow) take(_, at, n int64) {
	w.roll(at)
	w.count += n
}

func (w *fixedWindow) giveBack(now, n int64) {
	w.roll(now)
	w.count = max(0, w.count-n)
}

func (w *fixedWindow) undo(_, at, _, n int64) {
	if at >= w.start {
		w.count = max(0, w.count-n)
	}
}

func (w *fixedWindow) read(now int64) reading {
	at := *w
	at.roll(now)
	r := reading{limit: w.size, left: max(0, w.size-at.count), reset: now, interval: w.interval}
	if at.count > 0 {
		r.reset = at.start + w.interval
	}
	return r
}

func (w *fixedWindow) clear() { w.count = 0 }

func (w *fixedWindow) clone() meter {
	c := *w
	return &c
}
