package gate_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// The dangerous instant is a grant while the caller goes away. Callers hang up just as slots are
// handed over, thousands of times, on real threads: no slot may be lost, none held twice.
func TestHangUpAtTheInstantOfGrant(t *testing.T) {
	const callers = 8
	rounds := sampled(3000)
	c := crowd{gate: newGate(), key: semaphore("instant"), size: 2}
	var wg sync.WaitGroup
	for number := range callers {
		wg.Go(func() {
			for round := range rounds {
				c.visit(number, round)
			}
		})
	}
	wg.Wait()
	d := must(t, c.gate, c.key, gatehouse.Command{Op: gatehouse.OpStats})
	for _, stat := range d.Stats {
		if (stat.Name == "held" || stat.Name == "waiting") && stat.Value != int64(0) {
			t.Errorf("%s = %v after everybody left, want 0", stat.Name, stat.Value)
		}
	}
	if n := c.granted.Load(); n == 0 || n == int64(callers*rounds) {
		t.Errorf("%d of %d were granted: the test did not test what it should", n, callers*rounds)
	}
	if c.most.Load() > c.size || c.failed.Load() != 0 {
		t.Errorf("%d held at once, want at most %d; %d releases failed",
			c.most.Load(), c.size, c.failed.Load())
	}
}

// A crowd is callers who want slots of one semaphore.
type crowd struct {
	gate *gate.Gate
	key  gatehouse.Key
	size int64

	inside, most, granted, failed atomic.Int64
}

// visit acquires with a context that ends at about the time of the grant, for every other caller,
// and releases what it got.
func (c *crowd) visit(number, round int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if number%2 == 0 {
		go func() {
			for range round % 7 {
				_ = c.gate.Waiting() // a moment that differs from round to round
			}
			cancel()
		}()
		if round%16 == 0 {
			runtime.Gosched() // on a busy machine it might never come first otherwise
		}
	}
	cmd := acquire(fmt.Sprint(number, round))
	cmd.Size = c.size
	d, err := c.gate.Do(ctx, c.key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		return
	}
	if n := c.inside.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	c.granted.Add(1)
	c.inside.Add(-1)
	d, err = c.gate.Do(context.Background(), c.key, release(cmd.Holder))
	if err != nil || d.Outcome != gatehouse.Granted {
		c.failed.Add(1)
	}
}

// The same from the front's side: the answer is there, and cancel comes before, with, or after it.
func TestCancelRacesWithDone(t *testing.T) {
	g, key := newGate(), semaphore("race")
	for i := range 5000 {
		must(t, g, key, acquire("holder"))
		var told atomic.Int64
		r := &gate.Request{Key: key, Command: acquire("a"), Decided: func(*gate.Request) { told.Add(1) }}
		g.Submit(r)
		var wg sync.WaitGroup
		wg.Go(func() { must(t, g, key, release("holder")) })
		wg.Go(func() { g.Cancel(r) })
		wg.Wait()
		cmd := acquire("holder")
		cmd.MaxWait = 0
		d, err := g.Do(t.Context(), key, cmd)
		if err != nil || d.Outcome != gatehouse.Granted || told.Load() != 1 {
			t.Fatalf("round %d: the slot is lost: %s, %v; told %d times", i, d.Outcome, err, told.Load())
		}
		must(t, g, key, release("holder"))
	}
}

// A lateStore answers after Apply has returned, or just before.
type lateStore struct{ *memory.Store }

func (s lateStore) Apply(c *control.Change) { go s.Store.Apply(c) } // ends with its answer

// The same with a store whose answer comes on another goroutine, and before there is a line. The request is
// used again as soon as it is decided.
func TestCancelRacesWithALateAnswer(t *testing.T) {
	g, key := gate.New(lateStore{memory.New(memory.Config{})}, gate.Config{}), semaphore("race")
	told := make(chan struct{}, 2)
	r := &gate.Request{Key: key, Decided: func(*gate.Request) { told <- struct{}{} }}
	for i := range 5000 {
		r.Command = acquire("a")
		r.Command.MaxWait = [...]time.Duration{0, time.Microsecond, gatehouse.Forever}[i%3]
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.Do(t.Context(), key, release("nobody")) })
		g.Submit(r)
		for range i % 5 {
			runtime.Gosched()
		}
		g.Cancel(r)
		<-told
		wg.Wait()
		if err := g.Drain(t.Context()); err != nil || len(told) > 0 {
			t.Fatalf("round %d: %v, and it was answered %d times more, want 0", i, err, len(told))
		}
		next := acquire("next")
		next.MaxWait = 0
		must(t, g, key, next)
		must(t, g, key, release("next"))
	}
}

// Waiters that leave a barrier do not count, whenever they leave.
func TestBarrierCountsOnlyThoseWhoStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.Barrier, Name: "barrier"}
		wait := gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}, MaxWait: gatehouse.Forever,
		}
		for i := range 100 {
			cancel := submit(g, key, wait, l.done(fmt.Sprint("gone", i)))
			cancel()
		}
		short := wait
		short.MaxWait = time.Second
		submit(g, key, short, l.done("short"))
		time.Sleep(2 * time.Second)
		l.wantOrder(t, "short")
		submit(g, key, wait, l.done("a"))
		submit(g, key, wait, l.done("b"))
		l.wantOrder(t, "short")
		submit(g, key, wait, l.done("c"))
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
		wait := gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}, MaxWait: gatehouse.Forever,
		}
		submit(g, key, wait, l.done("early"))
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
