package gatehouse

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Limit is Size tokens per window.
type Limit struct {
	// Size is how many, 0 to MaxSize.
	Size int64
	// Interval is the length of the window, more than 0; it means nothing with a calendar.
	Interval time.Duration
	// Calendar makes the window a day, a week or a month.
	Calendar Calendar
}

// A Window is what one of several limits says to a request.
type Window struct {
	Limit Limit
	// Remaining is how many are left.
	Remaining int64
	// RetryAfter is how long this limit refuses; 0 when it does not, Forever when no time is known.
	RetryAfter time.Duration
	// ResetAfter is when the limit has nothing left to remember.
	ResetAfter time.Duration
}

// A Calendar is a window that begins and ends with the calendar. It is counted as a fixed window,
// whatever the kind of the limiter. The zero Calendar is none.
type Calendar uint8

// The calendar windows. A week begins on Monday.
const (
	NoCalendar Calendar = iota
	Day
	Week
	Month
)

var calendarNames = [...]string{"", "day", "week", "month"}

// String returns "day", "week" or "month", and "" for none.
func (c Calendar) String() string {
	if int(c) >= len(calendarNames) {
		return ""
	}
	return calendarNames[c]
}

// ParseCalendar returns the calendar window with this name; ok is false when there is none.
func ParseCalendar(name string) (c Calendar, ok bool) {
	i := slices.Index(calendarNames[1:], name)
	return Calendar(i + 1), i >= 0 // an index of four names
}

// A Mode is a variety of a kind of limiter. The zero Mode is the kind's own: a sliding window
// estimates, a pace promises the earliest start that is safe.
type Mode uint8

// The modes.
const (
	ModeDefault Mode = iota
	// ModeFine is a sliding window that counts in sixty parts and weighs only the oldest.
	ModeFine
	// ModeStrict is a fine sliding window that counts the oldest part in full: never one too many.
	ModeStrict
	// ModePaced is a pace in which callers that must wait start one after the other, evenly.
	ModePaced
	// ModeClassic is a paced one in which the first caller that must wait is one step later, as in JARL.
	ModeClassic

	numModes
)

var modes = [numModes]struct {
	name string
	kind Kind
}{{}, {"fine", SlidingWindow}, {"strict", SlidingWindow}, {"paced", Pace}, {"classic", Pace}}

// String returns the mode's name, such as "fine"; "" for the kind's own.
func (m Mode) String() string {
	if m >= numModes {
		return ""
	}
	return modes[m].name
}

// ownModes are the names of kinds' own modes.
var ownModes = [Kinds]string{SlidingWindow: "estimate", Pace: "reserve"}

// Modes returns the names of a kind's modes, the kind's own first; none for kinds without.
func (k Kind) Modes() []string {
	if int(k) >= Kinds || ownModes[k] == "" {
		return nil
	}
	names := []string{ownModes[k]}
	for _, mode := range modes {
		if mode.kind == k {
			names = append(names, mode.name)
		}
	}
	return names
}

// ParseMode returns the kind's mode with this name; ok is false when there is none.
func (k Kind) ParseMode(name string) (m Mode, ok bool) {
	if int(k) < Kinds && name != "" && ownModes[k] == name {
		return ModeDefault, true
	}
	for m := ModeFine; m < numModes; m++ {
		if modes[m].name == name && modes[m].kind == k {
			return m, true
		}
	}
	return 0, false
}

// MaxLimits is how many limits one name can have; each costs its state and its time at every request.
const MaxLimits = 8

// String returns the limit as [ParseLimits] reads it, such as "200/1m" or "5000/day".
func (l Limit) String() string {
	window := l.Calendar.String()
	if window == "" {
		window = shortDuration(l.Interval)
	}
	return strconv.FormatInt(l.Size, 10) + "/" + window
}

// shortDuration writes "1m", "24h" and "5us" where time.Duration writes "1m0s", "24h0m0s" and "5µs",
// which is not ASCII as header fields must be. time.ParseDuration reads both.
func shortDuration(d time.Duration) string {
	text := strings.Replace(d.String(), "µs", "us", 1)
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// shortestLength is what limits are ordered by: the shortest that a window can be.
func (l Limit) shortestLength() time.Duration {
	const day = 24 * time.Hour
	switch l.Calendar {
	case Day:
		return day - time.Hour // when clocks are put forward
	case Week:
		return 7*day - time.Hour
	case Month:
		return 28*day - time.Hour
	}
	return l.Interval
}

// ParseLimits reads limits such as "10/1s,200/1m,5000/day" and puts them in order. A window is a
// duration as Go writes it, such as 1.5s or 100ms or 24h, or day, week, month. The error is of
// CodeInvalid.
func ParseLimits(text string) (LimitList, error) {
	if n := strings.Count(text, ",") + 1; n > MaxLimits { // before a long text is taken to pieces
		return LimitList{}, Errorf(CodeInvalid, "limits are %d, want at most %d", n, MaxLimits)
	}
	parts := strings.Split(text, ",")
	limits := make([]Limit, len(parts))
	for i, part := range parts {
		// Without a slash the window is empty, which no parser accepts.
		size, window, _ := strings.Cut(strings.TrimSpace(part), "/")
		n, err := strconv.ParseUint(size, 10, 63)
		calendar, known := ParseCalendar(window)
		interval, bad := time.Duration(0), error(nil)
		if !known {
			interval, bad = time.ParseDuration(window)
		}
		if err != nil || bad != nil || n > MaxSize {
			const longest = 80 // of somebody else's text in a message
			return LimitList{}, Errorf(CodeInvalid,
				"limits has %q, want limits such as 10/1s,200/1m,5000/day", part[:min(len(part), longest)])
		}
		limits[i] = Limit{Size: int64(n), Interval: interval, Calendar: calendar} // checked
	}
	// An order of their own, so that the same limits written in another order change nothing in force.
	slices.SortStableFunc(limits, func(a, b Limit) int {
		return cmp.Compare(a.shortestLength(), b.shortestLength())
	})
	list := NewLimitList(limits...)
	return list, list.check()
}
