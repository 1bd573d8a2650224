package simulate

import (
	"strings"
	"testing"
)

// tree is three levels in calm, for what the tests let happen to it.
const tree = `title: a tree
duration: 300s
measure: 100s
resource:
  capacity: 500
  safe_capacity: 2
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 8}
network: {delay: 5ms to 50ms}
servers:
  - {name: root}
  - {name: region, count: 3}
  - {name: datacentre, count: 2}
clients:
  - {of: datacentre, recipe: 5x30+random_change(5%), every: 10s, minimum_refresh: 2s}
`

// runTree runs the tree with events and expectations, over a few seeds.
func runTree(t *testing.T, lines ...string) {
	t.Helper()
	text := tree + strings.Join(lines, "\n") + "\n"
	s, err := Read("tree.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(1); seed <= 5; seed++ {
		if r := Run(s, seed); !r.Holds() {
			t.Errorf("seed %d:\n%s\n%s", seed, text, r.Text())
		}
	}
}

// A new root knows nothing. The servers below tell it what their clients hold, and it repeats that.
func TestTreeKeepsItsLeasesWhenTheRootRestarts(t *testing.T) {
	runTree(t, "events:", "  - {at: 120s, do: crash, node: root, for: 20s}",
		"expect:", "  - over from 0s == 0", "  - lowest from 120s to 190s >= 95%", "  - handed_out >= 97%")
}

// Whoever follows a master has its name at the parent, and so its capacity.
func TestTreeKeepsItsLeasesWhenAServerInItRestarts(t *testing.T) {
	runTree(t, "events:", "  - {at: 120s, do: crash, node: region-1, for: 20s}",
		"  - {at: 200s, do: election, node: datacentre-5}",
		"expect:", "  - over from 0s == 0", "  - lowest from 120s >= 90%", "  - handed_out >= 97%")
}

// Leases of clients end with the lease of their server at the latest: when that server has lost its
// parent, its clients hold nothing that the root has given to others.
func TestNoLeaseOutlivesThatOfTheServerAboveIt(t *testing.T) {
	runTree(t, "events:", "  - {at: 120s, do: partition, node: region-1, for: 120s}",
		"expect:", "  - over from 0s == 0", "  - handed_out from 200s to 240s >= 97%",
		"  - safe_peak <= 105%") // 10 clients with a safe capacity of 2, on top of 500
}

// The first answer of the root goes down the tree in seconds, not in one refresh interval for each level.
func TestTreeIsServedSoonAfterLearning(t *testing.T) {
	runTree(t, "expect:", "  - first_lease from 0s <= 72s", "  - lowest from 75s >= 95%")
}

// What is wanted in one corner of a tree comes from all others within a few refresh intervals.
func TestDemandMovesThroughTheTree(t *testing.T) {
	runTree(t, "events:", "  - {at: 150s, do: spike, clients: 2, to: 1000}",
		"  - {at: 220s, do: leave, clients: 30%}",
		"expect:", "  - over from 0s == 0", "  - settled from 150s <= 30s", "  - handed_out >= 98%")
}

// Clients that began together drift apart, so that a server is not asked by all at once.
func TestClientsThatBeganTogetherDriftApart(t *testing.T) {
	text := strings.Replace(calm, "3x40", "1000x1", 1)
	s, err := Read("calm.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(s, 1)
	w.runEvents()
	slots := make(map[int64]int) // of 100 ms each, how many clients ask next
	most := 0
	for _, c := range w.clients {
		slot := c.wakeAt.Milliseconds() / 100
		slots[slot]++
		most = max(most, slots[slot])
	}
	if most > 60 { // 1,000 over 5 s are 20 in each
		t.Errorf("%d of 1,000 clients ask within the same 100 ms, want 60 at most", most)
	}
}
