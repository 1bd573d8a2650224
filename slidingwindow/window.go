package slidingwindow

import (
	"math"
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
func (w *LocalWindow) Reset(s time.Time, c int64) {
	w.start, w.count = unixNano(s), max(c, 0)
}

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
