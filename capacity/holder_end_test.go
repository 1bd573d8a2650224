package capacity_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// TestHolderGivesBackWhatMayBeGranted: a request whose answer never came may have been granted all the same.
func TestHolderGivesBackWhatMayBeGranted(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	h.asks("a 3 0")
	h.Failed(h.now)
	if !h.Drop("a") {
		t.Error("Drop of what a server was asked for in vain = false, want true")
	}
}

// TestHolderKnowsWhenLeasesEnd: apart from when it will ask again, for who cannot ask now.
func TestHolderKnowsWhenLeasesEnd(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	h.Want("b", 0, 3)
	h.asks("a 3 0", "b 3 0")
	if !h.Ends().IsZero() {
		t.Errorf("Ends without a lease = %s, want never", h.Ends())
	}
	short, long := grant(h.now, "a", 3, 20*time.Second), grant(h.now, "b", 3, 40*time.Second)
	h.Answered(h.now, []capacity.Grant{long, short})
	h.ticks("a 3 true", "b 3 true")
	for _, want := range []time.Duration{20 * time.Second, 40 * time.Second} {
		if got := h.Ends().Sub(time.Unix(noon, 0)); got != want {
			t.Errorf("Ends = after %s, want after %s", got, want)
		}
		h.at(want)
		h.Tick(h.now)
	}
	if !h.Ends().IsZero() {
		t.Errorf("Ends after the last lease = %s, want never", h.Ends())
	}
}
