package slidingwindow_test

import (
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

func newModelled(size, limit int64) *sw.Limiter {
	l, _ := sw.NewLimiter(time.Duration(size), limit, localWindow)
	return l
}

func TestResult(t *testing.T) {
	l := local(t, time.Second, 10)
	for _, step := range []struct {
		seconds float64
		n       int64
		want    sw.Result
	}{
		// The last of 4 stops to weigh when less than a quarter of the next window is left.
		{0, 4, sw.Result{OK: true, Remaining: 6, ResetAfter: 1750*time.Millisecond + 1}},
		{0, 7, sw.Result{
			Remaining: 6, RetryAfter: time.Second + 1, ResetAfter: 1750*time.Millisecond + 1,
		}},
		{0, 11, sw.Result{Remaining: 6, RetryAfter: sw.Never, ResetAfter: 1750*time.Millisecond + 1}},
		{0, -1, sw.Result{Remaining: 6, RetryAfter: sw.Never, ResetAfter: 1750*time.Millisecond + 1}},
		{0, 6, sw.Result{OK: true, ResetAfter: 1900*time.Millisecond + 1}},
		{0.5, 1, sw.Result{RetryAfter: 500*time.Millisecond + 1, ResetAfter: 1400*time.Millisecond + 1}},
		{1.5, 5, sw.Result{OK: true, ResetAfter: 1300*time.Millisecond + 1}},
		{1.5, 1, sw.Result{RetryAfter: 1, ResetAfter: 1300*time.Millisecond + 1}},
	} {
		step.want.Limit = 10
		peek := l.Peek(at(step.seconds), step.n)
		got := l.Take(at(step.seconds), step.n)
		if got != step.want {
			t.Errorf("Take(%gs, %d) = %+v, want %+v", step.seconds, step.n, got, step.want)
		}
		if peek.OK != got.OK || peek.RetryAfter != got.RetryAfter {
			t.Errorf("Peek(%gs, %d) = %+v, want the answer of %+v", step.seconds, step.n, peek, got)
		}
	}
}

// A peek looks as far ahead as one likes, and turns nothing.
func TestPeekChangesNothing(t *testing.T) {
	windows := map[string]sw.NewWindow{
		"local":   localWindow,
		"foreign": func() (sw.Window, sw.StopFunc) { return new(foreignWindow), nil },
		"strict":  func() (sw.Window, sw.StopFunc) { return sw.NewStrictWindow("test", newPlainStore(), 1) },
		"sync": func() (sw.Window, sw.StopFunc) {
			return sw.NewSyncWindow("test", sw.NewBlockingSynchronizer(newPlainStore(), time.Second))
		},
	}
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, limits{size: time.Second, limit: 10}, window)
				allows(t, l, 0.5, 8)
				for _, p := range []struct {
					seconds   float64
					remaining int64
				}{{0.5, 2}, {0.9, 2}, {1, 2}, {1.5, 6}, {1.99, 10}, {2, 10}, {3600, 10}, {0, 2}} {
					if got := l.Peek(at(p.seconds), 1).Remaining; got != p.remaining {
						t.Errorf("Remaining at %gs = %d, want %d", p.seconds, got, p.remaining)
					}
				}
				allows(t, l, 0.9, 2)
				denies(t, l, 0.9, 1)
			})
		})
	}
}
