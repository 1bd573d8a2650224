package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A slidingWindow is the meter that estimates what was taken in the last interval from two windows, as
// RussellLuo/slidingwindow does: all of the present one, and of the one before as much as the interval
// still covers, as if it had been taken evenly. The weights are exact whole numbers. In any interval
// at most twice the size pass, in a window counted from Go's zero time no more than the size.
//
// The fine and the strict mode count in parts instead: see fineWindow.
type slidingWindow struct {
	rate
	start    int64 // of the present window
	previous int64
	current  int64
	fine     *fineParts // nil in the mode that estimates
}

// parts is the window as one that counts in parts.
func (w *slidingWindow) parts() *fineWindow { return (*fineWindow)(w) }

func (w *slidingWindow) set(now int64, to *gatehouse.Command, _ *time.Location) (anew bool) {
	interval, fine := int64(to.Interval), to.Mode != gatehouse.ModeDefault
	w.size = to.Size
	if w.interval != interval || fine != (w.fine != nil) {
		w.change(now, interval, fine)
		anew = true
	}
	if fine {
		w.parts().setStrict(to.Mode == gatehouse.ModeStrict)
	}
	return anew
}

// change begins to count in another way. What still counts is taken for taken now.
func (w *slidingWindow) change(now, interval int64, fine bool) {
	count := int64(0)
	switch {
	case w.fine != nil:
		count = w.parts().count(now)
	case w.interval > 0:
		w.roll(now)
		count = w.estimate(now)
	}
	w.interval, w.start, w.previous, w.current, w.fine = interval, 0, 0, 0, nil
	if fine {
		w.fine = partsOf(false)
		w.parts().take(now, count)
		return
	}
	w.start = windowStart(now, interval)
	w.current = count
}

// roll makes the window around an instant the present one.
func (w *slidingWindow) roll(at int64) {
	passed := at - w.start
	if passed < w.interval {
		return
	}
	w.previous = 0
	if passed-w.interval < w.interval {
		w.previous = w.current
	}
	w.current = 0
	w.start = windowStart(at, w.interval)
}

// estimate is how many count at an instant in the present window.
func (w *slidingWindow) estimate(at int64) int64 {
	covered := w.interval - max(0, at-w.start) // the clock may have been put back to before the window
	return plus(share(w.previous, covered, w.interval), w.current)
}

// faded is when no more than room of n that were taken in a window still count. The window begins at
// an instant.
func (w *slidingWindow) faded(start, n, room int64) int64 {
	return plus(start, 2*w.interval-fade(n, room, w.interval))
}

func (w *slidingWindow) when(from, n int64) int64 {
	switch {
	case w.size == 0 && n > 0:
		return noTime
	case n > w.size: // it never fits, and not now
		return plus(w.when(from, w.size), 1)
	case w.fine != nil:
		return w.parts().when(from, n)
	}
	at := *w
	at.roll(from)
	if room := w.size - n - at.current; room >= 0 {
		return max(from, at.faded(at.start-at.interval, at.previous, room))
	}
	return max(from, at.faded(at.start, at.current, w.size-n))
}

func (w *slidingWindow) take(_, at, n int64) {
	if w.fine != nil {
		w.parts().take(at, n)
		return
	}
	w.roll(at)
	w.current = plus(w.current, n)
}

// giveBack takes from the present window first.
func (w *slidingWindow) giveBack(now, n int64) {
	if w.fine != nil {
		w.parts().giveBack(now, n)
		return
	}
	w.roll(now)
	back := min(n, w.current)
	w.current -= back
	w.previous -= min(n-back, w.previous)
}

func (w *slidingWindow) undo(_, at, _, n int64) {
	switch {
	case w.fine != nil:
		w.parts().undo(at, n)
	case at >= w.start:
		w.current = max(0, w.current-n)
	case at >= w.start-w.interval:
		w.previous = max(0, w.previous-n)
	}
}

func (w *slidingWindow) read(now int64) reading {
	if w.fine != nil {
		return w.parts().read(now)
	}
	at := *w
	at.roll(now)
	r := reading{limit: w.size, interval: w.interval, reset: now}
	if at.start <= now { // it is after now in a copy that looks ahead
		r.left = max(0, w.size-at.estimate(now))
	}
	if at.previous > 0 {
		r.reset = max(now, at.faded(at.start-at.interval, at.previous, 0))
	}
	if at.current > 0 {
		r.reset = at.faded(at.start, at.current, 0)
	}
	return r
}

func (w *slidingWindow) clear() {
	w.previous, w.current = 0, 0
	if w.fine != nil {
		w.start, w.fine = 0, partsOf(w.fine.strict)
	}
}

func (w *slidingWindow) clone() meter {
	c := *w
	if w.fine != nil && w.fine.own {
		fine := *w.fine
		c.fine = &fine
	}
	return &c
}

func (w *slidingWindow) code(c *codec) {
	w.rate.code(c)
	fine := w.fine != nil
	if !c.bool(&fine) {
		c.instant(&w.start)
		c.upTo(&w.previous, noTime)
		c.upTo(&w.current, noTime)
		return
	}
	if w.interval == 0 {
		c.fail("a window of no length in parts")
		return
	}
	if c.reading {
		w.fine = partsOf(false)
	}
	w.parts().code(c)
}
