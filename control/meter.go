package control

import (
	"math"
	"math/bits"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A meter counts what is taken under one limit. It is all that one way of limiting has of its own; the
// rest, which all limiters share, is limiter's. Instants and lengths of time are nanoseconds, and
// instants do not go backwards, but for those of promises that were taken back.
type meter interface {
	// set puts a limit in force. What was taken before still counts.
	set(now int64, b bound)

	// when is the earliest instant, not before from, at which n can be taken if nobody takes any
	// before; noTime when that is not known. For more than can ever be taken at once it is a time
	// before which that much cannot have been taken.
	when(from, n int64) int64

	// take counts n that start at an instant, which may lie ahead.
	take(now, at, n int64)

	// giveBack takes back n of what started by now, and no more than still counts.
	giveBack(now, n int64)

	// undo takes back n that were taken at an instant, as far as they still count; reset is what
	// the meter's reading said right after.
	undo(now, at, reset, n int64)

	// read tells how the meter stands.
	read(now int64) reading

	// length is the interval of the limit in force.
	length() int64

	// clear forgets all that was taken.
	clear()

	// clone returns a copy.
	clone() meter
}

// A ledger is a meter that keeps every start by itself, those ahead too.
type ledger interface {
	meter
	// remove takes back n that were to start at an instant.
	remove(at, n int64)
}

// A bound is one limit as a meter is told it.
type bound struct {
	size     int64
	interval int64
	burst    int64
	guard    int64
	mode     gatehouse.Mode
	calendar gatehouse.Calendar
	zone     *time.Location
}

// A reading is how a meter stands.
type reading struct {
	limit    int64 // the most that can be taken at once
	left     int64 // of that
	reset    int64 // the instant from which nothing counts any more
	interval int64 // in which so many come back
}

// noTime is an instant that never comes, and a wait that has no known end.
const noTime = math.MaxInt64

// A rate is what every meter is told: so many in so long.
type rate struct {
	size     int64
	interval int64
}

// length is the interval.
func (r *rate) length() int64 { return r.interval }

// goZero is how many seconds before 1970 Go's time began: a Monday, from which windows are counted, as
// time.Truncate does and RussellLuo/slidingwindow with it.
const goZero = 62_135_596_800

// windowStart is the start of the window around an instant.
func windowStart(at, interval int64) int64 {
	hi, lo := bits.Mul64(goZero, uint64(time.Second))
	_, offset := bits.Div64(hi%uint64(interval), lo, uint64(interval)) // #nosec G115 -- more than 0
	since := at%interval + int64(offset)                               // #nosec G115 -- below interval
	if at < 0 {
		since += interval
	}
	return at - since%interval
}

// later is a sum of an instant and a length of time that stops at noTime.
func later(at, d int64) int64 {
	if d > noTime-at && at > 0 {
		return noTime
	}
	return at + d
}

// times is a product of two numbers from 0 that stops at noTime.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) // #nosec G115 -- from 0
	if hi != 0 || lo > noTime {
		return noTime
	}
	return int64(lo) // #nosec G115 -- checked
}

// further is the length of so many intervals, at most 100 years: a sum with the present does not
// overflow.
func further(n, interval int64) int64 { return min(times(n, interval), int64(gatehouse.MaxDuration)) }

// share is n·part/whole rounded down, exactly. part is at most whole.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))    // #nosec G115 -- from 0
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) // #nosec G115 -- more than 0
	return int64(quotient)                           // #nosec G115 -- at most n
}

// fade is the largest part of whole whose share of n is no more than room.
func fade(n, room, whole int64) int64 {
	if n <= room {
		return whole
	}
	// share(n, part) <= room  <=>  n·part < (room+1)·whole
	hi, lo := bits.Mul64(uint64(room)+1, uint64(whole)) // #nosec G115 -- from 0
	quotient, rest := bits.Div64(hi, lo, uint64(n))     // #nosec G115 -- more than room
	if rest == 0 {
		quotient--
	}
	return int64(quotient) // #nosec G115 -- at most whole
}
