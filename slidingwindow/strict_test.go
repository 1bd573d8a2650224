package slidingwindow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// strict returns a limiter of 10 a second that takes chunks from store.
func strict(t *testing.T, store sw.Datastore, chunk int64) *sw.Limiter {
	t.Helper()
	return newLimiter(t, limits{size: time.Second, limit: 10}, func() (sw.Window, sw.StopFunc) {
		return sw.NewStrictWindow("test", store, chunk)
	})
}

// What is taken, when, and what happens to the rest.
func TestStrictChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		a, b := strict(t, store, 4), strict(t, store, 4)
		for _, step := range []struct {
			limiter *sw.Limiter
			seconds float64
			n       int64
			allow   bool
			calls   []string
		}{
			{a, 0, 1, true, []string{"Add 4"}}, // 3 are left
			{a, 0.1, 3, true, nil},
			{a, 0.1, 1, true, []string{"Add 4"}},           // 3 are left
			{b, 0.2, 1, true, []string{"Add 4", "Add -2"}}, // 10 are taken, 1 is left here
			{b, 0.2, 1, true, nil},
			{b, 0.2, 1, false, []string{"Get"}}, // a has taken what is left
			{b, 0.2, 1, false, nil},             // and that is believed for a hundredth of the window
			{b, 0.22, 1, false, []string{"Get"}},
			{a, 0.3, 4, false, []string{"Add 2", "Add -2"}}, // 3 are left, and b has taken what was
			{a, 0.3, 2, true, nil},                          // 1 is left
			{a, 1.5, 1, true, []string{"Add -1", "Get", "Add 4"}},
			{b, 1.5, 1, true, []string{"Get", "Add 4", "Add -2"}}, // 9 weigh 4, 4 were taken
			{a, 1.5, 11, false, nil},
			{a, 3.5, 8, true, []string{"Add -3", "Get", "Add 8"}}, // what is needed is more than a chunk
		} {
			decisions[step.allow](t, step.limiter, step.seconds, step.n)
			if calls := store.takeCalls(); !slices.Equal(calls, step.calls) {
				t.Errorf("calls at %gs for %d = %q, want %q", step.seconds, step.n, calls, step.calls)
			}
		}
	})
}

// Nothing passes that was not taken: not while the store fails, and not when it has forgotten.
func TestStrictStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		l := strict(t, store, 3)
		allows(t, l, 0, 1)
		store.err = errBroken
		allows(t, l, 0.1, 2)
		denies(t, l, 0.1, 1)
		if l.Err() == nil {
			t.Error("Err = nil, want one")
		}
		tries := store.tries()
		if n := passed(l, 0.1, 100); n != 0 || store.tries() != tries {
			t.Errorf("%d pass after %d more tries, want none", n, store.tries()-tries)
		}
		store.err = nil
		allows(t, l, 0.2, 1)
		if l.Err() != nil {
			t.Errorf("Err = %v, want none", l.Err())
		}
		clear(store.counts)
		allows(t, l, 0.3, 2)
		if n := passed(l, 0.9, 100); n != 0 {
			t.Errorf("%d pass after the store has forgotten, want none until the next window", n)
		}
		allows(t, l, 1.0, 1)
	})
}

// What one store call too many may have taken is lost, but never given out twice.
func TestStrictLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		l := strict(t, store, 3)
		store.lose = true
		denies(t, l, 0, 1)
		if n := passed(l, 0.1, 20); n != 7 {
			t.Errorf("%d pass, want 7: 3 were lost on the way", n)
		}
	})
}

// While a store hangs, callers wait for a second at most, and later ones not at all.
func TestStrictStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		store.held = make(chan struct{})
		l := strict(t, store, 3)
		begin := time.Now()
		denies(t, l, 0, 1)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("the first waited for %v, want a second", waited)
		}
		if n := passed(l, 0.5, 100); n != 0 || time.Since(begin) != time.Second || l.Err() == nil {
			t.Errorf("%d pass in %v with Err = %v, want none at once, and one", n, time.Since(begin), l.Err())
		}
		close(store.held)
		synctest.Wait()
		if n := passed(l, 0.6, 100); n != 10 {
			t.Errorf("%d pass after that, want 10", n)
		}
	})
}

// Callers that need a chunk at the same time wait for one.
func TestStrictCallersShareAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		store.slow(10 * time.Millisecond)
		l := strict(t, store, 10)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { allows(t, l, 0.1, 1) })
		}
		callers.Wait()
		if calls := store.takeCalls(); !slices.Equal(calls, []string{"Add 10"}) {
			t.Errorf("calls = %q, want one", calls)
		}
	})
}

