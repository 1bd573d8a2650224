package breaker_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// twoSlots is a command for a grant of a slot of each of two semaphores.
func twoSlots(id string) *gatehouse.GrantCommand {
	cmd := &gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Hour}
	for _, name := range []string{"a", "b"} {
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key: gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}, Cost: 1, Rule: gatehouse.Rule{Size: 1},
		})
	}
	return cmd
}

// applyParts puts parts to a breaker, and tells how long it took.
func applyParts(b *breaker.Breaker, parts []control.Part) (granted bool, took time.Duration, err error) {
	began, done := time.Now(), make(chan error, 1)
	c := &control.JointChange{Parts: parts, Done: func(err error) { done <- err }}
	b.ApplyJoint(c)
	err = <-done
	return c.Granted, time.Since(began), err
}

// A grant that is not answered opens the breaker as a command does, and costs nothing while that is open. One
// that is to be taken back meanwhile is taken back when the store is there again.
func TestGrantsAtABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := castest.New(1, false)
		store := cas.New(shared.Server(0), cas.Config{Server: 1})
		defer store.Close()
		var calls atomic.Int64
		b := breaker.New(store, breaker.Config{Observe: func(time.Duration) { calls.Add(1) }})
		defer b.Close()
		var first, second control.GrantParts
		first.Acquire(twoSlots("first"))
		if granted, _, err := applyParts(b, first.Parts); err != nil || !granted || calls.Load() != 1 {
			t.Fatalf("a grant = %t, %v, observed %d times", granted, err, calls.Load())
		}
		shared.Set(castest.Faults{LostRequest: 1, Silent: 1})
		second.Acquire(twoSlots("second"))
		if _, took, err := applyParts(b, second.Parts); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
			took < budget*9/10 {
			t.Fatalf("the first grant without the store: %v after %s", err, took)
		}
		if _, took, err := applyParts(b, second.Parts); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
			took != 0 {
			t.Fatalf("a grant at an open breaker: %v after %s, want an error at once", err, took)
		}
		first.Undo()
		if _, took, err := applyParts(b, first.Parts); err == nil || took != 0 {
			t.Fatalf("an undo at an open breaker: %v after %s, want an error at once", err, took)
		}
		first = control.GrantParts{} // its caller uses it for something else
		shared.Set(castest.Faults{})
		<-time.After(5 * time.Second)
		second.Acquire(twoSlots("second"))
		if granted, _, err := applyParts(b, second.Parts); err != nil || !granted {
			t.Errorf("after the undo: granted %t, %v, want that it has made room", granted, err)
		}
	})
}
