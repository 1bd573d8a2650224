package limiter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

func TestReserve(t *testing.T) {
	const s = time.Second
	l, now := newLimiter(t, 1, s, 1), time.Now()
	for i, c := range []struct {
		at   time.Duration
		n    int64
		want time.Duration // from the start; -1 for never
	}{
		{0, 3, -1}, {0, -1, -1}, // more than can ever pass, less than nothing
		{0, 1, 0}, {0, 1, 0}, {0, 1, 1 * s}, {0, 2, 3 * s}, {0, 0, 3 * s},
		{2 * s, 1, 4 * s}, {9 * s, 2, 9 * s}, {9 * s, 1, 10 * s},
	} {
		r, ok := l.ReserveAt(now.Add(c.at), c.n)
		if ok != (c.want >= 0) {
			t.Fatalf("step %d: ReserveAt(%s, %d) = %t, want %t", i, c.at, c.n, ok, c.want >= 0)
		}
		if ok && r.Start().Sub(now) != c.want {
			t.Errorf("step %d: Start of %d reserved at %s = %s, want %s",
				i, c.n, c.at, r.Start().Sub(now), c.want)
		}
	}
}

func TestReserveNoFurtherThan100Years(t *testing.T) {
	const year = 365 * 24 * time.Hour
	l, now := newLimiter(t, 1, year, 0), time.Now()
	for i := range 101 {
		if _, ok := l.ReserveAt(now, 1); !ok {
			t.Fatalf("Reserve %d years ahead = false, want true", i)
		}
	}
	before := l.PeekAt(now, 1)
	if _, ok := l.ReserveAt(now, 1); ok {
		t.Error("Reserve 101 years ahead = true, want false")
	}
	if after := l.PeekAt(now, 1); after != before {
		t.Errorf("figures after a refused Reserve = %+v, want %+v", after, before)
	}
}

func TestCancel(t *testing.T) {
	const s = time.Second
	k, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: s, Burst: 4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, now := newLimiter(t, 1, s, 4), time.Now()
	for name, c := range map[string]struct {
		reserve  []int64
		cancel   int // which of them
		at       time.Duration
		want     bool
		retry    time.Duration // of one more, after it
		retryAll time.Duration // of five more
	}{
		"the last gives all back":           {[]int64{5, 3}, 1, 0, true, 1 * s, 5 * s},
		"others rely on one before":         {[]int64{5, 3, 1}, 1, 0, true, 5 * s, 9 * s},
		"one that started stays":            {[]int64{5, 3}, 1, 3 * s, false, 1 * s, 5 * s},
		"one that starts at once stays too": {[]int64{5, 3}, 0, 0, false, 4 * s, 8 * s},
	} {
		t.Run(name, func(t *testing.T) {
			l.Reset()
			k.Reset(name)
			var all, keyed []*limiter.Reservation
			for _, n := range c.reserve {
				r, _ := l.ReserveAt(now, n)
				rk, _ := k.ReserveAt(name, now, n)
				all, keyed = append(all, r), append(keyed, rk)
			}
			at := now.Add(c.at)
			for _, r := range []*limiter.Reservation{all[c.cancel], keyed[c.cancel]} {
				if got := r.CancelAt(at); got != c.want {
					t.Errorf("CancelAt(%s) = %t, want %t", c.at, got, c.want)
				}
				if r.CancelAt(at) {
					t.Error("CancelAt for the second time = true, want false")
				}
			}
			for n, want := range map[int64]time.Duration{1: c.retry, 5: c.retryAll} {
				if got := l.PeekAt(at, n).RetryAfter; got != want {
					t.Errorf("RetryAfter for %d = %s, want %s", n, got, want)
				}
				if got := k.PeekAt(name, at, n).RetryAfter; got != want {
					t.Errorf("Keyed: RetryAfter for %d = %s, want %s", n, got, want)
				}
			}
		})
	}
}

// TestCancelAfterSetRate: a change of the rate leaves reservations as they are.
func TestCancelAfterSetRate(t *testing.T) {
	l, now := newLimiter(t, 1, time.Second, 0), time.Now()
	l.Reset()
	l.AllowAt(now, 1)
	r, _ := l.ReserveAt(now, 1)
	if err := l.SetRate(limiter.Rate{Size: 2, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	if got := r.Start().Sub(now); got != time.Second || !r.CancelAt(now) {
		t.Errorf("Start after SetRate = %s, want 1s and that it can be cancelled", got)
	}
	if got := l.PeekAt(now, 1).RetryAfter; got != time.Second {
		t.Errorf("RetryAfter after Cancel = %s, want 1s", got)
	}
}

// A waiter is a limiter, or one key of many, in a test in virtual time.
type waiter struct {
	*testing.T
	wait func(ctx context.Context, n int64) error
}

// onBoth runs a test on a limiter and on one key of many.
func onBoth(t *testing.T, rate limiter.Rate, test func(w waiter)) {
	t.Helper()
	t.Run("Limiter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			test(waiter{t, newLimiter(t, rate.Size, rate.Interval, rate.Burst).Wait})
		})
	})
	t.Run("Keyed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k, err := limiter.NewKeyed(rate, 0)
			if err != nil {
				t.Fatal(err)
			}
			test(waiter{t, func(ctx context.Context, n int64) error { return k.Wait(ctx, "key", n) }})
		})
	})
}

