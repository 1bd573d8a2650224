package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A fixedWindowMeter is the meter that counts in windows which follow one another without a gap. They are
// counted from Go's zero time, so that a window of a day begins at midnight UTC and one of a week on
// Monday, or begin with the calendar. In any window of the same length, wherever it begins, at most
// twice the size pass.
type fixedWindowMeter struct {
	meterRate       // its interval is that of the present window
	start     int64 // of the window that count is of
	count     int64
	calendar  *zonedCalendar // nil when all windows are alike
}

func (w *fixedWindowMeter) setLimit(now int64, to *gatehouse.Rule, zone *time.Location) (restarted bool) {
	// What was taken in a window that is over must not be carried into the new one.
	if w.interval > 0 {
		w.rollTo(now)
	}
	w.size = to.Size
	// What was taken in the window so far counts in the one that takes its place.
	switch interval := int64(to.Interval); {
	case to.Calendar != gatehouse.NoCalendar:
		if w.calendar == nil || *w.calendar != (zonedCalendar{to.Calendar, zone}) {
			w.calendar = &zonedCalendar{to.Calendar, zone}
			w.beginWindow(now)
			return true
		}
	case w.calendar != nil || w.interval != interval:
		w.calendar, w.interval = nil, interval
		w.beginWindow(now)
		return true
	}
	return false
}

// beginWindow makes the window around an instant the present one.
func (w *fixedWindowMeter) beginWindow(at int64) {
	if w.calendar == nil {
		w.start = windowStart(at, w.interval)
		return
	}
	// Windows of the calendar differ in length, so that the interval changes with each.
	start, end := w.calendar.windowAround(at)
	w.start, w.interval = start, end-start
}

func (w *fixedWindowMeter) rollTo(at int64) {
	if at-w.start >= w.interval {
		w.beginWindow(at)
		w.count = 0
	}
}

func (w *fixedWindowMeter) earliestFit(from, n int64) int64 {
	at := *w
	at.rollTo(from)
	interval := at.interval
	if w.calendar != nil {
		// The lengths of later windows are not known without the calendar. The shortest makes the answer a
		// lower bound.
		interval = w.calendar.shortestWindow()
	}
	next := addSaturating(at.start, at.interval)
	return earliestRefill(from, n, refillState{w.size, at.count, next, interval})
}

func (w *fixedWindowMeter) takeTokens(_, at, n int64) {
	w.rollTo(at)
	w.count = addSaturating(w.count, n)
}

func (w *fixedWindowMeter) giveBack(now, n int64) {
	w.rollTo(now)
	w.count = max(0, w.count-n)
}

// undoTake gives back what was taken in the present window; that of one that is over is worth nothing.
func (w *fixedWindowMeter) undoTake(_, at, _, n int64) {
	if at >= w.start {
		w.count = max(0, w.count-n)
	}
}

func (w *fixedWindowMeter) readMeter(now int64) meterReading {
	at := *w
	at.rollTo(now)
	r := meterReading{limit: w.size, left: max(0, w.size-at.count), reset: now, interval: at.interval}
	// With nothing taken there is nothing to forget, and the reset is now.
	if at.count > 0 {
		r.reset = addSaturating(at.start, at.interval)
	}
	return r
}

func (w *fixedWindowMeter) currentLimit() gatehouse.Limit {
	if w.calendar != nil {
		return gatehouse.Limit{Size: w.size, Calendar: w.calendar.unit}
	}
	return w.meterRate.currentLimit()
}

func (w *fixedWindowMeter) clearTaken() { w.count = 0 }

func (w *fixedWindowMeter) clone() limitMeter { return new(*w) }

// codeFields leaves out the calendar, which follows from the limits and their zone.
func (w *fixedWindowMeter) codeFields(c *stateCodec) {
	w.meterRate.codeFields(c)
	c.codeInstant(&w.start)
	c.codeUpTo(&w.count, noTime)
}
