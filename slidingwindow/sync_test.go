package slidingwindow_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// keyedLimiters returns limiters of many keys, each with a synchronizer of its own.
func keyedLimiters(t *testing.T, m mode, store sw.Datastore, keys int) (limiters []*sw.Limiter) {
	t.Helper()
	for i := range keys {
		limiters = append(limiters, newLimiter(t, tenPerSecond(), func() (sw.Window, sw.StopFunc) {
			return sw.NewSyncWindow(fmt.Sprint(i), m.synchronizer(store, tenPerSecond().interval))
		}))
	}
	return limiters
}

// goroutines is how many this package has.
func goroutines() int {
	dump := make([]byte, 1<<22)
	dump = dump[:runtime.Stack(dump, true)]
	return strings.Count(string(dump), "created by github.com/gatehousehq/gatehouse/slidingwindow.")
}

// However many windows there are, one goroutine exchanges them all, and none when there is nothing to do.
func TestOneGoroutine(t *testing.T) {
	const keys = 1000
	for _, m := range modes[2:] {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				limiters := keyedLimiters(t, m, store, keys)
				counts.change(func(s *plainStore) { s.slow(50 * time.Microsecond) })
				for _, l := range limiters {
					allows(t, l, 0, 1)
				}
				synctest.Wait() // until the store is asked
				if n := goroutines(); n != 1 {
					t.Errorf("%d goroutines while a store is asked, want 1", n)
				}
				<-time.After(199 * time.Millisecond)
				synctest.Wait()
				if n := goroutines(); n != 0 {
					t.Errorf("%d goroutines after that, want none", n)
				}
				for i := range limiters {
					if got := counts.count(fmt.Sprint(i), 0); got != 1 {
						t.Fatalf("count of %d = %d, want 1", i, got)
					}
				}
			})
		})
	}
}

// askAll calls all limiters, the first of them so much earlier that its exchange is under way.
func askAll(t *testing.T, limiters []*sw.Limiter) {
	t.Helper()
	for _, l := range limiters {
		allows(t, l, 0, 1)
		if l == limiters[0] {
			synctest.Wait()
		}
	}
}

// All keys that become due during a round trip go into the next one, current and last window alike.
func TestOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 500
		store := newBatchStore()
		store.slow(time.Millisecond)
		askAll(t, keyedLimiters(t, mode{"nonblocking batch", false, true}, store, keys))
		<-time.After(2 * time.Millisecond)
		synctest.Wait()
		if fmt.Sprint(store.trips) != fmt.Sprint([]int{2, 2 * (keys - 1)}) {
			t.Errorf("pushes in each round trip = %v, want 2 and all others", store.trips)
		}
	})
}

// A round trip has at most 1024 pushes.
func TestRoundTripsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBatchStore()
		store.slow(time.Millisecond)
		askAll(t, keyedLimiters(t, mode{"nonblocking batch", false, true}, store, 1025))
		<-time.After(4 * time.Millisecond)
		synctest.Wait()
		if fmt.Sprint(store.trips) != "[2 1024 1024]" {
			t.Errorf("pushes in each round trip = %v, want 2 and twice 1024", store.trips)
		}
	})
}

// While a store fails it is tried less and less, but at least every 30 seconds, and not by all at once.
func TestBackoff(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, limits{time.Minute, 1e9, 100 * time.Millisecond}, store)
				l.Allow()
				synctest.Wait()
				counts.change(func(s *plainStore) { s.err = errBroken })
				var tries []time.Duration
				begin := time.Now()
				for time.Since(begin) < 10*time.Minute {
					<-time.After(50 * time.Millisecond)
					before := counts.tries()
					l.Allow()
					synctest.Wait()
					if counts.tries() > before {
						tries = append(tries, time.Since(begin))
					}
				}
				if len(tries) < 20 || len(tries) > 60 {
					t.Errorf("%d tries in 10 minutes, want about 40", len(tries))
				}
				if pause := tries[1] - tries[0]; pause > 200*time.Millisecond {
					t.Errorf("second try %v after the first, want an interval", pause)
				}
				if last := tries[len(tries)-1]; 10*time.Minute-last > 38*time.Second {
					t.Errorf("last try at %v, want one within 38s of the end", last)
				}
				counts.change(func(s *plainStore) { s.err = nil })
				for range 40 {
					<-time.After(time.Second)
					l.Allow()
				}
				synctest.Wait()
				if l.Err() != nil {
					t.Errorf("Err = %v, want none", l.Err())
				}
			})
		})
	}
}

// Once an exchange succeeds, though no caller began it, callers' exchanges are as frequent as before.
func TestBackoffEnds(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, limits{time.Hour, 1e9, 100 * time.Millisecond}, store)
				counts.change(func(s *plainStore) { s.err = errBroken })
				for range 600 {
					l.Allow()
					<-time.After(100 * time.Millisecond)
				}
				counts.change(func(s *plainStore) { s.err = nil })
				<-time.After(time.Minute) // nobody calls
				synctest.Wait()
				before := counts.tries()
				for range 10 {
					l.Allow()
					<-time.After(100 * time.Millisecond)
				}
				if n := counts.tries() - before; l.Err() != nil || n < 10 {
					t.Errorf("%d tries in 10 intervals with Err = %v, want 10 without", n, l.Err())
				}
			})
		})
	}
}

