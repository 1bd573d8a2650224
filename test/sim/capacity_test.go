package sim_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/simulate"
)

// happenings are what becomes of servers and clients of capacity leases.
var happenings = []string{
	"do: lose, node: any", "do: crash, node: any", "do: restart, node: any", "do: partition, node: any",
	"do: crash, node: root", "do: lose, node: root", "do: leave, clients: 2", "do: vanish, clients: 2",
	"do: spike, clients: 2, to: 1000",
}

// capacity plays servers and clients of capacity leases, from the same seed: the leases of all clients
// together are at most the capacity. Where answers are lost, one that took something back may be, so that
// there may be more until its client asks again, for a moment and up to twice; where none is, never.
func (c *cluster) capacity() {
	rng := source(c.seed, 2)
	text := scenario(rng, c.seed%3 == 0)
	s, err := simulate.Read("drawn.yaml", []byte(text))
	if err != nil {
		c.violated("capacity", gatehouse.Key{}, "%v in\n%s", err, text)
		return
	}
	if r := simulate.Run(s, c.seed); !r.Holds() {
		c.violated("capacity", gatehouse.Key{}, "%s\n%s", r.Text(), text)
	}
}

// scenario draws one, as a file.
func scenario(rng *rand.Rand, loss bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	among := func(least, most int) int { return least + rng.IntN(most-least+1) }
	lease := among(20, 60)
	line("title: drawn by lot\nduration: 20m\nmeasure: %ds", 2*lease)
	line("resource:\n  capacity: %d\n  safe_capacity: 0", among(100, 500))
	line("  algorithm: {kind: %s, lease_length: %d, refresh_interval: %d, learning_mode_duration: %d}",
		[]string{"FAIR_SHARE", "PROPORTIONAL_SHARE"}[rng.IntN(2)], lease, among(2, lease/3), lease)
	network, want := "", "over == 0"
	if loss {
		network, want = fmt.Sprintf(", loss: %d%%", among(1, 3)), "peak <= 200%"
	}
	line("network: {delay: 1ms to %dms%s}", among(2, 300), network)
	line("servers:\n  - {name: root, tasks: %d}", among(1, 3))
	below := "root"
	if rng.IntN(2) == 0 {
		below = "region"
		line("  - {name: region, count: %d, tasks: 1}", among(1, 3))
	}
	line("clients:\n  - {of: %s, recipe: %dx%d+random_change(%d%%), every: %ds}",
		below, among(2, 8), among(10, 150), among(1, 50), among(5, 30))
	line("events:")
	for at := among(1, 100); at < 1100; at += among(50, 200) {
		line("  - {at: %ds, for: %ds, %s}", at, among(1, 60), happenings[rng.IntN(len(happenings))])
	}
	line("expect:\n  - %s", want)
	return b.String()
}
