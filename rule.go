package gatehouse

import (
	"encoding/binary"
	"strings"
	"time"
)

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
