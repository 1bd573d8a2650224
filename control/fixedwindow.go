package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A fixedWindow is the meter that counts in windows which follow one another without a gap. They are
// counted from Go's zero time, so that a window of a day begins at midnight UTC and one of a week on
// Monday, or begin with the calendar. In any window of the same length, wherever it begins, at most
// twice the size pass.
type fixedWindow struct {
	rate           // its interval is that of the present window
	start    int64 // of the window that count is of
	count    int64
	calendar *calendar // nil when all windows are alike
}

func (w *fixedWindow) set(now int64, to *gatehouse.Command, zone *time.Location) (anew bool) {
	if w.interval > 0 {
		w.roll(now)
	}
	w.size = to.Size
	// What was taken in the window so far counts in the one that takes its place.
	switch interval := int64(to.Interval); {
	case to.Calendar != gatehouse.NoCalendar:
		if w.calendar == nil || *w.calendar != (calendar{to.Calendar, zone}) {
			w.calendar = &calendar{to.Calendar, zone}
			w.begin(now)
			return true
		}
	case w.calendar != nil || w.interval != interval:
		w.calendar, w.interval = nil, interval
		w.begin(now)
		return true
	}
	return false
}

// begin makes the window around an instant the present one.
func (w *fixedWindow) begin(at int64) {
	if w.calendar == nil {
		w.start = windowStart(at, w.interval)
		return
	}
	start, end := w.calendar.around(at)
	w.start, w.interval = start, end-start
}

func (w *fixedWindow) roll(at int64) {
	if at-w.start >= w.interval {
		w.begin(at)
		w.count = 0
	}
}

func (w *fixedWindow) when(from, n int64) int64 {
	at := *w
	at.roll(from)
	interval := at.interval
	if w.calendar != nil {
		interval = w.calendar.shortest()
	}
	return refilled(from, n, refill{w.size, at.count, plus(at.start, at.interval), interval})
}

func (w *fixedWindow) take(_, at, n int64) {
	w.roll(at)
	w.count = plus(w.count, n)
}

func (w *fixedWindow) giveBack(now, n int64) {
	w.roll(now)
	w.count = max(0, w.count-n)
}

// undo gives back what was taken in the present window; that of one that is over is worth nothing.
func (w *fixedWindow) undo(_, at, _, n int64) {
	if at >= w.start {
		w.count = max(0, w.count-n)
	}
}

func (w *fixedWindow) read(now int64) reading {
	at := *w
	at.roll(now)
	r := reading{limit: w.size, left: max(0, w.size-at.count), reset: now, interval: at.interval}
	if at.count > 0 {
		r.reset = plus(at.start, at.interval)
	}
	return r
}

func (w *fixedWindow) limit() gatehouse.Limit {
	if w.calendar != nil {
		return gatehouse.Limit{Size: w.size, Calendar: w.calendar.unit}
	}
	return w.rate.limit()
}

func (w *fixedWindow) clear() { w.count = 0 }

func (w *fixedWindow) clone() meter {
	c := *w
	return &c
}

// code leaves out the calendar, which follows from the limits and their zone.
func (w *fixedWindow) code(c *codec) {
	w.rate.code(c)
	c.instant(&w.start)
	c.upTo(&w.count, noTime)
}
