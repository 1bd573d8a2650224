package lease_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client/lease"
)

// callers makes so many that call Wait again and again, and returns a counter of those let through.
func callers(ctx context.Context, n int, limiter lease.Waiter) *atomic.Int64 {
	var passed atomic.Int64
	for range n {
		go func() {
			for limiter.Wait(ctx) == nil {
				passed.Add(1)
			}
		}()
	}
	return &passed
}

// TestRateIsExact: 50 callers that do nothing but wait get ten seconds' worth in ten seconds, whatever the
// capacity. doorman lets 227.8 through per second at 149, and 1,050.6 at 999.
func TestRateIsExact(t *testing.T) {
	for _, c := range []float64{
		0.5, 1, 2.5, 7, 10, 12.9, 15, 50, 75, 99, 99.5, 100, 120, 149, 250, 999, 1000,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := lease.NewRateLimiter(newKnob(c))
			defer r.Close()
			passed := callers(t.Context(), 50, r)
			time.Sleep(time.Second + time.Millisecond/2)
			before := passed.Load()
			time.Sleep(10 * time.Second)
			if got := float64(passed.Load() - before); math.Abs(got-10*c) > 1 {
				t.Errorf("at %g passed %g in 10 s, want %g", c, got, 10*c)
			}
		})
	}
}

// TestRateDoesNotStarveCallersWhoComeOneByOne: doorman lets nobody through when calls come spread in time,
// as each call starts its timer anew.
func TestRateDoesNotStarveCallersWhoComeOneByOne(t *testing.T) {
	for _, c := range []struct{ capacity, every, want float64 }{ // per s, ms, in 60 s
		{10, 50, 600}, {50, 10, 3000}, {100, 5, 6000}, {10, 150, 400}, {0.5, 100, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := lease.NewRateLimiter(newKnob(c.capacity))
			defer r.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var passed atomic.Int64
			every := time.Duration(c.every * float64(time.Millisecond))
			for range int(time.Minute / every) {
				go func() {
					if r.Wait(ctx) == nil {
						passed.Add(1)
					}
				}()
				time.Sleep(every)
			}
			if got := float64(passed.Load()); math.Abs(got-c.want) > 2 {
				t.Errorf("at %g, a call each %g ms: passed %g in 60 s, want %g",
					c.capacity, c.every, got, c.want)
			}
		})
	}
}

// TestRateIsEvenlySpread: nobody goes sooner after the one before than the capacity says, but for a
// hundredth of a second's worth after a pause.
func TestRateIsEvenlySpread(t *testing.T) {
	for _, c := range []struct {
		capacity float64
		at       []int64 // ms
	}{
		{4, []int64{0, 250, 500, 750, 1000, 1250}},
		{0.25, []int64{0, 4000, 8000, 12000}},
		{200, []int64{0, 0, 0, 5, 10, 15}}, // a burst of 2
	} {
		synctest.Test(t, func(t *testing.T) {
			r := lease.NewRateLimiter(newKnob(c.capacity))
			defer r.Close()
			begun := time.Now()
			for i, ms := range c.at {
				if err := r.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begun); got != time.Duration(ms)*time.Millisecond {
					t.Errorf("at %g the %dth goes after %s, want %d ms", c.capacity, i+1, got, ms)
				}
			}
		})
	}
}

// waiters makes so many wait, and returns where their errors come.
func waiters(ctx context.Context, n int, limiter lease.Waiter) chan error {
	results := make(chan error, n)
	for range n {
		go func() { results <- limiter.Wait(ctx) }()
	}
	synctest.Wait()
	return results
}

// TestRateFollowsItsCapacity: a change counts at once for those who wait already.
func TestRateFollowsItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(0)
		r := lease.NewRateLimiter(k)
		defer r.Close()
		results := waiters(t.Context(), 6, r)
		time.Sleep(time.Hour)
		pass := func(step string, to float64, want int, after time.Duration) {
			t.Helper()
			k.turn(to)
			if after > 0 {
				time.Sleep(after - time.Microsecond)
			}
			synctest.Wait()
			early := len(results)
			time.Sleep(min(after, time.Microsecond))
			synctest.Wait()
			if len(results) != want || after > 0 && early >= want {
				t.Errorf("%s: passed %d after %s, before that %d, want %d then, and not before",
					step, len(results), after, early, want)
			}
		}
		pass("a first capacity", 1, 1, 0)
		pass("the next", 1, 2, time.Second)
		pass("it shrinks: what was taken counts on", 0.1, 3, 10*time.Second)
		pass("it grows: what was taken counts on", 10, 4, 100*time.Millisecond)
		pass("it ends", 0, 4, 0)
		time.Sleep(time.Hour)
		pass("it has no limit", -1, 6, 0)
		if r.Waiting() != 0 || !r.Allow() {
			t.Errorf("Waiting without a limit = %d, want 0, and Allow", r.Waiting())
		}
	})
}

// TestRateTakesOnlyMinusOneForNoLimit: other amounts below 0, and what is no number, let nobody through.
func TestRateTakesOnlyMinusOneForNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []float64{-200, -0.5, math.NaN(), math.Inf(1), math.Inf(-1), 0, 1e-12} {
			r := lease.NewRateLimiter(newKnob(c))
			r.Allow() // at 1e-12 one may go, in 30,000 years another
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := r.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Wait at %g = %v, want a timeout", c, err)
			}
			cancel()
			r.Close()
		}
		r := lease.NewRateLimiter(newKnob(-1))
		for i := range 500 {
			if err := r.Wait(t.Context()); err != nil {
				t.Fatalf("Wait %d without a limit = %v, want nil", i, err)
			}
		}
	})
}

