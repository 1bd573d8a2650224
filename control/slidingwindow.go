package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A slidingWindowMeter is the meter that estimates what was taken in the last interval from two windows, as
// RussellLuo/slidingwindow does: all of the present one, and of the one before as much as the interval
// still covers, as if it had been taken evenly. The weights are exact whole numbers. In any interval
// at most twice the size pass, in a window counted from Go's zero time no more than the size.
//
// The fine and the strict mode count in parts instead: see fineWindow.
type slidingWindowMeter struct {
	meterRate
	start    int64 // of the present window
	previous int64
	current  int64
	fine     *fineParts // nil in the mode that estimates
}

// asFine is the window as one that counts in parts.
func (w *slidingWindowMeter) asFine() *fineWindow { return (*fineWindow)(w) }

func (w *slidingWindowMeter) setLimit(now int64, to *gatehouse.Rule, _ *time.Location) (restarted bool) {
	interval, fine := int64(to.Interval), to.Mode != gatehouse.ModeDefault
	// Another size keeps the counts, which are of the same windows.
	w.size = to.Size
	if w.interval != interval || fine != (w.fine != nil) {
		w.changeCounting(now, interval, fine)
		restarted = true
	}
	if fine {
		w.asFine().setStrict(to.Mode == gatehouse.ModeStrict)
	}
	return restarted
}

// changeCounting begins to count in another way. What still counts is taken for taken now.
func (w *slidingWindowMeter) changeCounting(now, interval int64, fine bool) {
	count := int64(0)
	// Where in the interval it was taken is not known in the new way of counting. To take it for taken now
	// lets too few through for a while, never too many.
	switch {
	case w.fine != nil:
		count = w.asFine().countAt(now)
	case w.interval > 0:
		w.rollTo(now)
		count = w.estimateTaken(now)
	}
	w.interval, w.start, w.previous, w.current, w.fine = interval, 0, 0, 0, nil
	if fine {
		w.fine = emptyPartsOf(false)
		w.asFine().takeTokens(now, count)
		return
	}
	w.start = windowStart(now, interval)
	w.current = count
}

// rollTo makes the window around an instant the present one.
func (w *slidingWindowMeter) rollTo(at int64) {
	passed := at - w.start
	if passed < w.interval {
		return
	}
	w.previous = 0
	// Only the window right before the present one still counts.
	if passed-w.interval < w.interval {
		w.previous = w.current
	}
	w.current = 0
	w.start = windowStart(at, w.interval)
}

// estimateTaken is how many count at an instant in the present window.
func (w *slidingWindowMeter) estimateTaken(at int64) int64 {
	covered := w.interval - max(0, at-w.start) // the clock may have been put back to before the window
	return addSaturating(proportionOf(w.previous, covered, w.interval), w.current)
}

// fadedAt is when no more than room of n that were taken in a window still count. The window begins at
// an instant.
func (w *slidingWindowMeter) fadedAt(start, n, room int64) int64 {
	return addSaturating(start, 2*w.interval-largestPart(n, room, w.interval))
}

func (w *slidingWindowMeter) earliestFit(from, n int64) int64 {
	switch {
	case w.size == 0 && n > 0:
		return noTime
	case n > w.size: // it never fits, and not now
		return addSaturating(w.earliestFit(from, w.size), 1)
	case w.fine != nil:
		return w.asFine().earliestFit(from, n)
	}
	at := *w
	at.rollTo(from)
	// The present window alone leaves room. It depends on how far the previous one must fade.
	if room := w.size - n - at.current; room >= 0 {
		return max(from, at.fadedAt(at.start-at.interval, at.previous, room))
	}
	// The present window is too full itself: by then it is the previous one.
	return max(from, at.fadedAt(at.start, at.current, w.size-n))
}

func (w *slidingWindowMeter) takeTokens(_, at, n int64) {
	if w.fine != nil {
		w.asFine().takeTokens(at, n)
		return
	}
	w.rollTo(at)
	w.current = addSaturating(w.current, n)
}

// giveBack takes from the present window first.
func (w *slidingWindowMeter) giveBack(now, n int64) {
	if w.fine != nil {
		w.asFine().giveBack(now, n)
		return
	}
	w.rollTo(now)
	back := min(n, w.current)
	w.current -= back
	w.previous -= min(n-back, w.previous)
}

func (w *slidingWindowMeter) undoTake(_, at, _, n int64) {
	switch {
	case w.fine != nil:
		w.asFine().undoTake(at, n)
	case at >= w.start:
		w.current = max(0, w.current-n)
	case at >= w.start-w.interval:
		// It was taken in the window before, of which a part still counts.
		w.previous = max(0, w.previous-n)
	}
}

func (w *slidingWindowMeter) readMeter(now int64) meterReading {
	if w.fine != nil {
		return w.asFine().readMeter(now)
	}
	// A copy, as a reading must not change the meter: windows are rolled on by a take.
	at := *w
	at.rollTo(now)
	r := meterReading{limit: w.size, interval: w.interval, reset: now}
	if at.start <= now { // it is after now in a copy that looks ahead
		r.left = max(0, w.size-at.estimateTaken(now))
	}
	if at.previous > 0 {
		r.reset = max(now, at.fadedAt(at.start-at.interval, at.previous, 0))
	}
	if at.current > 0 {
		r.reset = at.fadedAt(at.start, at.current, 0)
	}
	return r
}

func (w *slidingWindowMeter) clearTaken() {
	w.previous, w.current = 0, 0
	if w.fine != nil {
		w.start, w.fine = 0, emptyPartsOf(w.fine.strict)
	}
}

func (w *slidingWindowMeter) clone() limitMeter {
	c := *w
	if w.fine != nil && w.fine.own {
		c.fine = new(*w.fine)
	}
	return &c
}

func (w *slidingWindowMeter) codeFields(c *stateCodec) {
	w.meterRate.codeFields(c)
	fine := w.fine != nil
	if !c.codeBool(&fine) {
		c.codeInstant(&w.start)
		c.codeUpTo(&w.previous, noTime)
		c.codeUpTo(&w.current, noTime)
		return
	}
	// The length of a part is a fraction of it, by which is divided.
	if w.interval == 0 {
		c.failDecoding("a window of no length in parts")
		return
	}
	if c.reading {
		w.fine = emptyPartsOf(false)
	}
	w.asFine().codeFields(c)
}
