package etcdkey

import (
	"testing"
	"time"
)

func TestPausesGrowAndAreNotAlike(t *testing.T) {
	t.Parallel()
	for attempt, seconds := range []float64{1, 2, 4, 8, 16, 30, 30} {
		want := time.Duration(seconds * float64(time.Second))
		if got := pauseAfter(attempt, 0); got != want {
			t.Errorf("pauseAfter(%d, 0) = %v, want %v", attempt, got, want)
		}
		if got := pauseAfter(attempt, 1); got != want/2 {
			t.Errorf("pauseAfter(%d, 1) = %v, want %v", attempt, got, want/2)
		}
	}
	if got := pauseAfter(1<<40, 0); got != lastPause {
		t.Errorf("pauseAfter(2^40, 0) = %v, want %v", got, lastPause)
	}
}
