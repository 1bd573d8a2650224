package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A watched store counts what it was told of a store that forgets or whose clock is set.
type watched struct {
	*cas.Store
	lost  []gatehouse.Key
	steps []time.Duration
}

func watch(store *castest.Store) *watched {
	w := &watched{}
	w.Store = cas.New(store.Server(0), cas.Config{
		Server: 1, Vanished: func(key gatehouse.Key) { w.lost = append(w.lost, key) },
		ClockSet: func(by time.Duration) { w.steps = append(w.steps, by) },
	})
	return w
}

func held(length time.Duration) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "a", Cost: 1, Rule: gatehouse.Rule{Size: 1}, Expires: length,
	}
}

// apply applies one command and sees what was lost by then.
func (w *watched) apply(t *testing.T, name string, cmd gatehouse.Command, lost int) {
	t.Helper()
	if _, err := applyOne(w.Store, named(gatehouse.Lock, name), cmd); err != nil {
		t.Fatal(err)
	}
	if len(w.lost) != lost || w.Stats().Vanished != uint64(lost) {
		t.Errorf("after %s of %s the lost records are %v, %d by the figures; want %d",
			cmd.Op, name, w.lost, w.Stats().Vanished, lost)
	}
}

// A record that the store forgets is counted when this server asks for it within a minute; one whose time was
// over, or that another server deleted, is not.
func TestVanishedRecordsAreCounted(t *testing.T) {
	for _, leases := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := castest.New(1, leases)
			w := watch(store)
			defer w.Close()
			stats := gatehouse.Command{Op: gatehouse.OpStats}
			w.apply(t, "a", held(time.Hour), 0)
			w.apply(t, "b", held(gatehouse.MaxDuration), 0)
			w.apply(t, "short", held(2*time.Second), 0)
			store.Restart(gatehouse.Forever)
			w.apply(t, "a", held(time.Hour), 1)
			w.apply(t, "a", stats, 1)
			pass(40 * time.Second)
			w.apply(t, "b", stats, 2)
			pass(20 * time.Minute)
			w.apply(t, "short", stats, 2)
		})
	}
}

func TestDeletedRecordsHaveNotVanished(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 59 * time.Second, 61 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := castest.New(1, false)
			w := watch(store)
			defer w.Close()
			other := cas.New(store.Server(0), cas.Config{Server: 2})
			defer other.Close()
			w.apply(t, "a", held(2*time.Hour), 0)
			pass(10 * time.Second)
			key := named(gatehouse.Lock, "a")
			if _, err := applyOne(other, key, gatehouse.Command{Op: gatehouse.OpDelete}); err != nil {
				t.Fatal(err)
			}
			pass(after)
			w.apply(t, "a", gatehouse.Command{Op: gatehouse.OpStats}, 0)
		})
	}
}

// A step of the store's clock is counted once. Forward it ends what is held early, back it lengthens it.
func TestStepsOfTheClockAreCounted(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, 2 * time.Second, -2 * time.Second, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := castest.New(1, false)
			w := watch(store)
			defer w.Close()
			w.apply(t, "a", held(30*time.Minute), 0)
			pass(time.Minute)
			store.Jump(step)
			for range 3 {
				w.apply(t, "other", held(time.Hour), 0)
				pass(time.Second)
			}
			if len(w.steps) != 1 || (w.steps[0]-step).Abs() > time.Second || w.Stats().ClockSteps != 1 {
				t.Errorf("the clock was set by %s, and the steps are %v", step, w.steps)
			}
			pass(10 * time.Minute)
			other := held(time.Hour)
			other.Holder = "b"
			d, err := applyOne(w.Store, named(gatehouse.Lock, "a"), other)
			if granted := d.Outcome == gatehouse.Granted; err != nil || granted != (step == time.Hour) {
				t.Errorf("the clock was set by %s: after 11 of 30 minutes another acquire = %s, %v",
					step, d.Outcome, err)
			}
		})
	}
}
