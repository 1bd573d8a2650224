package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A calendar says which windows are days, weeks from Monday or months in a time zone. A day may have
// 23 or 25 hours; where the clocks skip midnight it begins with its first instant.
type calendar struct {
	unit gatehouse.Calendar
	zone *time.Location
}

// around is the window around an instant.
func (c calendar) around(at int64) (start, end int64) {
	year, month, day := time.Unix(0, at).In(c.zone).Date()
	months, days := 0, 0 // from one window to the next
	switch c.unit {
	case gatehouse.Month:
		day, months = 1, 1
	case gatehouse.Week:
		weekday := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()
		day, days = day-(int(weekday)+6)%7, 7
	default:
		days = 1
	}
	begin := func(n int) int64 {
		date := time.Date(year, month+time.Month(n*months), day+n*days, 0, 0, 0, 0, time.UTC)
		return c.midnight(date)
	}
	start, end = begin(0), begin(1)
	// Where clocks are put back over midnight, the old date comes again for an hour after the new
	// one began, and belongs to the new one.
	for n := 2; end <= at; n++ {
		start, end = end, begin(n)
	}
	return start, end
}

// midnight is the first instant of a date, which is given by its midnight in UTC. Of a date that the
// zone skipped it is the first after it.
func (c calendar) midnight(date time.Time) int64 {
	for at := date.Add(-24 * time.Hour).In(c.zone); ; { // no zone is a day from UTC
		_, offset := at.Zone()
		_, change := at.ZoneBounds()
		midnight := date.Add(-time.Duration(offset) * time.Second)
		switch {
		case midnight.Before(at): // the clocks jumped over it
			return at.UnixNano()
		case change.IsZero() || midnight.Before(change):
			return midnight.UnixNano()
		}
		at = change
	}
}

// shortest is less than any of the windows lasts: clocks were put forward by two hours at most, but
// for zones that changed sides of the date line and left out a day.
func (c calendar) shortest() int64 {
	hours := 22
	switch c.unit {
	case gatehouse.Week:
		hours += 5 * 24
	case gatehouse.Month:
		hours += 26 * 24
	}
	return int64(hours) * int64(time.Hour)
}
