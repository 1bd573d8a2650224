package slidingwindow

import (
	"math/rand/v2"
	"time"
)

// A syncPace says when the next exchange is due, by the time that callers pass in.
type syncPace struct {
	begun    int64 // when the last exchange began, by the callers' time
	wait     int64 // from begun until the next is due
	failures int   // in a row
	busy     bool  // an exchange is under way
	err      error // why the last one failed
}

const (
	// quickRetries is how many exchanges may fail in a row before the pauses between them grow.
	quickRetries = 2
	// minPause and maxPause bound the pauses after a failure, unless the interval does.
	minPause = 10 * time.Millisecond
	maxPause = 30 * time.Second
)

// isDue reports whether an exchange is due at now. The distance counts and not the order, so that one time
// far ahead does not put off all exchanges until then.
func (p *syncPace) isDue(now int64) bool {
	return !p.busy && (p.wait <= 0 || distance(now, p.begun) >= uint64(p.wait))
}

func (p *syncPace) beginExchange(now int64, interval time.Duration) {
	p.begun, p.wait, p.busy = now, int64(interval), true
}

// endExchange notes how the exchange went. The first retries come an interval after one another, as all
// exchanges do. Then the pause doubles each time, less up to a half of it at random, so that processes which
// lost a store at the same time do not return at the same time.
func (p *syncPace) endExchange(err error, interval time.Duration) {
	p.busy, p.err = false, err
	if err == nil {
		// Only after failures: otherwise beginExchange has set the wait, or its owner another one.
		if p.failures > 0 {
			p.failures, p.wait = 0, int64(interval)
		}
		return
	}
	p.failures++
	p.wait = int64(retryPause(p.failures, interval))
}

// retryPause returns the time to wait after a number of failures in a row.
func retryPause(failures int, interval time.Duration) time.Duration {
	// An interval of 0 would retry without a pause.
	least := max(interval, minPause)
	if failures <= quickRetries {
		return least
	}
	most := max(least, maxPause)
	doubled := least
	for range failures - quickRetries {
		doubled += min(doubled, most-doubled) // twice as long, or most
	}
	return doubled - rand.N(doubled/2)
}

// distance returns how far two times lie apart. It may exceed an int64.
func distance(a, b int64) uint64 {
	if a < b {
		a, b = b, a
	}
	return uint64(a) - uint64(b)
}
