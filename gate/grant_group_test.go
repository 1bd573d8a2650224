package gate_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// Grants that want the same leave their lines at the same time. None of them stays behind in one.
func TestGrantsThatWantTheSameLeaveTogether(t *testing.T) {
	g := newGate()
	var names []string
	for i := range gatehouse.MaxMembers {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	mustGrant(t, g, wants("held", names...))
	nothing := func(gatehouse.Decision, error) {}
	// It keeps the lines there, and wants others than those that leave.
	defer submitGrant(g, wants("stays", append(names[1:], "other")...), nothing)()
	for i := range 300 {
		var cancels [3]func()
		for j := range cancels {
			cancels[j] = submitGrant(g, wants(fmt.Sprintf("%d-%d", i, j), names...), nothing)
		}
		var leaving sync.WaitGroup
		for _, cancel := range cancels {
			leaving.Go(cancel)
		}
		leaving.Wait()
		firsts, grants := gate.Firsts(g, semaphore(names[1]))
		if firsts != 1 || grants != 1 {
			t.Fatalf("round %d: the line has %d grants, and %d firsts, want 1 of each", i, grants, firsts)
		}
	}
}
