package redisstore_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	sw "github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/gatehousehq/gatehouse/slidingwindow/redisstore"
)

// epoch is a whole minute. Callers pass the time in, so that no window ends because a test is slow.
func epoch() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

const interval = 100 * time.Millisecond

var modes = []struct {
	name         string
	synchronizer func(store *redisstore.Store) sw.Synchronizer
}{
	{"blocking", func(s *redisstore.Store) sw.Synchronizer {
		return sw.NewBlockingSynchronizer(s, interval)
	}},
	{"nonblocking", func(s *redisstore.Store) sw.Synchronizer {
		return sw.NewNonblockingSynchronizer(s, interval)
	}},
}

// newLimiter returns a limiter of a minute that is stopped with the test.
func newLimiter(t *testing.T, limit int64, key string, syncer sw.Synchronizer) *sw.Limiter {
	t.Helper()
	l, stop := sw.NewLimiter(time.Minute, limit, func() (sw.Window, sw.StopFunc) {
		return sw.NewSyncWindow(key, syncer)
	})
	t.Cleanup(stop)
	return l
}

func countKey(key string) string { return fmt.Sprintf("%s@%d", key, epoch().UnixNano()) }

// A process with RussellLuo/slidingwindow and its documented store, which is what redis-cli plays here,
// and one with this package count together.
func TestSharesWithTheOriginal(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			server := redistest.Start(t)
			l := newLimiter(t, 100, "test", m.synchronizer(newStore(t, server)))
			server.CLI(t, "INCRBY", countKey("test"), "30")
			server.CLI(t, "EXPIRE", countKey("test"), "120")
			server.CLI(t, "INCRBY", fmt.Sprintf("test@%d", epoch().Add(-time.Minute).UnixNano()), "40")
			if !l.AllowN(epoch(), 7) {
				t.Error("7 do not pass, want them to")
			}
			redistest.Until(t, func() bool { return server.CLI(t, "GET", countKey("test")) == "37" })
			if ttl := server.Int(t, "PTTL", countKey("test")); ttl <= 90_000 || ttl > 120_000 {
				t.Errorf("PTTL = %d, want twice the size and less what has passed", ttl)
			}
			redistest.Until(t, func() bool {
				l.AllowN(epoch().Add(interval), 0)
				return l.Peek(epoch().Add(30*time.Second), 1).Remaining == 100-20-37
			})
		})
	}
}

// What is counted while the server is away, and what it has forgotten when it comes back empty, is all
// told to it, and nobody passes twice.
func TestServerIsKilled(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			server := redistest.Start(t)
			a := newLimiter(t, 100, "test", m.synchronizer(newStore(t, server)))
			b := newLimiter(t, 100, "test", m.synchronizer(newStore(t, server)))
			now := epoch()
			tick := func(n int64, both func() bool) {
				t.Helper()
				a.AllowN(now, n)
				b.AllowN(now, n)
				redistest.Until(t, func() bool {
					now = now.Add(time.Millisecond)
					a.AllowN(now, 0)
					b.AllowN(now, 0)
					return both()
				})
			}
			tick(10, func() bool { return server.CLI(t, "GET", countKey("test")) == "20" })
			server.Kill()
			tick(10, func() bool { return a.Err() != nil && b.Err() != nil })
			server.Restart(t)
			tick(10, func() bool { return server.CLI(t, "GET", countKey("test")) == "60" })
			tick(0, func() bool { return a.Peek(now, 1).Remaining == 40 && b.Peek(now, 1).Remaining == 40 })
			if a.Err() != nil || b.Err() != nil {
				t.Errorf("Err = %v and %v, want none", a.Err(), b.Err())
			}
		})
	}
}

// While the server does not answer, limiters decide by what they know. What it was asked meanwhile and
// carries out late counts once.
func TestServerFreezes(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			server := redistest.Start(t)
			defer server.Thaw()
			l := newLimiter(t, 100, "test", m.synchronizer(newStore(t, server)))
			l.AllowN(epoch(), 1)
			redistest.Until(t, func() bool { return server.CLI(t, "GET", countKey("test")) == "1" })
			server.Freeze()
			passed, now := 1, epoch()
			redistest.Until(t, func() bool {
				now = now.Add(50 * time.Millisecond)
				if passed < 50 && l.AllowN(now, 1) {
					passed++
				}
				return l.Err() != nil && passed == 50
			})
			server.Thaw()
			redistest.Until(t, func() bool {
				now = now.Add(50 * time.Millisecond)
				l.AllowN(now, 0)
				return server.CLI(t, "GET", countKey("test")) == "50" && l.Err() == nil
			})
		})
	}
}

// Hundreds of keys of a process are exchanged together, and each gets its own answer.
func TestManyKeys(t *testing.T) {
	const keys = 300
	server := redistest.Start(t)
	syncer := sw.NewNonblockingSynchronizer(newStore(t, server), interval)
	var limiters []*sw.Limiter
	for i := range keys {
		limiters = append(limiters, newLimiter(t, 1000, fmt.Sprint(i), syncer))
	}
	for i, l := range limiters {
		if !l.AllowN(epoch(), int64(i)) {
			t.Errorf("%d do not pass, want them to", i)
		}
	}
	redistest.Until(t, func() bool {
		return server.CLI(t, "GET", countKey(fmt.Sprint(keys-1))) == fmt.Sprint(keys-1)
	})
	for i := 1; i < keys; i += 37 {
		if got := server.Int(t, "GET", countKey(fmt.Sprint(i))); got != int64(i) {
			t.Errorf("count of %d = %d, want %d", i, got, i)
		}
	}
}

// Nodes that take what they let pass from a real server never let one too many pass in a fixed window.
func TestStrictNodes(t *testing.T) {
	const (
		nodes, limit, size = 8, 200, 250 * time.Millisecond
		windows            = 8
	)
	server := redistest.Start(t)
	var mu sync.Mutex
	passed := map[int64]int{}
	var running sync.WaitGroup
	end := time.Now().Truncate(size).Add(windows * size)
	for range nodes {
		store := newStore(t, server)
		l, stop := sw.NewLimiter(size, limit, func() (sw.Window, sw.StopFunc) {
			return sw.NewStrictWindow("test", store, 5)
		})
		t.Cleanup(stop)
		running.Go(func() {
			for now := time.Now(); now.Before(end); now = time.Now() {
				if !l.AllowN(now, 1) {
					runtime.Gosched()
					continue
				}
				mu.Lock()
				passed[now.Truncate(size).UnixNano()]++
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for start, n := range passed {
		if n > limit {
			t.Errorf("%d pass in the window at %d, want at most %d", n, start, limit)
		}
	}
	if len(passed) < windows/2 {
		t.Errorf("something passes in %d windows, want more", len(passed))
	}
	t.Logf("passed in each window: %v", passed)
}
