package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A calendarWindow is the meter of windows that are days, weeks from Monday or months in a time zone. A
// day may have 23 or 25 hours.
type calendarWindow struct {
	fixedWindow // its interval is that of the present window
	unit        gatehouse.Calendar
	zone        *time.Location
}

func (w *calendarWindow) set(now int64, to bound) {
	w.size = to.size
	if w.unit != to.calendar || w.zone != to.zone {
		w.unit, w.zone = to.calendar, to.zone
		w.begin(now) // what was taken so far counts in the window that takes its place
	}
	w.roll(now)
}

// begin makes the window around an instant the present one.
func (w *calendarWindow) begin(at int64) {
	t := time.Unix(0, at).In(w.zone)
	year, month, day := t.Date()
	months, days := 0, 0 // from one window to the next
	switch w.unit {
	case gatehouse.Month:
		day, months = 1, 1
	case gatehouse.Week:
		day, days = day-(int(t.Weekday())+6)%7, 7
	default:
		days = 1
	}
	start := func(n int) int64 {
		return time.Date(year, month+time.Month(n*months), day+n*days, 0, 0, 0, 0, w.zone).UnixNano()
	}
	n := 0
	if at >= start(1) { // where clocks are put forward at midnight, a day may begin at 23:00
		n = 1
	}
	w.start, w.interval = start(n), start(n+1)-start(n)
}

func (w *calendarWindow) roll(at int64) {
	if at-w.start >= w.interval {
		w.begin(at)
		w.count = 0
	}
}

func (w *calendarWindow) when(from, n int64) int64 {
	at := *w
	at.roll(from)
	return at.next(from, at.start+at.interval, n)
}

func (w *calendarWindow) take(_, at, n int64) {
	w.roll(at)
	w.count += n
}

func (w *calendarWindow) giveBack(now, n int64) {
	w.roll(now)
	w.count = max(0, w.count-n)
}

func (w *calendarWindow) read(now int64) reading {
	at := *w
	at.roll(now)
	return at.fixedWindow.read(now)
}

func (w *calendarWindow) clone() meter {
	c := *w
	return &c
}