// TestWaitEndsWithItsContext: whatever the capacity, also the third time, also for who is not first.
func TestWaitEndsWithItsContext(t *testing.T) {
	for _, c := range []float64{-1, 0, 1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			r := lease.NewRateLimiter(newKnob(c))
			defer r.Close()
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			for i := range 3 {
				err := r.Wait(gone)
				if !errors.Is(err, context.Canceled) || gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
					t.Errorf("Wait %d at %g with a context that ended = %v, want canceled", i, c, err)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(0.1)
		r := lease.NewRateLimiter(k)
		defer r.Close()
		r.Allow()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		later, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		first := waiters(soon, 1, r)
		second := waiters(later, 1, r)
		third := waiters(t.Context(), 1, r)
		begun := time.Now()
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("Wait of the first = %v after %s, want a timeout after 1s", err, time.Since(begun))
		}
		if err := <-second; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Second {
			t.Errorf("Wait of the second = %v after %s, want a timeout after 5s", err, time.Since(begun))
		}
		if err := <-third; err != nil || time.Since(begun) != 10*time.Second {
			t.Errorf("Wait of the third = %v after %s, want nil after 10s", err, time.Since(begun))
		}
	})
}

// TestCloseEndsWaiting: by the limiter or its source; nobody spins, hangs or goes after it.
func TestCloseEndsWaiting(t *testing.T) {
	for name, end := range map[string]func(k *knob, r *lease.RateLimiter){
		"limiter": func(_ *knob, r *lease.RateLimiter) { r.Close(); r.Close() },
		"source":  func(k *knob, _ *lease.RateLimiter) { k.turn(0); close(k.done) },
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newKnob(0.001)
			r := lease.NewRateLimiter(k)
			r.Allow()
			results := waiters(t.Context(), 5, r)
			end(k, r)
			synctest.Wait() // returns when all are blocked or gone: one that spins would hang the test
			if len(results) != 5 {
				t.Fatalf("%s: %d of 5 returned, want all", name, len(results))
			}
			for range 5 {
				if err := <-results; !errors.Is(err, lease.ErrClosed) {
					t.Errorf("%s: Wait = %v, want ErrClosed", name, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.Wait(ctx); !errors.Is(err, lease.ErrClosed) || r.Allow() {
				t.Errorf("%s: Wait after it = %v, want ErrClosed and no Allow", name, err)
			}
		})
	}
}

// TestWaitInOrder: those who wait go in order of arrival, and Allow does not overtake them.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lease.NewRateLimiter(newKnob(10))
		defer r.Close()
		var mu sync.Mutex
		var order []int
		for i := range 10 {
			go func() {
				if r.Wait(t.Context()) == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		for range 850 {
			time.Sleep(time.Millisecond)
			if r.Allow() {
				t.Fatal("Allow = true while others wait, want false")
			}
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !slices.IsSorted(order) || len(order) != 10 {
			t.Errorf("order of going = %v, want that of arrival", order)
		}
	})
}

// TestRateOverManyChanges: in all, as many go as there was capacity, whatever it was in between. A change
// gives or takes no more than what may go at once.
func TestRateOverManyChanges(t *testing.T) {
	amounts := []float64{0, 0.3, 1, 7, 99.5, 1000}
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			k := newKnob(0)
			r := lease.NewRateLimiter(k)
			defer r.Close()
			passed := callers(t.Context(), 20, r)
			var there, most, least float64
			for range 30 {
				amount := amounts[random.IntN(len(amounts))]
				k.turn(amount)
				d := time.Duration(random.Float64() * float64(3*time.Second))
				time.Sleep(d)
				there += amount * d.Seconds()
				most += 1 + math.Floor(amount/100)
				least++
			}
			synctest.Wait()
			got := float64(passed.Load())
			if got > there+most || got < there-least {
				t.Errorf("seed %d: passed %g, want from %g to %g", seed, got, there-least, there+most)
			}
		})
	}
}

// TestRateAfterAFall: what went at once at a high capacity does not block a low one for long.
func TestRateAfterAFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(100_000)
		r := lease.NewRateLimiter(k)
		defer r.Close()
		for range 2000 {
			r.Allow()
		}
		k.turn(1)
		begun := time.Now()
		if err := r.Wait(t.Context()); err != nil || time.Since(begun) != time.Second {
			t.Errorf("Wait after a fall to 1 = %v after %s, want nil after 1s", err, time.Since(begun))
		}
	})
}

// TestWaitForSeveral: more than may go at once go one after the other, from one place in line, and what is
// canceled in between is spent.
func TestWaitForSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lease.NewRateLimiter(newKnob(10))
		defer r.Close()
		began := time.Now()
		if err := r.WaitN(t.Context(), 25); err != nil || time.Since(began) != 2400*time.Millisecond {
			t.Errorf("25 at 10 a second = %v after %s, want 2.4s", err, time.Since(began))
		}
		if err := r.WaitN(t.Context(), 0); err != nil {
			t.Errorf("none = %v", err)
		}
		if err := r.WaitN(t.Context(), -1); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("-1 = %v, want it invalid", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
		defer cancel()
		if err := r.WaitN(ctx, 25); gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Errorf("25 in 0.35 s = %v, want a timeout", err)
		}
		if err := r.Wait(t.Context()); err != nil || time.Since(began) != 2800*time.Millisecond {
			t.Errorf("the next went %v after %s, want 2.8s", err, time.Since(began))
		}
	})
}
