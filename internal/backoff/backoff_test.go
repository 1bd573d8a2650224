package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Pauses double up to the last, are up to a half shorter, and begin again after a try that worked.
func TestRepeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		stop := Repeat(time.Second, 4*time.Second, func(ctx context.Context) bool {
			begun = append(begun, time.Now())
			if len(begun) == 7 {
				<-ctx.Done() // stop ends it
			}
			return len(begun) == 4
		})
		time.Sleep(time.Minute)
		stop()
		if len(begun) != 7 {
			t.Fatalf("%d tries in a minute, want 7, the last of which lasts", len(begun))
		}
		for i, seconds := range []int{1, 2, 4, 1, 2, 4} {
			most := time.Duration(seconds) * time.Second
			if pause := begun[i+1].Sub(begun[i]); pause < most/2 || pause >= most {
				t.Errorf("pause %d is %s, want %s to %s", i, pause, most/2, most)
			}
		}
	})
}

// A sleep lasts its time, or as long as its context.
func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if slept := Sleep(ctx, 2*time.Second); !slept || time.Since(start) != 2*time.Second {
			t.Errorf("Sleep(2s) = %t after %s, want true after 2s", slept, time.Since(start))
		}
		if slept := Sleep(ctx, 2*time.Second); slept || time.Since(start) != 3*time.Second {
			t.Errorf("Sleep(2s) = %t at %s, want false at 3s", slept, time.Since(start))
		}
	})
}