// tries is how often the store was asked, by round trips or by calls.
func (s *plainStore) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// A store that does not answer stops no exchange with another, and is not asked again until it has.
func TestHangingStoreIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging, good := newPlainStore(), newPlainStore()
		hanging.held = make(chan struct{})
		nonblocking := mode{"nonblocking", false, false}
		var stuck []*sw.Limiter
		for range 5 {
			stuck = append(stuck, nonblocking.limiter(t, tenPerSecond(), hanging))
		}
		fine := nonblocking.limiter(t, tenPerSecond(), good)
		for _, l := range append(stuck, fine) {
			allows(t, l, 0, 1)
		}
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		if got := good.count("test", 0); got != 1 {
			t.Errorf("count = %d, want 1 while the other store hangs", got)
		}
		for range 60 {
			<-time.After(time.Second)
			for _, l := range append(stuck, fine) {
				l.Allow()
			}
			synctest.Wait()
		}
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines, want the one that hangs", n)
		}
		if hanging.tries() != 1 {
			t.Errorf("%d calls of the store that hangs, want 1", hanging.tries())
		}
		if stuck[0].Err() == nil || fine.Err() != nil {
			t.Errorf("Err = %v and %v, want one and none", stuck[0].Err(), fine.Err())
		}
		hanging.change(func(s *plainStore) { close(s.held); s.held = nil })
		for range 60 {
			<-time.After(time.Second)
			for _, l := range append(stuck, fine) {
				l.Allow()
			}
			synctest.Wait()
		}
		if stuck[4].Err() != nil || hanging.tries() < 100 {
			t.Errorf("Err = %v after %d calls, want none and many", stuck[4].Err(), hanging.tries())
		}
	})
}

// A window that nobody calls for 16 windows is not exchanged any more, until it is called again.
func TestIdleWindowsRest(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, tenPerSecond(), store)
				l.Allow()
				<-time.After(16 * time.Second)
				synctest.Wait()
				awake := counts.tries()
				if awake < 16*2 {
					t.Errorf("%d tries in 16s, want more", awake)
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				resting := counts.tries()
				<-time.After(time.Hour)
				synctest.Wait()
				if n := counts.tries() - resting; n != 0 {
					t.Errorf("%d tries in an hour of rest, want none", n)
				}
				l.Allow()
				<-time.After(time.Second)
				synctest.Wait()
				if n := counts.tries() - resting; n < 3 {
					t.Errorf("%d tries in the second after, want more", n)
				}
			})
		})
	}
}

// A stop tells the store what it was not told.
func TestStopTellsTheRest(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l, stop := sw.NewLimiter(time.Second, 100, func() (sw.Window, sw.StopFunc) {
					return sw.NewSyncWindow("test", m.synchronizer(store, 300*time.Millisecond))
				})
				allows(t, l, 0.8, 1)
				synctest.Wait()
				allows(t, l, 0.9, 10)
				counts.change(func(s *plainStore) { s.slow(50 * time.Millisecond) })
				allows(t, l, 1.1, 20) // this exchange is under way
				allows(t, l, 1.2, 30)
				stop()
				if a, b := counts.count("test", 0), counts.count("test", 1); a != 11 || b != 50 {
					t.Errorf("counts = %d and %d, want 11 and 50", a, b)
				}
				tries := counts.tries()
				allows(t, l, 1.3, 1)
				<-time.After(time.Minute)
				synctest.Wait()
				if counts.tries() != tries {
					t.Errorf("%d tries after the stop, want none", counts.tries()-tries)
				}
			})
		})
	}
}

// A synchronizer that stops tells the rest of all its windows, in one round trip if it can.
func TestSynchronizerStopsAll(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				syncer := m.synchronizer(store, time.Second)
				for i := range 10 {
					l := newLimiter(t, tenPerSecond(), func() (sw.Window, sw.StopFunc) {
						return sw.NewSyncWindow(fmt.Sprint(i), syncer)
					})
					allows(t, l, 0, 1)
					synctest.Wait()
					allows(t, l, 0.1, 1)
				}
				tries := counts.tries()
				syncer.Stop()
				for i := range 10 {
					if got := counts.count(fmt.Sprint(i), 0); got != 2 {
						t.Errorf("count of %d = %d, want 2", i, got)
					}
				}
				if n := counts.tries() - tries; m.batch && n != 1 {
					t.Errorf("%d round trips, want 1", n)
				}
			})
		})
	}
}

// A stop does not wait for a store that hangs for longer than two seconds.
func TestStopDoesNotHang(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				syncer := m.synchronizer(store, 100*time.Millisecond)
				var limiters []*sw.Limiter
				for i := range 10 {
					window := func() (sw.Window, sw.StopFunc) {
						return sw.NewSyncWindow(fmt.Sprint(i), syncer)
					}
					limiters = append(limiters, newLimiter(t, tenPerSecond(), window))
				}
				counts.change(func(s *plainStore) { s.held = make(chan struct{}) })
				for _, l := range limiters {
					l.Allow()
				}
				begin := time.Now()
				syncer.Stop()
				if waited := time.Since(begin); waited > 2*time.Second {
					t.Errorf("Stop took %v, want 2s at most", waited)
				}
				counts.change(func(s *plainStore) { close(s.held); s.held = nil })
			})
		})
	}
}

// A decision allocates nothing, whatever the window.
func TestNoAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		windows := map[string]sw.NewWindow{
			"local": localWindow,
			"strict": func() (sw.Window, sw.StopFunc) {
				return sw.NewStrictWindow("test", newPlainStore(), 1e6)
			},
		}
		for _, m := range modes {
			windows[m.name] = func() (sw.Window, sw.StopFunc) {
				store, _ := m.store()
				return sw.NewSyncWindow("test", m.synchronizer(store, time.Hour))
			}
		}
		for name, window := range windows {
			l := newLimiter(t, limits{size: time.Minute, limit: 1e9}, window)
			l.Allow()
			if n := testing.AllocsPerRun(10000, func() { l.Allow() }); n != 0 {
				t.Errorf("Allow with a %s window allocates %v times, want 0", name, n)
			}
		}
	})
}
