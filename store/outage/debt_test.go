package outage_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/outage"
)

// What was to be taken back while the store was away is, when it is back.
func TestUndoWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t, outage.Refuse, 1)
		g := gate.New(s, gate.Config{})
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "l"}
		held := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "gone"} // for ever
		answered := make(chan gatehouse.Decision, 1)
		cancel := g.Submit(lock, held, func(d gatehouse.Decision, _ error) { answered <- d })
		if d := <-answered; d.Outcome != gatehouse.Granted {
			t.Fatalf("the lock = %+v, want granted", d)
		}
		k.down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(5, 1))
		cancel() // the client is gone
		elapse(time.Second)
		k.down.Store(false)
		elapse(2 * time.Second)
		held.Holder = "next"
		if d, err := g.Do(t.Context(), lock, held); err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("after the store is back the next = %+v, %v, want granted", d, err)
		}
	})
}

// Who waited at a barrier when the store went away does not count there any more.
func TestBarrierWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t, outage.Refuse, 1)
		g := gate.New(s, gate.Config{})
		barrier := gatehouse.Key{Kind: gatehouse.Barrier, Name: "b"}
		wait := gatehouse.Command{Op: gatehouse.OpWait, Size: 3, MaxWait: time.Minute}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_, err := g.Do(t.Context(), barrier, wait)
				if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Errorf("who waits = %v, want unavailable", err)
				}
			})
		}
		elapse(500 * time.Millisecond)
		k.down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(5, 1)) // so that the line finds the breaker open
		all.Wait()
		k.down.Store(false)
		elapse(2 * time.Second)
		wait.MaxWait = time.Second
		if d, err := g.Do(t.Context(), barrier, wait); err != nil || d.Outcome != gatehouse.Refused {
			t.Errorf("one alone at a barrier for 3 = %+v, %v, want refused", d, err)
		}
	})
}
