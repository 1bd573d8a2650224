package slidingwindow

import (
	"math"
	"math/bits"
	"time"
)

// A windowGrid divides time into fixed windows. They begin at multiples of their size since the year 1 and
// not since 1970: windows of a week begin on Mondays. That is what time.Truncate does, and what makes
// processes agree on the keys under which they share counts.
type windowGrid struct {
	size  int64 // in nanoseconds, more than 0
	phase int64 // how long before 1970 the window of that instant began
}

func newWindowGrid(size time.Duration) windowGrid {
	epoch := time.Unix(0, 0)
	return windowGrid{size: int64(size), phase: int64(epoch.Sub(epoch.Truncate(size)))}
}

// windowStart returns the beginning of the window that holds t.
func (g *windowGrid) windowStart(t int64) int64 {
	into := t % g.size
	// Go's remainder has the sign of t, which is negative before 1970.
	if into < 0 {
		into += g.size
	}
	into = int64((uint64(into) + uint64(g.phase)) % uint64(g.size)) // the sum may exceed an int64
	// The window began before the first time there is.
	if t < math.MinInt64+into {
		return math.MinInt64
	}
	return t - into
}

// timeLeft returns how much of the window that begins at start is still to come: all of it for a time before
// it.
func (g *windowGrid) timeLeft(start, now int64) int64 {
	// Unsigned, because the difference of two int64 may exceed an int64.
	switch into := uint64(now) - uint64(start); {
	case now <= start:
		return g.size
	case into >= uint64(g.size):
		return 0
	default:
		return g.size - int64(into)
	}
}

// weightOf returns count*left/size rounded down, exactly: the product has up to 126 bits.
func weightOf(count, left, size int64) int64 {
	if count == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(count), uint64(left))
	if high == 0 {
		return int64(low / uint64(size))
	}
	quotient, _ := bits.Div64(high, low, uint64(size))
	return int64(quotient)
}

// coverage returns the smallest part of size that makes count weigh more than most: weightOf(count, left,
// size) <= most holds for every left below it and for none from it on. It is more than size if there is no
// such part. most is at least 0.
func coverage(count, most, size int64) int64 {
	if count <= most {
		return addSaturating(size, 1)
	}
	// The smallest left with count*left >= (most+1)*size.
	high, low := bits.Mul64(uint64(most)+1, uint64(size))
	quotient, rest := bits.Div64(high, low, uint64(count))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