func TestWaitInOrder(t *testing.T) {
	onBoth(t, limiter.Rate{Size: 10, Interval: time.Second}, func(w waiter) {
		start, gone := time.Now(), make(chan int, 20)
		for i := range 20 {
			go func() {
				if err := w.wait(w.Context(), 1); err != nil {
					w.Errorf("Wait of the %dth = %v, want nil", i, err)
				}
				if got, want := time.Since(start), time.Duration(i)*100*time.Millisecond; got != want {
					w.Errorf("Wait of the %dth took %s, want %s", i, got, want)
				}
				gone <- i
			}()
			synctest.Wait()
		}
		order := make([]int, 20)
		for i := range order {
			order[i] = <-gone
		}
		if !slices.IsSorted(order) {
			w.Errorf("order of going = %v, want that of arrival", order)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	onBoth(t, limiter.Rate{Size: 1, Interval: time.Minute}, func(w waiter) {
		if err := w.wait(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		start := time.Now()
		late, stop := context.WithTimeout(w.Context(), time.Minute-1)
		defer stop()
		if err := w.wait(late, 1); !isTimeout(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			w.Errorf("Wait with a deadline that comes before = %v after %s, want a timeout at once",
				err, time.Since(start))
		}
		gone, cancel := context.WithCancel(w.Context())
		time.AfterFunc(time.Second, cancel)
		if err := w.wait(gone, 1); !isTimeout(err, context.Canceled) || time.Since(start) != time.Second {
			w.Errorf("Wait that is cancelled = %v after %s, want a timeout after 1s", err, time.Since(start))
		}
		if err := w.wait(gone, 1); !isTimeout(err, context.Canceled) {
			w.Errorf("Wait with a context that has ended = %v, want a timeout", err)
		}
		justInTime, stop := context.WithTimeout(w.Context(), 59*time.Second)
		defer stop()
		if err := w.wait(justInTime, 1); err != nil || time.Since(start) != time.Minute {
			w.Errorf("Wait after the others gave up = %v after %s, want nil after 1m", err, time.Since(start))
		}
	})
}

func isTimeout(err, cause error) bool {
	return gatehouse.CodeOf(err) == gatehouse.CodeTimeout && errors.Is(err, cause)
}

func TestWaitForTooMuch(t *testing.T) {
	onBoth(t, limiter.Rate{Size: 1, Interval: time.Second, Burst: 4}, func(w waiter) {
		for _, n := range []int64{6, -1} {
			err := w.wait(w.Context(), n)
			invalid := gatehouse.CodeOf(err) == gatehouse.CodeInvalid
			if !invalid || !strings.Contains(err.Error(), "can never go") {
				w.Errorf("Wait(%d) of 5 = %v, want invalid", n, err)
			}
		}
	})
}

func TestDelayOfAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 1, time.Minute, 0)
		l.Allow()
		r, ok := l.Reserve(1)
		if !ok || r.Delay() != time.Minute || l.Delay(1) != 2*time.Minute {
			t.Errorf("Delay = %s, and of the next %s, want 1m and 2m", r.Delay(), l.Delay(1))
		}
		time.Sleep(2 * time.Minute)
		if r.Delay() != 0 || r.Cancel() {
			t.Errorf("Delay after Start = %s, want 0 and no Cancel", r.Delay())
		}
	})
}

// TestAHundredYearsAhead: reservations lie so far ahead that one more has no number.
func TestAHundredYearsAhead(t *testing.T) {
	rate := limiter.Rate{Size: 1, Interval: gatehouse.MaxDuration}
	l := newLimiter(t, rate.Size, rate.Interval, rate.Burst)
	k, err := limiter.NewKeyed(rate, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for range 2 { // now, and in a hundred years
		if _, ok := l.ReserveAt(now, 1); !ok {
			t.Fatal("ReserveAt = false, want a place")
		}
		if _, ok := k.ReserveAt("key", now, 1); !ok {
			t.Fatal("Keyed.ReserveAt = false, want a place")
		}
	}
	if l.AllowAt(now, 1) || k.AllowAt("key", now, 1) || l.DecideAt(now, 1).Allowed {
		t.Error("a third is allowed, want it in two hundred years")
	}
	if d := l.PeekAt(now, 1).RetryAfter; d != 2*gatehouse.MaxDuration {
		t.Errorf("RetryAfter = %s, want %s", d, 2*gatehouse.MaxDuration)
	}
	if r, ok := l.ReserveAt(now, 1); ok {
		t.Errorf("a third goes at %s, want no place", r.Start())
	}
}

// A lateContext is past its deadline and has not noticed yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestWaitPastTheDeadline: who is let through is counted, also in the moment between a deadline and the
// end of the context.
func TestWaitPastTheDeadline(t *testing.T) {
	l := newLimiter(t, 1, time.Hour, 0)
	k, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: time.Hour}, 0)
	if err != nil {
		t.Fatal(err)
	}
	late := lateContext{context.Background()}
	for name, err := range map[string]error{"Limiter": l.Wait(late, 1), "Keyed": k.Wait(late, "key", 1)} {
		if !isTimeout(err, context.DeadlineExceeded) {
			t.Errorf("%s: Wait = %v, want a timeout", name, err)
		}
	}
	if !l.Allow() || !k.Allow("key") {
		t.Error("the one there is was taken, want it left")
	}
}
