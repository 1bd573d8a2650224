package slidingwindow_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// These are the points at which RussellLuo/slidingwindow goes wrong with a store, slow or lost or idle.

// There: whoever calls while another waits for the store waits too.
func TestSlowStoreHoldsNobodyUp(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, limits{time.Second, 1e6, 100 * time.Millisecond}, store)
				counts.change(func(s *plainStore) { s.slow(50 * time.Millisecond) })
				var mu sync.Mutex
				waited := map[time.Duration]int{}
				var callers sync.WaitGroup
				for range 8 {
					callers.Go(func() {
						for range 250 {
							begin := time.Now()
							l.Allow()
							mu.Lock()
							waited[time.Since(begin)]++
							mu.Unlock()
							time.Sleep(time.Millisecond)
						}
					})
				}
				callers.Wait()
				if m.blocking && waited[0] < 1980 || !m.blocking && waited[0] != 2000 {
					t.Errorf("waits = %v, want next to none", waited)
				}
			})
		})
	}
}

// There: a store that does not answer stops the limiter for as long as that.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, tenPerSecond(), store)
				counts.change(func(s *plainStore) { s.held = make(chan struct{}) })
				begin := time.Now()
				if n := passed(l, 0, 20); n != 10 {
					t.Errorf("%d pass, want 10", n)
				}
				// It is asked once before the first decision and, if that call has ended, once after.
				if waited := time.Since(begin); waited > 2*time.Second || !m.blocking && waited != 0 {
					t.Errorf("callers waited for %v, want two seconds at most", waited)
				}
				if m.blocking && l.Err() == nil {
					t.Error("Err = nil, want one that says it is late")
				}
				counts.change(func(s *plainStore) { close(s.held); s.held = nil })
				synctest.Wait()
				allows(t, l, 0.3, 0)
				synctest.Wait()
				if got := counts.count("test", 0); got != 10 || l.Err() != nil {
					t.Errorf("count = %d with Err = %v, want 10 without", got, l.Err())
				}
			})
		})
	}
}

// There: a push that is sent again because its answer was lost counts twice.
func TestLostAnswer(t *testing.T) {
	for _, m := range modes {
		if !m.batch {
			continue // two methods leave no way to tell
		}
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, tenPerSecond(), store)
				allows(t, l, 0, 1)
				synctest.Wait()
				counts.change(func(s *plainStore) { s.lose = true })
				for _, seconds := range []float64{0.2, 0.4, 0.6} {
					allows(t, l, seconds, 2)
					synctest.Wait()
				}
				if got := counts.count("test", 0); got != 7 {
					t.Errorf("count = %d, want 7", got)
				}
			})
		})
	}
}

// There: even when every decision is exchanged, k limiters that are called in turn let k-1 too many pass.
func TestEveryDecisionExchanged(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := limits{size: time.Second, limit: 100}
				var limiters []*sw.Limiter
				for range 10 {
					limiters = append(limiters, m.limiter(t, l, store))
				}
				total := 0
				for range 20 {
					for _, l := range limiters {
						total += passed(l, 0.1, 1)
					}
				}
				if got := counts.count("test", 0); total != 100 || got != 100 {
					t.Errorf("%d pass with a count of %d, want 100 of both", total, got)
				}
			})
		})
	}
}

// A store that reads from a replica, which is behind, makes nobody count anything twice.
func TestReplicaBehind(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := limits{time.Second, 100, 100 * time.Millisecond}
				a, b := m.limiter(t, l, store), m.limiter(t, l, store)
				step := func(seconds float64, n int64) {
					for _, l := range []*sw.Limiter{a, b} {
						allows(t, l, seconds, n)
						synctest.Wait()
					}
				}
				step(0, 10)
				step(0.1, 0)
				window := name{"test", epoch().UnixNano()}
				counts.change(func(s *plainStore) { s.counts[window] -= 3 })
				step(0.2, 0)
				counts.change(func(s *plainStore) { s.counts[window] += 3 })
				step(0.3, 1)
				step(0.4, 0)
				if got := counts.count("test", 0); got != 22 {
					t.Errorf("count = %d, want 22", got)
				}
				if x, y := a.Peek(at(0.4), 1), b.Peek(at(0.4), 1); x.Remaining != 78 || y.Remaining != 78 {
					t.Errorf("Remaining = %d and %d, want 78", x.Remaining, y.Remaining)
				}
			})
		})
	}
}

// There: counts are exchanged only when somebody calls, so that the first decision after a pause is made
// by what was known before it.
func TestIdleLimiterLearns(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
				store, _ := m.store()
				a, b := m.limiter(t, tenPerSecond(), store), m.limiter(t, tenPerSecond(), store)
				wait := func(d time.Duration) { <-time.After(d); synctest.Wait() }
				b.Allow()
				wait(100 * time.Millisecond)
				for range 4 { // what it counts is told though it is not called again
					a.Allow()
				}
				wait(610 * time.Millisecond) // three intervals: until it is told, and until it is read
				if got := b.Peek(time.Now(), 1).Remaining; got != 5 {
					t.Errorf("Remaining = %d, want 5", got)
				}
				wait(3290 * time.Millisecond) // nobody calls for three windows
				for range 6 {
					a.Allow()
				}
				wait(610 * time.Millisecond) // three intervals: until it is told, and until it is read
				if b.AllowN(time.Now(), 5) || !b.AllowN(time.Now(), 4) {
					t.Error("after 6 elsewhere 5 pass or 4 do not, want it the other way round")
				}
			})
		})
	}
}

// Callers whose decisions are exchanged wait for one another, but not for longer than the store has.
func TestEveryDecisionExchangedWithAStoreThatHangs(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				l := m.limiter(t, limits{time.Hour, 1000, 0}, store)
				counts.change(func(s *plainStore) { s.held = make(chan struct{}) })
				var callers sync.WaitGroup
				for range 200 {
					<-time.After(50 * time.Millisecond)
					callers.Go(func() {
						begin := time.Now()
						if ok := l.Allow(); !ok || time.Since(begin) > 2*time.Second {
							t.Errorf("Allow = %v after %v, want true within 2s", ok, time.Since(begin))
						}
					})
				}
				callers.Wait()
				counts.change(func(s *plainStore) { close(s.held); s.held = nil })
			})
		})
	}
}

// A picky store is of a type that can be compared, but holds something that cannot.
type pickyStore struct {
	*plainStore
	options any
}

// A store that cannot be compared with others may hang, too.
func TestPickyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pickyStore{newPlainStore(), map[string]int{}}
		store.held = make(chan struct{})
		syncer := sw.NewBlockingSynchronizer(store, time.Hour)
		for range 2 {
			l := newLimiter(t, tenPerSecond(), func() (sw.Window, sw.StopFunc) {
				return sw.NewSyncWindow("test", syncer)
			})
			allows(t, l, 0, 1)
		}
		close(store.held)
	})
}
