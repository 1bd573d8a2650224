package control

import (
	"math"
	"math/bits"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A limitMeter counts what is taken under one limit. It is all that one way of limiting has of its own; the
// rest, which all limiters share, is limiter's. Instants and lengths of time are nanoseconds.
type limitMeter interface {
	// setLimit puts the one limit of a rule in force, whose list of them it does not look at. What was
	// taken before still counts. zone is that of a window of the calendar. It reports whether what was taken
	// before counts in another way than it did, so that undo would give back something else.
	setLimit(now int64, to *gatehouse.Rule, zone *time.Location) (restarted bool)

	// earliestFit is the earliest instant, not before from, at which n can be taken if no other command
	// takes any before; noTime when there is none. What can be taken at one instant can be at every later
	// one. For more than can ever be taken at once it is an instant before which n cannot have been taken
	// one after the other.
	earliestFit(from, n int64) int64

	// takeTokens counts n that start at an instant. It is not before that of an earlier take, unless the
	// meter is a schedule; it may lie ahead in a schedule, and in a copy that is to look ahead.
	takeTokens(now, at, n int64)

	// giveBack takes back n of what started by now, and no more than still counts.
	giveBack(now, n int64)

	// undoTake takes back n that were taken at an instant, as far as they still count; reset is what
	// the meter's reading said right after.
	undoTake(now, at, reset, n int64)

	// readMeter tells how the meter stands.
	readMeter(now int64) meterReading

	// inForce returns a rule in which all that the meter knows of its limit is as it is in force; none of the
	// calendar's. So a rule with one limit is in force if it comes back as it was.
	inForce(r gatehouse.Rule) gatehouse.Rule

	// windowLength is the interval of the limit in force.
	windowLength() int64

	// currentLimit is the limit in force.
	currentLimit() gatehouse.Limit

	// memoryWeight is about how many bytes of memory the meter takes.
	memoryWeight() int

	// clearTaken forgets all that was taken.
	clearTaken()

	// clone returns a copy.
	clone() limitMeter
}

// A schedulingMeter is a meter that keeps every start by itself, those ahead too.
type schedulingMeter interface {
	limitMeter

	// earliestReservation is the earliest instant, not before now, that n may be promised. It is not before
	// what when says.
	earliestReservation(now, n int64) int64

	// removeStart takes back n that were to start at an instant.
	removeStart(at, n int64)

	// reservedAfter is how many start after an instant.
	reservedAfter(now int64) int64
}

// A meterReading is how a meter stands.
type meterReading struct {
	limit    int64 // the most that can be taken at once
	left     int64 // of that
	reset    int64 // the instant from which nothing counts any more
	interval int64 // in which limit tokens come back
}

// A meterRate is the limit of every meter: size tokens per interval.
type meterRate struct {
	size     int64
	interval int64
}

// windowLength is the interval.
func (r *meterRate) windowLength() int64 { return r.interval }

func (r *meterRate) currentLimit() gatehouse.Limit {
	return gatehouse.Limit{Size: r.size, Interval: time.Duration(r.interval)}
}

// noTime is an instant that never comes, and a wait that has no known end.
const noTime = math.MaxInt64

// goZero is how many seconds before 1970 Go's time began: a Monday, from which windows are counted, as
// time.Truncate does and RussellLuo/slidingwindow with it.
const goZero = 62_135_596_800

// windowStart is the start of the window around an instant from 1970 on.
func windowStart(at, interval int64) int64 {
	// Nanoseconds since Go's year 1 overflow 64 bits, so the remainder is taken of the 128-bit product.
	hi, lo := bits.Mul64(goZero, uint64(time.Second))
	_, offset := bits.Div64(hi%uint64(interval), lo, uint64(interval)) // more than 0
	return at - (at%interval+int64(offset))%interval                   // below interval
}

// addSaturating is a sum that stops at noTime; b is from 0.
func addSaturating(a, b int64) int64 {
	if a > 0 && b > noTime-a {
		return noTime
	}
	return a + b
}

// mulSaturating is a product of two numbers from 0 that stops at noTime.
func mulSaturating(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) // from 0
	if hi != 0 || lo > noTime {
		return noTime
	}
	return int64(lo) // checked
}

// proportionOf is n·part/whole rounded down, exactly. part is at most whole.
func proportionOf(n, part, whole int64) int64 {
	// The product may need 128 bits; the quotient fits again, as part is at most whole.
	hi, lo := bits.Mul64(uint64(n), uint64(part))    // from 0
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) // more than 0
	return int64(quotient)                           // at most n
}

// largestPart is the largest part of whole whose share of n is no more than room.
func largestPart(n, room, whole int64) int64 {
	if n <= room {
		return whole
	}
	// share(n, part) <= room  <=>  n·part < (room+1)·whole
	hi, lo := bits.Mul64(uint64(room)+1, uint64(whole)) // from 0
	quotient, rest := bits.Div64(hi, lo, uint64(n))     // more than room
	if rest == 0 {
		quotient--
	}
	return int64(quotient) // at most whole
}

func (r *meterRate) codeFields(c *stateCodec) {
	c.codeSize(&r.size)
	c.codeUpTo(&r.interval, int64(gatehouse.MaxDuration))
}
