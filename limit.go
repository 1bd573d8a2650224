package gatehouse

import (
	"cmp"
	"encoding/binary"
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
func (c Calendar) String() string { return nameAt(calendarNames[:], int(c), "") }

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
	// What a kind does by itself has a name too, to be asked for in place of nothing.
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

// A Rule is a limit as callers say it: how many per what time, and how that is counted. Rules can be compared
// with ==; rules that differ in a field which means nothing in them are not equal, though they limit alike.
// The zero Rule says nothing: it has no window.
type Rule struct {
	// Size is the capacity: how many per interval, slots, or how many a barrier waits for.
	// 0 stops a limiter or a semaphore, InForce leaves it as it is. A lock always has size 1.
	Size int64

	// Interval is the length of a limiter's window, or how often a token bucket is refilled: more
	// than 0. A peek or a delay in which it is 0, with no Calendar and no Limits, asks about the
	// limit in force, as one with a Size of InForce does.
	Interval time.Duration

	// Burst is how many a GCRA lets through at once beyond the first. With Limits it is a window's
	// whole size.
	Burst int64

	// Guard is what a pace adds to its interval, for clients that start late by as much.
	Guard time.Duration

	// Limits are several limits that a request must all meet. When there are any, Size, Interval,
	// Calendar and Burst mean nothing. They ascend by the length of their windows, at most MaxLimits.
	Limits LimitList

	// Zone is the IANA time zone of calendar windows; "" is UTC.
	Zone string

	// Calendar takes the place of Interval when it is not 0.
	Calendar Calendar

	// Mode is the variety of a sliding window or a pace.
	Mode Mode
}

// HasLimit reports whether the rule says under which limit a command is to be judged. A command whose rule
// does not is judged by the limit in force.
func (r *Rule) HasLimit() bool {
	return r.Size != InForce && (r.Interval != 0 || r.Calendar != NoCalendar || r.Limits.Len() > 0)
}

// A LimitList is some limits in their order. It cannot be changed, so that copies may share it, and lists
// can be compared with ==. The zero LimitList has none.
type LimitList struct {
	packed string // each limit in packedLimit bytes
}

// packedLimit is the length of a limit in a list: its size, its interval and its calendar.
const packedLimit = 8 + 8 + 1

// NewLimitList returns a list of these limits, in the order given and not checked: [Command.Check] does that.
// The Interval of a window of the calendar, which means nothing, becomes 0.
func NewLimitList(limits ...Limit) LimitList {
	// Lists of as many limits as a command may have are put together without another allocation.
	packed := make([]byte, 0, MaxLimits*packedLimit)
	for _, l := range limits {
		if l.Calendar != NoCalendar && l.Calendar <= Month {
			l.Interval = 0
		}
		packed = binary.LittleEndian.AppendUint64(packed, uint64(l.Size))     // any, and back the same
		packed = binary.LittleEndian.AppendUint64(packed, uint64(l.Interval)) // so too
		packed = append(packed, byte(l.Calendar))
	}
	return LimitList{string(packed)}
}

// Len returns how many limits there are.
func (l LimitList) Len() int { return len(l.packed) / packedLimit }

// At returns the limit with this index, from 0 to below Len.
func (l LimitList) At(i int) Limit {
	packed := l.packed[i*packedLimit : (i+1)*packedLimit]
	return Limit{
		Size:     int64(binary.LittleEndian.Uint64([]byte(packed[:8]))),           // as it was
		Interval: time.Duration(binary.LittleEndian.Uint64([]byte(packed[8:16]))), // so too
		Calendar: Calendar(packed[16]),
	}
}

// String returns the limits as [ParseLimits] reads them, such as "10/1s,200/1m"; "" for none.
func (l LimitList) String() string {
	texts := make([]string, l.Len())
	for i := range texts {
		texts[i] = l.At(i).String()
	}
	return strings.Join(texts, ",")
}

// check returns an error of CodeInvalid when the limits cannot all be met together.
func (l LimitList) check() error {
	if n := l.Len(); n > MaxLimits {
		return Errorf(CodeInvalid, "limits are %d, want at most %d", n, MaxLimits)
	}
	before := Limit{} // the one before
	for i := range l.Len() {
		limit := l.At(i)
		switch {
		case limit.Calendar > Month ||
			limit.Calendar == 0 && (limit.Interval <= 0 || limit.Interval > MaxDuration):
			return Errorf(CodeInvalid, "limits has %s, want a window above 0 and at most 100 years", limit)
		case limit.Size < 0 || limit.Size > MaxSize:
			return Errorf(CodeInvalid, "limits has %s, want a size from 0 to %d", limit, int64(MaxSize))
		case i > 0 && limit.shortestLength() <= before.shortestLength():
			// Equal windows would make one of the two limits meaningless.
			return Errorf(CodeInvalid, "limits has %s after %s, want windows each longer than the one before",
				limit, before)
		}
		before = limit
	}
	return nil
}
