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

// pollInterval is the pause between two looks: short beside what is waited for, and long beside a look.
const pollInterval = 2 * time.Millisecond

// True returns when holds does, and fails the test when Patience is over before. What is the condition in
// words, such as "two wait".
func True(t T, what string, holds func() bool) {
	t.Helper()
	// The condition is looked at before the time, so that it holds in the end if it held just then.
	end := time.Now().Add(Patience)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("after %s it is still not so that %s", Patience, what)
		}
		time.Sleep(pollInterval)
	}
}
