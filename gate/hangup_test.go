package gate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// The dangerous instant is a grant while the caller goes away. Callers hang up just as slots are
// handed over, thousands of times, on real threads: no slot may be lost, none held twice.
func TestHangUpAtTheInstantOfGrant(t *testing.T) {
	const callers, rounds, size = 8, 3000, 2
	g, key := newGate(), semaphore("instant")
	var inside, granted atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range rounds {
				if hangUp(g, key, caller{c, i}, &inside, size, t) {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	d := must(t, g, key, gatehouse.Command{Op: gatehouse.OpStats})
	for _, stat := range d.Stats {
		if (stat.Name == "held" || stat.Name == "waiting") && stat.Value != int64(0) {
			t.Errorf("%s = %v after everybody left, want 0", stat.Name, stat.Value)
		}
	}
	if granted.Load() == 0 || granted.Load() == callers*rounds {
		t.Errorf("%d of %d were granted: the test did not test what it should", granted.Load(), callers*rounds)
	}
}

// A caller is one of several goroutines, in one of its rounds.
type caller struct{ number, round int }

// hangUp acquires with a context that ends at about the time of the grant, and releases what it got.
func hangUp(
	g *gate.Gate, key gatehouse.Key, c caller, inside *atomic.Int64, size int64, t *testing.T,
) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.number%2 == 0 {
		go func() {
			for range c.round % 7 {
				_ = g.Waiting() // a moment that differs from round to round
			}
			cancel()
		}()
	}
	cmd := acquire(fmt.Sprint(c))
	cmd.Size = size
	d, err := g.Do(ctx, key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		return false
	}
	if n := inside.Add(1); n > size {
		t.Errorf("%d hold at once, want at most %d", n, size)
	}
	inside.Add(-1)
	if _, err := g.Do(context.Background(), key, release(cmd.Holder)); err != nil {
		t.Error(err)
	}
	return true
}

// The same from the front's side: the answer is there, and cancel comes before, with, or after it.
func TestCancelRacesWithDone(t *testing.T) {
	g, key := newGate(), semaphore("race")
	for i := range 5000 {
		must(t, g, key, acquire("holder"))
		var told atomic.Int64
		cancel := g.Submit(key, acquire("a"), func(gatehouse.Decision, error) { told.Add(1) })
		var wg sync.WaitGroup
		wg.Go(func() { must(t, g, key, release("holder")) })
		wg.Go(cancel)
		wg.Wait()
		cmd := acquire("holder")
		cmd.MaxWait = 0
		d, err := g.Do(t.Context(), key, cmd)
		if err != nil || d.Outcome != gatehouse.Granted || told.Load() > 1 {
			t.Fatalf("round %d: the slot is lost: %s, %v; told %d times", i, d.Outcome, err, told.Load())
		}
		must(t, g, key, release("holder"))
	}
}

// Waiters that leave a barrier do not count, whenever they leave.
func TestBarrierCountsOnlyThoseWhoStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.Barrier, Name: "barrier"}
		wait := gatehouse.Command{Op: gatehouse.OpWait, Size: 3, MaxWait: gatehouse.Forever}
		for i := range 100 {
			cancel := g.Submit(key, wait, l.done(fmt.Sprint("gone", i)))
			cancel()
		}
		short := wait
		short.MaxWait = time.Second
		g.Submit(key, short, l.done("short"))
		time.Sleep(2 * time.Second)
		l.wantOrder(t, "short")
		g.Submit(key, wait, l.done("a"))
		g.Submit(key, wait, l.done("b"))
		l.wantOrder(t, "short")
		g.Submit(key, wait, l.done("c"))
		synctest.Wait()
		for _, name := range []string{"a", "b", "c"} {
			if got := l.get(name); got.outcome != gatehouse.Granted || got.count != 1 {
				t.Errorf("%s: %s %d times, want granted once", name, got.outcome, got.count)
			}
		}
	})
}

// A line remembers its controller while the store would forget it.
func TestWaitedForIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Config{})
		g, l := gate.New(store, gate.Config{}), newLog()
		key := gatehouse.Key{Kind: gatehouse.Barrier, Name: "barrier"}
		wait := gatehouse.Command{Op: gatehouse.OpWait, Size: 2, MaxWait: gatehouse.Forever}
		g.Submit(key, wait, l.done("early"))
		time.Sleep(1000 * time.Hour)
		must(t, g, key, wait)
		l.wantOrder(t, "early")
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		if n := store.Len(); n != 0 {
			t.Errorf("%d names are kept, want none", n)
		}
	})
}
