package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// offer puts somebody who waits at the front of a line to a store.
func offer(t *testing.T, s *cas.Store, turn *control.Turn) (granted bool) {
	t.Helper()
	queue := []control.Turn{*turn}
	change := control.Change{Key: named(gatehouse.TokenBucket, "b"), Turns: queue}
	if err := change.ApplyTo(s); err != nil {
		t.Fatal(err)
	}
	if d := &queue[0].Decision; d.Outcome == gatehouse.Refused && !turn.Again {
		turn.Again, turn.Since = true, d.At
	}
	return queue[0].Decision.Outcome == gatehouse.Granted
}

// Somebody who has left a line without the store hearing of it, because something in front of it had an
// answer for him while the store was away, does not stand in the way of other servers.
func TestWhoLeavesUnheardIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := castest.New(1, false)
		var servers [2]*cas.Store
		for i := range servers {
			servers[i] = cas.New(store.Server(0), cas.Config{Server: uint32(i + 1)})
			stop := servers[i].Watch(named(gatehouse.TokenBucket, "b"), func() {})
			t.Cleanup(func() {
				stop()
				servers[i].Close()
			})
		}
		one, two := servers[0], servers[1]
		waiter := func(server uint32, ticket control.Ticket) *control.Turn {
			return &control.Turn{Ticket: cas.FirstTicket(server) + ticket, Command: &gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: 3 * time.Second}, Cost: 1,
				MaxWait: gatehouse.Forever,
			}}
		}
		if !offer(t, one, waiter(1, 1)) {
			t.Fatal("a new bucket is empty")
		}
		leaves, first, second := waiter(1, 2), waiter(2, 1), waiter(1, 3)
		for _, w := range []*control.Turn{leaves, first} {
			if offer(t, servers[uint32(w.Ticket>>32)-1], w) {
				t.Fatal("an empty bucket gives something")
			}
			pass(time.Millisecond)
		}
		second.Ahead = 1
		offer(t, one, second)
		second.Ahead = 0
		for range 20 {
			pass(500 * time.Millisecond)
			if offer(t, one, second) {
				t.Fatal("the second has gone before the first")
			}
			if offer(t, two, first) {
				return
			}
		}
		t.Error("the first has not gone after 10s")
	})
}
