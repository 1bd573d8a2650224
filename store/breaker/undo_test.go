package breaker_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/breaker"
)

// What was to be taken back while the store was away is, when it is back.
func TestUndoWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		g := gate.New(s, gate.Config{})
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "l"}
		held := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "gone"} // for ever
		answered := make(chan *gatehouse.Decision, 1)
		r := &gate.Request{Key: lock, Command: held, Decided: func(r *gate.Request) {
			answered <- r.Decision
		}}
		g.Submit(r)
		if d := <-answered; d.Outcome != gatehouse.Granted {
			t.Fatalf("the lock = %+v, want granted", d)
		}
		remote.Down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(5))
		g.Cancel(r) // the client is gone
		time.Sleep(time.Second)
		remote.Down.Store(false)
		time.Sleep(2 * time.Second)
		held.Holder = "next"
		if d, err := g.Do(t.Context(), lock, held); err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("after the store is back the next = %+v, %v, want granted", d, err)
		}
	})
}

// Who waited at a barrier when the store went away does not count there any more.
func TestBarrierWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		g := gate.New(s, gate.Config{})
		barrier := gatehouse.Key{Kind: gatehouse.Barrier, Name: "b"}
		wait := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}, MaxWait: time.Minute}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_, err := g.Do(t.Context(), barrier, wait)
				if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Errorf("who waits = %v, want unavailable", err)
				}
			})
		}
		time.Sleep(400 * time.Millisecond)
		remote.Down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(5)) // so that the line finds the breaker open
		all.Wait()
		remote.Down.Store(false)
		time.Sleep(2 * time.Second)
		wait.MaxWait = time.Second
		if d, err := g.Do(t.Context(), barrier, wait); err != nil || d.Outcome != gatehouse.Refused {
			t.Errorf("one alone at a barrier for 3 = %+v, %v, want refused", d, err)
		}
	})
}

// A store that goes away again while it is put what is owed is noticed, and told last; what is still owed
// then is put to it when it is back once more.
func TestAwayAgainWhileDebtsArePaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []error
		remote := newRemoteStore()
		s := breaker.New(remote, breaker.Config{
			Changed: func(err error) { changes = append(changes, err) },
		})
		t.Cleanup(s.Close)
		const locks = 20
		undos := make([]control.Turn, locks)
		for i := range undos {
			held := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "gone"}
			d, _, err := ask(s, lock(i), held)
			if err != nil || d.Outcome != gatehouse.Granted {
				t.Fatalf("lock %d = %+v, %v, want granted", i, d, err)
			}
			undos[i] = control.UndoOf(&control.Turn{Command: &held}, &d)
		}
		remote.Down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(5))
		for i := range undos {
			_ = (&control.Change{Key: lock(i), Turns: undos[i : i+1]}).ApplyTo(s)
		}
		remote.Down.Store(false)
		remote.Delay.Store(int64(100 * time.Millisecond)) // so that undos take a while
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if len(changes) != 2 || changes[1] != nil {
			t.Fatalf("after the store is back it was told %v, want that it is back", changes)
		}
		remote.Delay.Store(0)
		remote.Down.Store(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if since, err := s.Away(); err == nil || time.Since(since) < 4*time.Second {
			t.Errorf("the store is away since %s, %v, want it noticed", since, err)
		}
		if len(changes) != 3 || changes[2] == nil {
			t.Errorf("it was told %v, want last that the store is away", changes)
		}
		remote.Down.Store(false)
		time.Sleep(2 * time.Second)
		free := 0
		for i := range locks {
			next := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "next"}
			if d, _, err := ask(s, lock(i), next); err == nil && d.Outcome == gatehouse.Granted {
				free++
			}
		}
		if free < locks-1 { // the one that failed meanwhile is the store's to remember
			t.Errorf("%d locks of %d are free, want all but one", free, locks)
		}
	})
}

func lock(i int) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Lock, Name: strconv.Itoa(i)}
}
