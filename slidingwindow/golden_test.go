package slidingwindow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// Each script is a line of steps "seconds,n allow" or "seconds,n deny", "limit N" between them. They
// say what RussellLuo/slidingwindow decides.
var scripts = []struct {
	name  string
	size  time.Duration
	limit int64
	steps string
}{
	{"local", time.Second, 10,
		`0,1 allow; 0.1,2 allow; 0.2,3 allow; 0.5,5 deny; 1.0,2 allow; 1.2,5 deny; 1.5,5 allow;
		3.0,10 allow`},
	{"documented example", time.Minute, 100,
		`10,86 allow; 62,12 allow; 75,25 deny; 75,24 allow; 75,1 deny`},
	{"weights are rounded down", time.Second, 3,
		`0.9,3 allow; 1.0,1 deny; 1.25,1 allow; 1.25,1 deny; 1.5,1 allow; 1.5,1 deny; 1.75,1 allow;
		1.75,1 deny`},
	{"limit of one", time.Second, 1,
		`0.999,1 allow; 1.0,1 deny; 1.000000001,1 allow; 1.5,1 deny`},
	{"boundary", time.Second, 4,
		`0.999999999,4 allow; 1.0,1 deny; 1.25,1 allow; 1.25,1 deny; 1.999999999,3 allow; 2.0,1 deny;
		2.5,2 allow; 2.5,1 deny`},
	{"windows begin at whole multiples of their size", time.Second, 10,
		`0.95,10 allow; 1.05,1 allow; 1.05,1 deny`},
	{"several at once", time.Second, 5,
		`0,6 deny; 0,9223372036854775807 deny; 0,0 allow; 0,5 allow; 0,0 allow; 0,1 deny; 1.0,5 deny;
		2.0,5 allow`},
	{"new limits", 3 * time.Second, 6,
		`0,6 allow; limit 8; 0.1,3 deny; 0.1,2 allow; 0.1,1 deny; limit 4; 0.2,0 deny; limit 9; 0.3,1 allow;
		0.3,1 deny; limit 0; 30,1 deny; 30,0 allow; limit -1; 60,0 deny`},
}

// run runs a script.
func run(t *testing.T, l *sw.Limiter, steps string) {
	t.Helper()
	for step := range strings.SplitSeq(steps, ";") {
		var seconds float64
		var n int64
		var answer string
		if _, err := fmt.Sscanf(strings.TrimSpace(step), "limit %d", &n); err == nil {
			l.SetLimit(n)
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(step), "%g,%d %s", &seconds, &n, &answer); err != nil {
			t.Fatalf("step %q: %v", step, err)
		}
		decisions[answer == "allow"](t, l, seconds, n)
	}
}

func TestGoldenLocal(t *testing.T) {
	for _, script := range scripts {
		t.Run(script.name, func(t *testing.T) {
			run(t, local(t, script.size, script.limit), script.steps)
		})
	}
}

// A window of somebody else's is decided by as a LocalWindow is.
func TestGoldenForeignWindow(t *testing.T) {
	for _, script := range scripts {
		t.Run(script.name, func(t *testing.T) {
			l := limits{size: script.size, limit: script.limit}
			foreign := func() (sw.Window, sw.StopFunc) { return new(foreignWindow), nil }
			run(t, newLimiter(t, l, foreign), script.steps)
		})
	}
}

// One limiter alone decides the same with every window there is.
func TestGoldenAlone(t *testing.T) {
	for _, script := range scripts {
		for _, m := range modes {
			t.Run(script.name+" "+m.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, _ := m.store()
					l := limits{script.size, script.limit, script.size / 5}
					run(t, m.limiter(t, l, store), script.steps)
				})
			})
		}
		t.Run(script.name+" strict", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limits{size: script.size, limit: script.limit}
				run(t, newLimiter(t, l, func() (sw.Window, sw.StopFunc) {
					return sw.NewStrictWindow("test", newPlainStore(), 1)
				}), script.steps)
			})
		})
	}
}

