package control

import (
	"sort"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A zonedCalendar says which windows are days, weeks from Monday or months in a time zone. A day may have
// 23 or 25 hours; where the clocks skip midnight it begins with its first instant.
type zonedCalendar struct {
	unit gatehouse.Calendar
	zone *time.Location
}

// windowAround is the window around an instant.
func (c zonedCalendar) windowAround(at int64) (start, end int64) {
	year, month, day := time.Unix(0, at).In(c.zone).Date()
	months, days := 0, 0 // from one window to the next
	switch c.unit {
	case gatehouse.Month:
		day, months = 1, 1
	case gatehouse.Week:
		// A date has the same weekday in every zone; UTC spares the zone's rules.
		weekday := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()
		day, days = day-(int(weekday)+6)%7, 7
	default:
		days = 1
	}
	// time.Date normalizes days and months out of range, so that n windows on need no carry here.
	begin := func(n int) int64 {
		date := time.Date(year, month+time.Month(n*months), day+n*days, 0, 0, 0, 0, time.UTC)
		return c.midnightOf(date)
	}
	start, end = begin(0), begin(1)
	// Where clocks are put back over midnight, the old date comes again for an hour after the new
	// one began, and belongs to the new one.
	for n := 2; end <= at; n++ {
		start, end = end, begin(n)
	}
	return start, end
}

// midnightOf is the first instant of a date, which is given by its midnight in UTC. Of a date that the
// zone skipped it is the first after it.
//
// Time.ZoneBounds would say when the clocks are changed, but is wrong on the last day of a leap year.
func (c zonedCalendar) midnightOf(date time.Time) int64 {
	const day = 24 * time.Hour // no zone is so far from UTC
	// The clocks change in the two days around midnight, if at all. If the offset is the same at both ends,
	// there was no change, which is the common case.
	eve := date.Add(-day)
	old, after := c.utcOffset(eve), c.utcOffset(date.Add(day))
	first := date.Add(-old)
	if old == after {
		return first.UnixNano()
	}
	// The change is found by a binary search over the seconds between.
	change := eve.Add(time.Second * time.Duration(sort.Search(int(2*day/time.Second), func(s int) bool {
		return c.utcOffset(eve.Add(time.Duration(s)*time.Second)) == after
	})))
	if first.Before(change) {
		return first.UnixNano()
	}
	return max(change.UnixNano(), date.Add(-after).UnixNano()) // the clocks may have jumped over it
}

// utcOffset is how far the zone's clocks are ahead of UTC at an instant.
func (c zonedCalendar) utcOffset(at time.Time) time.Duration {
	_, seconds := at.In(c.zone).Zone()
	return time.Duration(seconds) * time.Second
}

// shortestWindow is less than any of the windows lasts: clocks were put forward by two hours at most, but
// for zones that changed sides of the date line and left out a day.
func (c zonedCalendar) shortestWindow() int64 {
	hours := 22
	switch c.unit {
	case gatehouse.Week:
		hours += 5 * 24
	case gatehouse.Month:
		hours += 26 * 24
	}
	return int64(hours) * int64(time.Hour)
}
