package gate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// ownedGrant is a grant for somebody.
func ownedGrant(id, owner string, names ...string) gatehouse.GrantCommand {
	cmd := wants(id, names...)
	cmd.Owner = &gatehouse.Owner{Name: owner}
	return cmd
}

// TestGrantsAreTold: a hold of a grant is told with its owner and its grant, and a grant that waits has its
// place among the others.
func TestGrantsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("a"), newLog()
		mustGrant(t, g, ownedGrant("op-1", "G", "a", "b"))
		r := must(t, g, key, gatehouse.Command{Op: gatehouse.OpHolders}).Report
		if len(r.Holders) != 1 || r.Holders[0].Grant != "op-1" || r.Holders[0].Owner.Name != "G" {
			t.Errorf("holders are %+v, want the grant", r.Holders)
		}
		submit(g, key, owned("x", "X"), l.done("x"))
		time.Sleep(time.Second)
		submitGrant(g, ownedGrant("op-2", "H", "a", "b"), l.done("op-2"))
		time.Sleep(time.Second)
		submit(g, key, owned("y", "Y"), l.done("y"))
		synctest.Wait()
		list, _ := waitersOf(t, g, key, gatehouse.Command{})
		if want := "1 X 2s, 2 H 1s, 3 Y 0s of 3"; list != want {
			t.Errorf("waiters are %q, want %q", list, want)
		}
		bumped(t, g, key, 3)
		list, _ = waitersOf(t, g, key, gatehouse.Command{})
		if want := "1 Y 0s, 2 X 2s, 3 H 1s of 3"; list != want {
			t.Errorf("waiters are %q, want %q", list, want)
		}
		mustGrant(t, g, ends("op-1"))
		l.wantOrder(t, "y")
		must(t, g, key, release("y"))
		l.wantOrder(t, "y", "x")
		must(t, g, key, release("x"))
		l.wantOrder(t, "y", "x", "op-2")
		mustGrant(t, g, ends("op-2"))
		wantIdle(t, g, "a", "b")
	})
}

// TestBumpBeforeAGrant: who is bumped goes before a grant that came first.
func TestBumpBeforeAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("a"), newLog()
		must(t, g, key, acquire("first"))
		submitGrant(g, wants("op", "a", "b"), l.done("op"))
		time.Sleep(time.Second)
		submit(g, key, owned("x", "X"), l.done("x"))
		synctest.Wait()
		bumped(t, g, key, 2)
		must(t, g, key, release("first"))
		l.wantOrder(t, "x")
		must(t, g, key, release("x"))
		l.wantOrder(t, "x", "op")
		mustGrant(t, g, ends("op"))
		wantIdle(t, g, "a", "b")
	})
}

// TestOperatorsAndGrants: the grant whose hold is evicted is not renewed, and one that wants a closed name
// waits until that is opened.
func TestOperatorsAndGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("a"), newLog()
		fence := mustGrant(t, g, wants("op-1", "a", "b")).Fence
		must(t, g, key, gatehouse.Command{
			Op: gatehouse.OpEvict, Fence: fence, Message: "drained", Owner: &gatehouse.Owner{Name: "ops"},
		})
		renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "op-1", Expires: gatehouse.AsAcquired}
		d, err := g.DoGrant(t.Context(), renew)
		why := strings.Contains(d.Message, "evicted by ops: drained")
		if err != nil || d.Outcome != gatehouse.Conflict || !why {
			t.Errorf("a renewal is %s %q, %v, want a conflict that says why", d.Outcome, d.Message, err)
		}
		must(t, g, key, gatehouse.Command{Op: gatehouse.OpClose, Message: "maintenance"})
		mustGrant(t, g, ends("op-1"))
		once := wants("op-2", "a", "b")
		once.MaxWait = 0
		d, err = g.DoGrant(t.Context(), once)
		if err != nil || d.Outcome != gatehouse.Refused || !strings.Contains(d.Want[0].Message, "is closed") {
			t.Errorf("a grant of a closed name is %s %+v, %v, want it refused", d.Outcome, d.Want, err)
		}
		submitGrant(g, wants("op-3", "a", "b"), l.done("op-3"))
		// It waits at b too, and keeps nobody from that.
		must(t, g, semaphore("b"), acquire("z"))
		must(t, g, semaphore("b"), release("z"))
		time.Sleep(time.Minute)
		l.wantOrder(t)
		must(t, g, key, gatehouse.Command{Op: gatehouse.OpOpen})
		l.wantOrder(t, "op-3")
		mustGrant(t, g, ends("op-3"))
		wantIdle(t, g, "a", "b")
	})
}
