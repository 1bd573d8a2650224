package slidingwindow

import (
	"math"
	"sync/atomic"
	"time"
)

// A clockAnchor ties the monotonic clock to the wall clock. Asking how long ago it was set costs half of
// asking for the time, which itself is half of a decision.
type clockAnchor struct {
	at   time.Time
	unix int64 // at, in Unix nanoseconds
}

// anchorHolds is for how long an anchor is used. It is the delay with which a limiter follows a wall clock
// that was set, or one that went on while the machine slept.
const anchorHolds = time.Second

// An anchoredClock reads the wall clock. The zero one is ready, and may be read by many goroutines.
type anchoredClock struct{ anchor atomic.Pointer[clockAnchor] }

// now returns the wall clock's time in Unix nanoseconds.
func (c *anchoredClock) now() int64 {
	if a := c.anchor.Load(); a != nil {
		// time.Since reads the monotonic clock alone.
		if since := time.Since(a.at); since < anchorHolds {
			return a.unix + int64(since)
		}
	}
	return c.setAnchor()
}

// setAnchor sets a new anchor and returns its time. Goroutines that do so at once store nearly the same
// anchor, so the last one may win.
func (c *anchoredClock) setAnchor() int64 {
	now := time.Now()
	c.anchor.Store(&clockAnchor{at: now, unix: now.UnixNano()})
	return now.UnixNano()
}

// wallClock is the time by which windows are exchanged when no caller does so, in Unix nanoseconds.
func wallClock() int64 { return time.Now().UnixNano() }

// monotonicNow is the time by which timers run: it does not change when the wall clock is set.
func monotonicNow() time.Time { return time.Now() }

// unixNano returns t in Unix nanoseconds. A time beyond the years 1678 to 2262 becomes the nearest that fits.
func unixNano(t time.Time) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	switch seconds := t.Unix(); {
	case seconds >= most:
		return math.MaxInt64
	case seconds <= -most:
		return math.MinInt64
	}
	return t.UnixNano()
}

func timeOf(unix int64) time.Time { return time.Unix(0, unix) }
