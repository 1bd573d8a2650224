package slidingwindow_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

func localFor(string) (sw.Window, sw.StopFunc) { return sw.NewLocalWindow() }

// There, one limiter has one key, and all that comes with many is left to its users.
func TestLimitersKeepKeysApart(t *testing.T) {
	l := sw.NewLimiters(time.Second, 2, localFor)
	defer l.Stop()
	for range 2 {
		for _, key := range []string{"", "a", "b"} {
			if !l.AllowN(key, at(0), 1) {
				t.Errorf("AllowN(%q) = false, want true", key)
			}
		}
	}
	if l.AllowN("a", at(0), 1) || l.Len() != 3 {
		t.Errorf("a third passes or there are %d keys, want it not to and 3", l.Len())
	}
	l.SetLimit(3)
	if r := l.Take("a", at(0), 1); !r.OK || r.Limit != 3 || !l.AllowN("c", at(0), 3) {
		t.Errorf("Take = %+v, want it to pass with the new limit, as do 3 of a new key", r)
	}
	l.Stop()
	if l.Len() != 0 || !l.Allow("a") {
		t.Errorf("%d keys after the stop, want none and a new beginning", l.Len())
	}
}

// Keys that nobody uses are forgotten, and what they had to tell is told.
func TestLimitersForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		var stopped atomic.Int64
		l := sw.NewLimiters(time.Second, 10, func(key string) (sw.Window, sw.StopFunc) {
			w, stop := sw.NewSyncWindow(key, sw.NewNonblockingSynchronizer(store, 100*time.Millisecond))
			return w, func() { stop(); stopped.Add(1) }
		})
		const keys = 1000
		for i := range keys {
			l.Allow(fmt.Sprint(i))
		}
		<-time.After(1900 * time.Millisecond)
		l.Allow("7")
		if n := l.Len(); n != keys {
			t.Errorf("%d keys after 1.9s, want all", n)
		}
		<-time.After(200 * time.Millisecond)
		for i := range 10 * keys { // a call forgets two of its shard at most, which some keys fall into
			l.Allow(fmt.Sprintf("other %d", i%keys))
		}
		synctest.Wait()
		if n := l.Len(); n != keys+1 || stopped.Load() != keys-1 {
			t.Errorf("%d keys and %d stopped, want the others and one, and all but one", n, stopped.Load())
		}
		l.Stop()
		if stopped.Load() != 2*keys {
			t.Errorf("%d stopped, want %d", stopped.Load(), 2*keys)
		}
	})
}

// A key has one limiter, whoever asks first.
func TestLimitersRace(t *testing.T) {
	l := sw.NewLimiters(time.Hour, 50, localFor)
	var allowed atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 20000 {
				if l.AllowN(fmt.Sprint(rand.N(10)), at(0), 1) {
					allowed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := allowed.Load(); n != 500 {
		t.Errorf("%d pass, want 50 of each of 10 keys", n)
	}
}

// However many keys there are, a stop takes no longer than three seconds when a store hangs.
func TestLimitersStopDoesNotHang(t *testing.T) {
	for _, m := range modes {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict %v", m.name, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, counts := m.store()
					syncer := m.synchronizer(store, time.Hour)
					l := sw.NewLimiters(time.Hour, 10, func(key string) (sw.Window, sw.StopFunc) {
						if strict {
							return sw.NewStrictWindow(key, store, 1)
						}
						return sw.NewSyncWindow(key, syncer)
					})
					const keys = 600 // their current and last windows are more than go into one round trip
					for i := range keys {
						l.Allow(fmt.Sprint(i))
					}
					synctest.Wait()
					counts.change(func(s *plainStore) { s.held = make(chan struct{}) })
					for i := range keys {
						go l.Allow(fmt.Sprint(i)) // a strict one waits for the store
					}
					synctest.Wait()
					begin := time.Now()
					l.Stop()
					if took := time.Since(begin); took > 3*time.Second {
						t.Errorf("Stop took %v, want 3s at most", took)
					}
					counts.change(func(s *plainStore) { close(s.held); s.held = nil })
				})
			})
		}
	}
}
