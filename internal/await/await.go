// Package await waits in tests for what comes about by itself in another process, at the other end of a
// socket or in another goroutine, and sends no event. Everything else waits for its event.
package await

import "time"

// T is what a test gives: a *testing.T, or what looks like one.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Patience is how long anything may take that has no time of its own, on a busy machine. It is there only so
// that a test that would hang fails.
const Patience = time.Minute

// The pause between two looks is this share of the time that has passed, within bounds: so a wait is longer
// by that share at most, and a long one costs the machine few looks.
const (
	pauseShare = 16
	minPause   = 2 * time.Millisecond
	maxPause   = 100 * time.Millisecond
)

// True returns when holds does, and fails the test when Patience is over before. What is the condition in
// words, such as "two wait".
func True(t T, what string, holds func() bool) {
	t.Helper()
	start := time.Now()
	for {
		// Before the condition is looked at, so that there is a look after all of Patience has passed.
		passed := time.Since(start)
		if holds() {
			return
		}
		if passed > Patience {
			t.Fatalf("after %s it is still not so that %s", Patience, what)
		}
		time.Sleep(min(max(passed/pauseShare, minPause), maxPause))
	}
}
