package slidingwindow

import (
	"math"
	"math/bits"
	"time"
)

// A Window counts the events of one fixed window. An implementation need not lock: a limiter calls it
// under its own lock.
type Window interface {
	// Start returns the beginning of the window.
	Start() time.Time

	// Count returns how many events there were in it.
	Count() int64

	// AddCount counts n more events.
	AddCount(n int64)

	// Reset makes it the window that begins at s, with c events in it.
	Reset(s time.Time, c int64)

	// Sync exchanges counts with others, if that is due at now.
	Sync(now time.Time)
}

// NewWindow makes a limiter's window, and the function that ends what the window does besides
// counting.
type NewWindow func() (Window, StopFunc)

// StopFunc ends the exchange of a window's counts. What the window counted and did not push yet is
// pushed now. Calling it again does nothing. The limiter may still be used.
type StopFunc func()

// A LocalWindow counts in memory, for one process alone. It has no lock of its own.
type LocalWindow struct {
	start int64 // in Unix nanoseconds
	count int64 // never below 0
}

// NewLocalWindow returns an empty window, and a function that does nothing.
func NewLocalWindow() (*LocalWindow, StopFunc) { return new(LocalWindow), func() {} }

// Start returns the beginning of the window.
func (w *LocalWindow) Start() time.Time { return time.Unix(0, w.start) }

// Count returns how many events there were in the window.
func (w *LocalWindow) Count() int64 { return w.count }

// AddCount counts n more events. The count stays between 0 and the largest int64.
func (w *LocalWindow) AddCount(n int64) { w.count = max(addSaturating(w.count, n), 0) }

// Reset makes it the window that begins at s, with c events in it.
func (w *LocalWindow) Reset(s time.Time, c int64) { w.start, w.count = unixNano(s), max(c, 0) }

// Sync does nothing: no other process counts in this window.
func (w *LocalWindow) Sync(time.Time) {}

// addSaturating returns a+b, or the nearest int64 to it.
func addSaturating(a, b int64) int64 {
	// Signed overflow wraps in Go, so the sign of the sum tells.
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

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
