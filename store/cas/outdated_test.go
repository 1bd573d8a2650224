package cas_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A server whose names are changed by another one each time reads a record before it changes it. It makes its
// changes at once where it has just had a reply, and for all names when it is alone again.
func TestReadsFirstWhatOthersChange(t *testing.T) {
	onPair(t, func(t *testing.T, _ *castest.Store, one, two *cas.Store) {
		const names = 20
		take := func(s *cas.Store, name int) {
			key := named(gatehouse.TokenBucket, fmt.Sprint("n", name))
			cmd := &gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1000, Interval: time.Hour}, Cost: 1,
			}
			d, err := applyTurn(s, key, control.Turn{Command: cmd})
			if err != nil || d.Outcome != gatehouse.Granted {
				t.Fatalf("%s: %s, %v", key, d.Outcome, err)
			}
		}
		takeAll := func(s *cas.Store) {
			for name := range names {
				take(s, name)
			}
			pass(time.Second)
		}
		// want compares what is asked of the store meanwhile: reads, changes, conflicts.
		want := func(what string, want [3]uint64, meanwhile func()) {
			t.Helper()
			before := one.Stats()
			meanwhile()
			after := one.Stats()
			got := [3]uint64{
				after.Reads - before.Reads, after.Swaps - before.Swaps, after.Conflicts - before.Conflicts,
			}
			if got != want {
				t.Errorf("%s: %d reads, changes and conflicts, want %d", what, got, want)
			}
		}
		takeAll(one)
		takeAll(two)
		want("the first time that all were changed", [3]uint64{0, 2 * names, names}, func() { takeAll(one) })
		for range 12 {
			takeAll(two)
			takeAll(one)
		}
		takeAll(two)
		want("when all were changed each time", [3]uint64{names, names, 0}, func() { takeAll(one) })
		want("at one name at once", [3]uint64{1, 3, 0}, func() {
			take(one, 0)
			take(one, 0)
			take(one, 0)
		})
		pass(time.Second)
		takeAll(one)
		takeAll(one)
		want("alone", [3]uint64{0, names, 0}, func() { takeAll(one) })
	})
}