// Nobody waits for longer than a second, however many spend what others have waited for.
func TestStrictCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		store.slow(10 * time.Millisecond)
		l := newLimiter(t, limits{size: time.Hour, limit: 1000}, func() (sw.Window, sw.StopFunc) {
			return sw.NewStrictWindow("test", store, 1)
		})
		begin := time.Now()
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() { l.AllowN(at(0), 1) })
		}
		callers.Wait()
		if took := time.Since(begin); took > time.Second || l.Err() != nil {
			t.Errorf("500 callers took %v with Err = %v, want a second at most and none", took, l.Err())
		}
	})
}

// A stop gives back what is left, and nothing passes after it.
func TestStrictStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		l, stop := sw.NewLimiter(time.Second, 10, func() (sw.Window, sw.StopFunc) {
			return sw.NewStrictWindow("test", store, 8)
		})
		allows(t, l, 0, 3)
		stop()
		stop()
		if got := store.count("test", 0); got != 3 {
			t.Errorf("count = %d, want 3", got)
		}
		denies(t, l, 0, 1)
		denies(t, l, 5, 1)
	})
}

func TestStrictLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := "slidingwindow: the chunk of a StrictWindow is 0, want at least 1"
		if got := panicOf(func() { sw.NewStrictWindow("test", newPlainStore(), 0) }); got != want {
			t.Errorf("NewStrictWindow panics with %q, want %q", got, want)
		}
		l := strict(t, newPlainStore(), 10)
		allows(t, l, 0, 2)
		l.SetLimit(3)
		denies(t, l, 0, 2) // though 8 were taken
		allows(t, l, 0, 1)
		denies(t, l, 0, 1)
		if got := l.Peek(at(0), 1); got.OK || got.Limit != 3 || got.Remaining != 0 {
			t.Errorf("Peek = %+v, want nothing left of 3", got)
		}
	})
}

// A clock that jumps asks the store for the window it jumped to, which knows what was taken there.
func TestStrictClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := strict(t, newPlainStore(), 2)
		allows(t, l, 0.1, 9)
		allows(t, l, 3600, 10)
		if n := passed(l, 0.2, 10); n != 1 {
			t.Errorf("%d pass after the clock came back, want 1", n)
		}
		if n := passed(l, 2.5, 20); n != 10 {
			t.Errorf("%d pass two windows later, want 10", n)
		}
	})
}

// Many nodes, a store that is slow, fails and loses answers, and clocks that differ: no fixed window ever
// lets more than the limit pass.
func TestStrictNeverOver(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			store := &unreliableStore{plainStore: newPlainStore(), random: rand.New(rand.NewPCG(seed, 3))}
			chunk := random.Int64N(4) + 1
			var mu sync.Mutex
			windows := map[int64]int64{}
			var nodes sync.WaitGroup
			for node := range 6 {
				l := strict(t, store, chunk)
				offset := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
				nodeRandom := rand.New(rand.NewPCG(seed, uint64(node)))
				nodes.Go(func() {
					for range 400 {
						<-time.After(time.Duration(nodeRandom.ExpFloat64() * float64(10*time.Millisecond)))
						now, n := time.Now().Add(offset), nodeRandom.Int64N(3)
						if l.AllowN(now, n) {
							mu.Lock()
							windows[now.Truncate(time.Second).Unix()] += n
							mu.Unlock()
						}
					}
				})
			}
			nodes.Wait()
			for start, n := range windows {
				if n > 10 {
					t.Errorf("seed %d: %d in the window at %d, want at most 10", seed, n, start)
				}
			}
			if len(windows) < 3 {
				t.Errorf("seed %d: something passes in %d windows, want more", seed, len(windows))
			}
		})
	}
}

// An unreliableStore is slow, and now and then it fails or loses an answer.
type unreliableStore struct {
	*plainStore
	mu     sync.Mutex
	random *rand.Rand
}

func (s *unreliableStore) Add(key string, start, delta int64) (int64, error) {
	if s.mishap() == 0 {
		return 0, errBroken
	}
	total, err := s.plainStore.Add(key, start, delta)
	if s.mishap() == 0 {
		return 0, fmt.Errorf("%w: the answer was lost", errBroken)
	}
	return total, err
}

// mishap takes some time and returns 0 now and then.
func (s *unreliableStore) mishap() int {
	s.mu.Lock()
	mishap, delay := s.random.IntN(30), time.Duration(s.random.Int64N(int64(5*time.Millisecond)))
	s.mu.Unlock()
	<-time.After(delay)
	return mishap
}
