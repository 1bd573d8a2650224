package timeslice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/internal/timeslice"
)

// yieldAfter works for a time, and returns how long Yield pauses then.
func yieldAfter(w *timeslice.Work, worked time.Duration) time.Duration {
	time.Sleep(worked)
	began := time.Now()
	w.Yield()
	return time.Since(began)
}

func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w timeslice.Work
		const us = time.Microsecond
		for i, step := range []struct{ worked, pause time.Duration }{
			{time.Hour, 0}, // the work begins only now
			{100 * us, 0},
			{100 * us, 0},
			{100 * us, 300 * us}, // as long as all three
			{249 * us, 0},
			{1 * us, 250 * us},
			{time.Hour, 1000 * us}, // it cannot have worked all the time
		} {
			if pause := yieldAfter(&w, step.worked); pause != step.pause {
				t.Errorf("step %d: the pause is %s, want %s", i, pause, step.pause)
			}
		}
	})
}
