package middleware

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file writes RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11 as the front of
// a Gatehouse server does; a test compares both.

// A shownLimit is one limit in the words of the two fields.
type shownLimit struct {
	name             string
	quota, remaining int64
	window           time.Duration // 0 when the field cannot tell it
	moreAfter        time.Duration // until there is more; Forever when that is not known
}

// writeLimits writes both fields: the policies in their order, and in RateLimit the one first that decides,
// as many clients read only that.
func writeLimits(header http.Header, key gatehouse.Key, rule *gatehouse.Rule, d *gatehouse.Decision) {
	shown := []shownLimit{onlyLimit(key, rule, d)}
	first := 0
	if len(d.Windows) > 0 {
		shown, first = nil, bindingWindow(d.Windows)
		for i := range d.Windows {
			shown = append(shown, windowLimit(key, d, i))
		}
	}
	policies := make([]string, 0, len(shown))
	limits := []string{shown[first].limitText()}
	for i := range shown {
		policies = append(policies, shown[i].policyText())
		if i != first {
			limits = append(limits, shown[i].limitText())
		}
	}
	// In this very spelling, which Set would change.
	header["RateLimit-Policy"] = []string{strings.Join(policies, ", ")}
	header["RateLimit"] = []string{strings.Join(limits, ", ")}
}

// onlyLimit is that of a name with one limit.
func onlyLimit(key gatehouse.Key, rule *gatehouse.Rule, d *gatehouse.Decision) shownLimit {
	s := shownLimit{
		name: key.Kind.String(), quota: d.Limit, remaining: d.Remaining, moreAfter: gatehouse.Forever,
		window: wholeSeconds(key, cmp.Or(d.Interval, windowOf(key, rule, d.Limit))),
	}
	switch {
	case d.Outcome == gatehouse.Refused:
		s.moreAfter = d.RetryAfter
	case d.Limit > 0:
		s.moreAfter = d.ResetAfter
	}
	return s
}

// windowOf is the window of a rule, where a gate at a distance does not tell it. That of a GCRA is the time
// in which its burst comes back.
func windowOf(key gatehouse.Key, rule *gatehouse.Rule, most int64) time.Duration {
	limit := gatehouse.Limit{Size: rule.Size, Interval: rule.Interval, Calendar: rule.Calendar}
	if rule.Limits.Len() == 1 {
		limit = rule.Limits.At(0)
	}
	window := calendarLength(limit)
	if key.Kind == gatehouse.GCRA && limit.Calendar == gatehouse.NoCalendar && limit.Size > 0 {
		return window / time.Duration(limit.Size) * time.Duration(most)
	}
	return window
}

// windowLimit is one of several limits. In a refusal only those that refuse have a time.
func windowLimit(key gatehouse.Key, d *gatehouse.Decision, i int) shownLimit {
	w := &d.Windows[i]
	s := shownLimit{
		name: w.Limit.String(), quota: w.Limit.Size, remaining: w.Remaining,
		window: wholeSeconds(key, calendarLength(w.Limit)), moreAfter: gatehouse.Forever,
	}
	switch {
	case d.Outcome == gatehouse.Refused && w.RetryAfter != 0:
		s.moreAfter = w.RetryAfter
	case d.Outcome != gatehouse.Refused && w.Limit.Size > 0:
		s.moreAfter = w.ResetAfter
	}
	if len(d.Windows) > 1 && w.Limit.Calendar == gatehouse.Month {
		s.window = 0
	}
	return s
}

// bindingWindow is the index of the limit that refuses longest or, if none does, has the least left.
func bindingWindow(windows []gatehouse.Window) (binding int) {
	for i := range windows {
		longer := cmp.Compare(refusedFor(&windows[i]), refusedFor(&windows[binding]))
		if longer > 0 || longer == 0 && windows[i].Remaining < windows[binding].Remaining {
			binding = i
		}
	}
	return binding
}

// refusedFor is how long a limit refuses, such that Forever is the greatest.
func refusedFor(w *gatehouse.Window) time.Duration {
	if w.RetryAfter == gatehouse.Forever {
		return math.MaxInt64
	}
	return w.RetryAfter
}

// violatedPolicies are the names of the limits that refused.
func violatedPolicies(key gatehouse.Key, d *gatehouse.Decision) (names []string) {
	if len(d.Windows) == 0 {
		return []string{key.Kind.String()}
	}
	for i := range d.Windows {
		if d.Windows[i].RetryAfter != 0 {
			names = append(names, d.Windows[i].Limit.String())
		}
	}
	// There is room under each limit, but others wait for it.
	if names == nil {
		names = append(names, d.Windows[bindingWindow(d.Windows)].Limit.String())
	}
	return names
}

// calendarLength is the length of a window; 0 for a month, which has none.
func calendarLength(l gatehouse.Limit) time.Duration {
	const day = 24 * time.Hour
	switch l.Calendar {
	case gatehouse.Day:
		return day
	case gatehouse.Week:
		return 7 * day
	case gatehouse.Month:
		return 0
	}
	return l.Interval
}

// wholeSeconds is d if it is a whole number of seconds, 0 otherwise, as the field has no fractions.
func wholeSeconds(key gatehouse.Key, d time.Duration) time.Duration {
	if key.Kind == gatehouse.GCRA {
		d = d.Round(time.Millisecond) // a multiple of a step that was cut to nanoseconds
	}
	if d%time.Second != 0 {
		return 0
	}
	return d
}

func (s *shownLimit) policyText() string {
	text := strconv.Quote(s.name) + ";q=" + strconv.FormatInt(s.quota, 10)
	if s.window > 0 {
		text += ";w=" + strconv.FormatInt(int64(s.window/time.Second), 10)
	}
	return text
}

func (s *shownLimit) limitText() string {
	text := strconv.Quote(s.name) + ";r=" + strconv.FormatInt(s.remaining, 10)
	if s.moreAfter != gatehouse.Forever {
		text += ";t=" + strconv.FormatInt(roundUp(s.moreAfter, time.Second), 10)
	}
	return text
}

// roundUp returns how many units cover d, 0 if d is negative.
func roundUp(d, unit time.Duration) int64 { return int64(max(0, d+unit-1) / unit) }
