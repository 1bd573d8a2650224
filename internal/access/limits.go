package access

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// checkSize refuses a limit beyond what a rule lets its user begin.
func (r *rule) checkSize(key gatehouse.Key, stated *gatehouse.Rule) error {
	// A request may leave the limit out: then the one in force stays, which was judged when it began.
	if r.size == 0 && r.limits.Len() == 0 || stated.Size == gatehouse.InForce && stated.Limits.Len() == 0 {
		return nil
	}
	// Other kinds have no size: a lock is held by one.
	if !key.Kind.Limiter() && key.Kind != gatehouse.Semaphore && key.Kind != gatehouse.Barrier {
		return nil
	}
	limits := stated.Limits
	if limits.Len() == 0 {
		size := stated.Size
		if key.Kind == gatehouse.GCRA && stated.Calendar == gatehouse.NoCalendar {
			// A GCRA lets its burst and one more through at once, whatever its size is.
			size = max(size, stated.Burst+1)
		}
		if r.size > 0 && size > r.size {
			return tooLarge(key, size, r.size)
		}
		// Semaphores and barriers have no time in which to count.
		if r.limits.Len() == 0 || !key.Kind.Limiter() {
			return nil
		}
		one := gatehouse.Limit{Size: size, Interval: stated.Interval, Calendar: stated.Calendar}
		return r.checkLimits(key, []gatehouse.Limit{one})
	}
	all := make([]gatehouse.Limit, 0, gatehouse.MaxLimits)
	for i := range limits.Len() {
		all = append(all, limits.At(i))
	}
	for _, limit := range all {
		// The size bounds each of several limits, though the tightest alone would do: that is easier to
		// explain.
		if r.size > 0 && limit.Size > r.size {
			return tooLarge(key, limit.Size, r.size)
		}
	}
	return r.checkLimits(key, all)
}

func tooLarge(key gatehouse.Key, size, most int64) error {
	return gatehouse.Errorf(gatehouse.CodeForbidden, "%s: size is %d, want at most %d for this user", key,
		size,
		most)
}

// checkLimits refuses limits that do not keep those of the rule: for each of the rule's there must be one
// that lets no more through in no less time.
func (r *rule) checkLimits(key gatehouse.Key, stated []gatehouse.Limit) error {
	for i := range r.limits.Len() {
		most := r.limits.At(i)
		kept := false
		for _, limit := range stated {
			// All stated limits hold together, so that one which is tight enough is enough.
			kept = kept || limit.Size <= most.Size && windowAtLeast(limit, most)
		}
		if !kept {
			return gatehouse.Errorf(gatehouse.CodeForbidden, "%s: no limit of it is within %s, want one for "+
				"this user", key, most)
		}
	}
	return nil
}

// windowAtLeast reports whether one limit's window is never shorter than another's.
func windowAtLeast(limit, most gatehouse.Limit) bool {
	if most.Calendar != gatehouse.NoCalendar {
		// Periods are in order of length. An interval, which has no calendar, is less than all of them: it
		// is not in step with a day that begins at midnight.
		return limit.Calendar >= most.Calendar
	}
	if limit.Calendar == gatehouse.NoCalendar {
		return limit.Interval >= most.Interval
	}
	// The limit holds even in the shortest of its periods, as when clocks are put forward.
	return shortest[limit.Calendar] >= most.Interval
}

// shortest are the shortest windows of the calendar: clocks are put forward, and months differ.
var shortest = [...]time.Duration{
	gatehouse.Day: 23 * time.Hour, gatehouse.Week: (7*24 - 1) * time.Hour,
	gatehouse.Month: (28*24 - 1) * time.Hour,
}
