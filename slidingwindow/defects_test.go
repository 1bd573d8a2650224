package slidingwindow_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// These are the points at which RussellLuo/slidingwindow goes wrong.

// There: after one event, a huge n overflows and passes.
func TestHugeRequest(t *testing.T) {
	l := local(t, time.Second, 10)
	allows(t, l, 0, 1)
	denies(t, l, 0, math.MaxInt64)
	if n := passed(l, 0, 20); n != 9 {
		t.Errorf("%d more pass, want 9", n)
	}
	full := local(t, time.Second, math.MaxInt64)
	allows(t, full, 0, math.MaxInt64)
	denies(t, full, 0, 1)
	denies(t, full, 1, math.MaxInt64)
	allows(t, full, 1.5, math.MaxInt64/2)
	allows(t, full, 2, 1)
	lowest := local(t, time.Second, math.MinInt64)
	denies(t, lowest, 0, 0)
}

// There: a negative n passes and makes room.
func TestNegativeRequest(t *testing.T) {
	l := local(t, time.Second, 10)
	allows(t, l, 0, 10)
	denies(t, l, 0, -5)
	denies(t, l, 0, math.MinInt64)
	denies(t, l, 0, 1)
	w, _ := sw.NewLocalWindow()
	w.AddCount(-3)
	if w.Count() != 0 {
		t.Errorf("Count = %d, want 0", w.Count())
	}
}

// There: a size of 0 divides by zero at the first decision, and one below 0 never ends its window.
func TestSizes(t *testing.T) {
	for _, size := range []time.Duration{0, -1, -time.Second} {
		got := panicOf(func() { sw.NewLimiter(size, 1, localWindow) })
		if want := fmt.Sprintf("slidingwindow: a limiter's size is %v, want more than 0", size); got != want {
			t.Errorf("NewLimiter(%v) panics with %q, want %q", size, got, want)
		}
		if got := panicOf(func() { sw.NewLimiters(size, 1, nil) }); !strings.Contains(got, "size") {
			t.Errorf("NewLimiters(%v) panics with %q, want one about the size", size, got)
		}
	}
	for _, size := range []time.Duration{1, math.MaxInt64} {
		l := local(t, size, 1)
		allows(t, l, 0, 1)
		denies(t, l, 0, 1)
	}
	if got := panicOf(func() {
		sw.NewLimiter(1, 1, func() (sw.Window, sw.StopFunc) { return nil, nil })
	}); got != "slidingwindow: newWindow returned no window, want one" {
		t.Errorf("NewLimiter without a window panics with %q", got)
	}
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return "none"
}

// There: a second Stop panics, and one without a Start never returns.
func TestStopTwice(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				m.synchronizer(store, time.Second).Stop()
				syncer := m.synchronizer(store, time.Second)
				l, stop := sw.NewLimiter(time.Second, 10, func() (sw.Window, sw.StopFunc) {
					return sw.NewSyncWindow("test", syncer)
				})
				allows(t, l, 0, 1)
				stop()
				stop()
				syncer.Stop()
				allows(t, l, 0, 9) // it goes on alone
				denies(t, l, 0, 1)
				stop()
				if got := counts.count("test", 0); got != 1 {
					t.Errorf("count = %d, want the 1 from before the stop", got)
				}
			})
		})
	}
}

// There: when the store forgets a count, the limiter forgets what it let pass itself.
func TestStoreForgets(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				a, b := m.limiter(t, tenPerSecond(), store), m.limiter(t, tenPerSecond(), store)
				allows(t, a, 0, 4)
				synctest.Wait()
				allows(t, b, 0, 4)
				synctest.Wait()
				counts.change(func(s *plainStore) { clear(s.counts) })
				for _, seconds := range []float64{0.2, 0.4, 0.6, 0.8} {
					denies(t, a, seconds, 7)
					synctest.Wait()
					denies(t, b, seconds, 3)
					synctest.Wait()
				}
				allows(t, b, 0.8, 1)
				synctest.Wait()
				allows(t, b, 0.9, 1)
				denies(t, b, 0.9, 1)
			})
		})
	}
}

// What a store has forgotten is told to it again, by all whose it was.
func TestForgottenCountsComeBack(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := limits{time.Second, 100, 100 * time.Millisecond}
				a, b := m.limiter(t, l, store), m.limiter(t, l, store)
				step := func(seconds float64) {
					for _, l := range []*sw.Limiter{a, b} {
						allows(t, l, seconds, 3)
						synctest.Wait()
					}
				}
				step(0)
				step(0.1)
				counts.change(func(s *plainStore) { clear(s.counts) })
				step(0.2)
				step(0.3)
				step(0.4)
				if got := counts.count("test", 0); got != 30 {
					t.Errorf("count = %d, want 30", got)
				}
			})
		})
	}
}