// Two limiters share a store and take the same steps, T being one that only makes an exchange due.
func TestGoldenShared(t *testing.T) {
	const (
		blocking = `0,1 allow; 0.1,1 allow; 0.2,1 allow; 0.4,11 deny; 0.6,5 deny; 1.0,2 allow; 1.2,5 deny;
			1.4,11 deny; 1.6,5 deny; 1.8,5 allow; 3.0,10 allow`
		nonblocking = `0,1 allow; 0.1,1 allow; 0.2,1 allow; 0.3,11 deny; 0.4,11 deny; 0.4,11 deny;
			0.6,5 deny; 1.0,2 allow; 1.2,5 deny; 1.3,11 deny; 1.4,11 deny; 1.4,11 deny; 1.6,5 deny;
			1.8,5 allow; 3.0,10 allow`
	)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, _ := m.store()
				a, b := m.limiter(t, tenPerSecond(), store), m.limiter(t, tenPerSecond(), store)
				steps := blocking
				if !m.blocking {
					steps = nonblocking
				}
				for step := range strings.SplitSeq(steps, ";") {
					for _, l := range []*sw.Limiter{a, b} {
						run(t, l, step)
						synctest.Wait() // for what is exchanged in the background
					}
				}
			})
		})
	}
}

// What the store is asked, and after which decision.
func TestGoldenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		l := modes[0].limiter(t, tenPerSecond(), store)
		for _, step := range []struct {
			seconds float64
			n       int64
			allow   bool
			calls   []string
		}{
			{0, 1, true, []string{"Add 1"}},
			{0.1, 2, true, nil},
			{0.199, 1, true, nil},
			{0.2, 1, true, []string{"Add 4"}},
			{0.4, 100, false, []string{"Get"}},
			{0.5, 1, true, nil},
			{0.6, 1, true, []string{"Add 2"}},
		} {
			decisions[step.allow](t, l, step.seconds, step.n)
			if calls := store.takeCalls(); !slices.Equal(calls, step.calls) {
				t.Errorf("calls at %gs = %q, want %q", step.seconds, calls, step.calls)
			}
		}
	})
}

// A store that fails is tried again an interval later, with all that it was not told.
func TestGoldenFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		store.err = errBroken
		l := modes[0].limiter(t, limits{time.Second, 5, 100 * time.Millisecond}, store)
		for _, step := range []struct {
			seconds float64
			n       int64
			allow   bool
			calls   []string
		}{
			{0, 1, true, []string{"Add 1"}},
			{0.05, 1, true, nil},
			{0.10, 1, true, []string{"Add 3"}},
			{0.20, 1, true, []string{"Add 4"}},
			{0.25, 2, false, nil},
			{0.25, 1, true, nil},
		} {
			if step.seconds == 0.20 {
				if !errors.Is(l.Err(), errBroken) {
					t.Errorf("Err = %v, want %v", l.Err(), errBroken)
				}
				store.change(func(s *plainStore) { s.err = nil })
			}
			decisions[step.allow](t, l, step.seconds, step.n)
			if calls := store.takeCalls(); !slices.Equal(calls, step.calls) {
				t.Errorf("calls at %gs = %q, want %q", step.seconds, calls, step.calls)
			}
		}
		if l.Err() != nil {
			t.Errorf("Err = %v, want none", l.Err())
		}
	})
}

// Windows begin where time.Truncate has them begin, since the year 1: weeks on a Monday.
func TestGoldenAlignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			size time.Duration
			now  time.Time
		}{
			{time.Second, epoch()},
			{7 * time.Second, epoch()},
			{13 * time.Minute, epoch()},
			{7 * 24 * time.Hour, epoch()},
			{7 * 24 * time.Hour, time.Date(1969, 7, 20, 20, 17, 40, 5, time.UTC)},
			{1, epoch()},
		} {
			store := newPlainStore()
			l := modes[0].limiter(t, limits{c.size, 1, time.Second}, store)
			l.AllowN(c.now, 1)
			start := c.now.Truncate(c.size).UnixNano()
			if store.counts[name{"test", start}] != 1 {
				t.Errorf("counts with a size of %v at %v = %v, want 1 at %d",
					c.size, c.now, store.counts, start)
			}
		}
		if monday := epoch().Truncate(7 * 24 * time.Hour).Weekday(); monday != time.Monday {
			t.Errorf("weeks begin on a %v, want a Monday", monday)
		}
	})
}
