package limiter

import "time"

// horizon is how far instants may be from a clock's start. What is further counts as that far.
const horizon = 30 * 365 * 24 * time.Hour

// A clock counts ns from its start, by the monotonic clock: it does not follow when the wall clock is
// set, and reading it takes half as long.
type clock struct{ start time.Time }

// newClock returns a clock that starts now.
func newClock() clock { return clock{time.Now()} }

func (c clock) now() time.Time { return time.Now() }

func (c clock) nowNanos() int64 { return int64(time.Since(c.start)) }

func (c clock) toNanos(t time.Time) int64 { return int64(max(-horizon, min(t.Sub(c.start), horizon))) }

func (c clock) toTime(instant int64) time.Time { return c.start.Add(time.Duration(instant)) }
