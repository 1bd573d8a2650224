package cas_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// applyTurn puts one turn to a store.
func applyTurn(s *cas.Store, key gatehouse.Key, turn control.Turn) (gatehouse.Decision, error) {
	queue := []control.Turn{turn}
	err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s)
	return queue[0].Decision, err
}

// An undo whose answer was lost is not done a second time later, however much has changed at the name
// meanwhile: a hold that three share is still there when two of them have gone.
func TestUndoIsDoneOnce(t *testing.T) {
	for name, leases := range map[string]bool{"redis": false, "etcd": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { undoOnce(t, castest.New(1, leases)) })
		})
	}
}

func undoOnce(t *testing.T, store *castest.Store) {
	t.Helper()
	one := cas.New(store.Server(0), cas.Config{Server: 1})
	two := cas.New(store.Server(0), cas.Config{Server: 2})
	defer one.Close()
	defer two.Close()
	mustTurn := func(s *cas.Store, turn control.Turn) gatehouse.Decision {
		t.Helper()
		d, err := applyTurn(s, named(gatehouse.Semaphore, "s"), turn)
		if err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("%s by %s = %+v, %v", turn.Op, turn.Holder, d, err)
		}
		return d
	}
	must := func(s *cas.Store, cmd gatehouse.Command) gatehouse.Decision {
		t.Helper()
		return mustTurn(s, control.Turn{Command: &cmd})
	}
	shared := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "shared", Rule: gatehouse.Rule{Size: 100}, Cost: 1,
	}
	must(one, shared)
	must(one, shared)
	d := must(one, shared)
	undo := control.UndoOf(&control.Turn{Command: &shared}, &d)

	store.Set(castest.Faults{LostAnswer: 1, Silent: 1})
	if _, err := applyTurn(one, named(gatehouse.Semaphore, "s"), undo); err == nil {
		t.Fatal("an answer was not lost")
	}
	store.Set(castest.Faults{})
	for i := range 10 {
		other := shared
		other.Holder = fmt.Sprint("other", i)
		must(two, other)
	}
	pass(5 * time.Second)
	if n := one.PendingUndos(); n > 0 {
		t.Fatalf("%d undos are owed", n)
	}
	holders := func() any {
		t.Helper()
		for _, s := range must(two, gatehouse.Command{Op: gatehouse.OpStats}).Stats {
			if s.Name == "holders" {
				return s.Value
			}
		}
		return nil
	}
	mustTurn(one, undo)
	if n := holders(); n != int64(11) {
		t.Errorf("%v holders with one of three who share a hold, want it there: 11", n)
	}
	mustTurn(one, undo)
	if n := holders(); n != int64(10) {
		t.Errorf("%v holders after all three have gone, want 10", n)
	}
}

// In an outage no more is remembered than a limit, however long it lasts.
func TestOwedHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := castest.New(1, false).Server(0)
		s := cas.New(backend, cas.Config{Server: 1})
		defer s.Close()
		backend.Cut(true)
		const limit, batch = 10_000, 4000
		for round := range 6 {
			queue := make([]control.Turn, batch)
			for i := range queue {
				queue[i] = control.Turn{
					Command: &gatehouse.Command{Op: gatehouse.OpUndo, Holder: fmt.Sprint(i)},
					Granted: &gatehouse.Decision{Fence: 1},
				}
			}
			change := control.Change{Key: named(gatehouse.Lock, fmt.Sprint(round)), Turns: queue}
			if change.ApplyTo(s) == nil {
				t.Fatal("a store that is cut off has answered")
			}
			if n := s.PendingUndos(); n > limit {
				t.Fatalf("%d undos are owed after %d failed, want at most %d", n, (round+1)*batch, limit)
			}
		}
	})
}
