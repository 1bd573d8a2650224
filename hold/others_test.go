package hold_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/hold"
)

func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := hold.Event(newGate(), "build")
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Wait(soon); gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Errorf("a wait for nothing = %v, want a timeout", err)
		}
		if err := e.Send(t.Context(), "green"); err != nil {
			t.Error(err)
		}
		if message, err := e.Wait(t.Context()); err != nil || message != "green" {
			t.Errorf("wait = %q, %v", message, err)
		}
		if err := e.Send(t.Context(), "red"); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("a second send = %v, want it invalid", err)
		}
	})
}

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hold.Barrier(newGate(), "start", 3)
		ended := make(chan error)
		for range 3 {
			go func() { ended <- b.Wait(t.Context()) }()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := hold.Watchdog(newGate(), "nightly", time.Minute)
		began := time.Now()
		if err := w.Kick(t.Context()); err != nil {
			t.Error(err)
		}
		if err := w.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("it fired %v after %s, want a minute", err, time.Since(began))
		}
	})
}

func TestCounter(t *testing.T) {
	c := hold.Counter(newGate(), "visits")
	if value, err := c.Value(t.Context()); err != nil || value != 0 {
		t.Errorf("value of a new counter = %d, %v", value, err)
	}
	if value, err := c.Add(t.Context(), 3); err != nil || value != 3 {
		t.Errorf("add = %d, %v", value, err)
	}
	if err := c.Reset(t.Context(), -1); err != nil {
		t.Error(err)
	}
	if value, err := c.Value(t.Context()); err != nil || value != -1 {
		t.Errorf("value = %d, %v", value, err)
	}
}

// Several names are acquired at once, and released at once.
func TestGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		repo := gatehouse.Key{Kind: gatehouse.Lock, Name: "repo"}
		handle := hold.Grant(g, gatehouse.Member{Key: repo, Cost: 1},
			gatehouse.Member{
				Key:  gatehouse.Key{Kind: gatehouse.Semaphore, Name: "builders"},
				Rule: gatehouse.Rule{Size: 4}, Cost: 2,
			})
		first := mustAcquire(t, handle)
		if _, ok, err := handle.TryAcquire(t.Context()); ok || err != nil {
			t.Errorf("the second is granted at once: %t, %v", ok, err)
		}
		time.Sleep(time.Hour)
		if err := first.Err(); err != nil || first.Fence() == 0 {
			t.Errorf("after an hour: %v", err)
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		second := mustAcquire(t, handle)
		if err := second.Release(); err != nil || second.Fence() <= first.Fence() {
			t.Errorf("release = %v, fence %d after %d", err, second.Fence(), first.Fence())
		}
	})
}

// An estimate is reserved, more is taken, and what was not spent is given back.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		tokens := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "tokens"}
		b := hold.Budget(g, gatehouse.Member{
			Key: tokens, Rule: gatehouse.Rule{Size: 1000, Interval: time.Hour}, Cost: 600,
		})
		cost := func(n int64) gatehouse.MemberCost { return gatehouse.MemberCost{Key: tokens, Cost: n} }
		call, err := b.Reserve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := call.TopUp(t.Context(), cost(300)); !ok || err != nil {
			t.Errorf("top-up = %t, %v", ok, err)
		}
		if ok, err := call.TopUp(t.Context(), cost(300)); ok || err != nil {
			t.Errorf("a top-up beyond the limit = %t, %v, want it refused", ok, err)
		}
		if err := call.Settle(t.Context(), cost(700)); err != nil {
			t.Error(err)
		}
		if err := call.Release(cost(250)); err != nil {
			t.Error(err)
		}
		if err := call.Settle(t.Context(), cost(1)); err == nil {
			t.Log("a settle behind the release goes nowhere")
		}
		all, err := b.Reserve(t.Context(), cost(750))
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Release(); err != nil {
			t.Error(err)
		}
		other := gatehouse.MemberCost{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "x"}, Cost: 1}
		if _, err := b.Reserve(t.Context(), other); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("a cost of another limit = %v, want it invalid", err)
		}
	})
}