// There: who was idle in the last window knows nothing of it, though the store does.
func TestTrafficMovesAtTheBoundary(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, _ := m.store()
				l := limits{time.Second, 100, 5 * time.Millisecond}
				a, b := m.limiter(t, l, store), m.limiter(t, l, store)
				na := passed(a, 0.99, 100)
				synctest.Wait()
				nb := 0
				denies(t, a, 0.9999, 101)
				synctest.Wait()
				for range 100 {
					nb += passed(b, 1, 1)
					synctest.Wait()
				}
				// One that does not wait for the store decides once before it knows.
				most := 0
				if !m.blocking {
					most = 1
				}
				if na != 100 || nb > most {
					t.Errorf("%d and %d pass, want 100 and at most %d", na, nb, most)
				}
			})
		})
	}
}

// There: what was counted and not told when a window ends is never told.
func TestLeftoversAreTold(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := limits{time.Second, 100, 500 * time.Millisecond}
				a := m.limiter(t, l, store)
				allows(t, a, 0, 1)
				synctest.Wait()
				allows(t, a, 0.4, 30) // no exchange is due
				allows(t, a, 1.1, 0)
				synctest.Wait()
				if got := counts.count("test", 0); got != 31 {
					t.Errorf("count = %d, want 31", got)
				}
				b := m.limiter(t, l, store)
				allows(t, b, 1.2, 1)
				synctest.Wait()
				if got := b.Peek(at(1.2), 1).Remaining; got != 100-24-1 {
					t.Errorf("Remaining = %d, want 75: 31 weigh 24", got)
				}
			})
		})
	}
}

// There: windows that share a synchronizer get one another's answers.
func TestSharedSynchronizer(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				syncer := m.synchronizer(store, 100*time.Millisecond)
				var limiters []*sw.Limiter
				for i := range 3 {
					limiters = append(limiters, newLimiter(t, limits{size: time.Second, limit: 100},
						func() (sw.Window, sw.StopFunc) { return sw.NewSyncWindow(fmt.Sprint(i), syncer) }))
				}
				for step := range 50 {
					for i, l := range limiters {
						allows(t, l, float64(step)/100, int64(i))
						synctest.Wait()
					}
				}
				for i, l := range limiters {
					allows(t, l, 0.99, 0)
					synctest.Wait()
					if got := counts.count(fmt.Sprint(i), 0); got != int64(50*i) {
						t.Errorf("count of %d = %d, want %d", i, got, 50*i)
					}
				}
			})
		})
	}
}

// There: 29 % of 100 are 28.
func TestExactWeights(t *testing.T) {
	l := local(t, time.Second, 100)
	allows(t, l, 0.5, 100)
	denies(t, l, 1.71, 72)
	allows(t, l, 1.71, 71)
	big := local(t, time.Second, math.MaxInt64)
	allows(t, big, 0, math.MaxInt64-1)
	allows(t, big, 1.5, math.MaxInt64/2+1)
	denies(t, big, 1.5, 1)
}

// There: after one time far ahead nothing turns, and nothing is exchanged, until that time.
func TestOneTimeFarAhead(t *testing.T) {
	const hour = 3600
	l := local(t, time.Second, 10)
	allows(t, l, 0.1, 6)
	allows(t, l, hour, 3)
	if n := passed(l, 0.2, 10); n != 1 { // 6 and 3 have passed
		t.Errorf("%d pass after the time ahead, want 1", n)
	}
	if n := passed(l, 2.5, 20); n != 10 {
		t.Errorf("%d pass two windows later, want 10", n)
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, tenPerSecond(), store)
				for _, seconds := range []float64{0, 0.1, hour, 0.2, 0.4} {
					allows(t, l, seconds, 1)
					synctest.Wait()
				}
				if got := counts.count("test", 0); got != 4 {
					t.Errorf("count = %d, want 4", got)
				}
				denies(t, l, 0.4, 6)
				allows(t, l, 0.4, 5)
			})
		})
	}
}

// There: a clock that is set back by an hour stops the limiter for an hour.
func TestClockSetBack(t *testing.T) {
	for _, back := range []float64{1.5, 2, 60, 3600} {
		l := local(t, time.Second, 10)
		allows(t, l, 1.2, 10)
		if n := passed(l, 1.3-back, 10); n != 0 {
			t.Errorf("%d pass right after %gs back, want 0", n, back)
		}
		if n := passed(l, 3.3-back, 20); n != 10 {
			t.Errorf("%d pass two seconds after %gs back, want 10", n, back)
		}
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, tenPerSecond(), store)
				allows(t, l, 3600, 4)
				synctest.Wait()
				for _, seconds := range []float64{1, 2.1, 2.3} {
					allows(t, l, seconds, 2)
					synctest.Wait()
				}
				if got := counts.count("test", 2); got != 4 {
					t.Errorf("count = %d, want 4", got)
				}
			})
		})
	}
}

// There: before its window begins, the count of the last one weighs more than itself.
func TestWeightIsAtMostOne(t *testing.T) {
	l := local(t, time.Second, 10)
	allows(t, l, 0.5, 6)
	allows(t, l, 1.0, 1)
	allows(t, l, 0.5, 3) // 6 and 1, and not 9 and 1
	denies(t, l, 0.5, 1)
}
