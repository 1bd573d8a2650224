package simulate

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What clients do, and what servers suffer. Clients are not cut off: an answer that takes something back may
// get lost then, which is the one way to have more than there is.
var (
	changing = []string{
		"do: spike, clients: 2, to: 1000", "do: spike, clients: 1, to: 0",
		"do: leave, clients: 2", "do: vanish, clients: 2",
	}
	suffering = []string{
		"do: lose, node: any", "do: crash, node: any", "do: restart, node: any", "do: partition, node: any",
		"do: lose, node: s0", "do: crash, node: s0",
	}
)

// draw makes a scenario, as a file, in which some of the events happen. No message gets lost.
func draw(t *rapid.T, events []string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	lease := rapid.IntRange(10, 60).Draw(t, "lease")
	line("title: drawn by lot")
	line("duration: 240s")
	line("resource:")
	line("  capacity: %d", rapid.IntRange(0, 500).Draw(t, "capacity"))
	line("  safe_capacity: 0")
	kind := rapid.SampledFrom([]string{"FAIR_SHARE", "PROPORTIONAL_SHARE"}).Draw(t, "kind")
	line("  algorithm:")
	line("    kind: %s", kind)
	line("    lease_length: %d", lease)
	line("    refresh_interval: %d", rapid.IntRange(1, lease/2).Draw(t, "refresh"))
	line("    learning_mode_duration: %d", lease)
	if rapid.Bool().Draw(t, "strict") {
		line("    parameters: [{name: priority, value: strict}]")
	}
	line("network: {delay: 1ms to %dms}", rapid.IntRange(1, 900).Draw(t, "delay"))
	line("servers:")
	line("  - {name: s0, tasks: %d}", rapid.IntRange(1, 2).Draw(t, "tasks"))
	levels := rapid.IntRange(1, 3).Draw(t, "levels")
	for i := 1; i < levels; i++ {
		line("  - {name: s%d, count: %d, tasks: 1}", i, rapid.IntRange(1, 2).Draw(t, "count"))
	}
	line("clients:")
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		line("  - {of: s%d, recipe: %dx%d+random_change(%d%%), every: %ds, priority: %d, start: 0s to %ds}",
			rapid.IntRange(0, levels-1).Draw(t, "of"), rapid.IntRange(1, 4).Draw(t, "clients"),
			rapid.IntRange(0, 200).Draw(t, "wants"), rapid.IntRange(0, 90).Draw(t, "change"),
			rapid.IntRange(1, 30).Draw(t, "every"), rapid.IntRange(0, 3).Draw(t, "priority"),
			rapid.IntRange(0, 100).Draw(t, "start"))
	}
	line("events:")
	for range rapid.IntRange(1, 6).Draw(t, "events") {
		at := rapid.IntRange(0, 239).Draw(t, "at")
		lasts := rapid.IntRange(1, 90).Draw(t, "for")
		event := rapid.SampledFrom(events).Draw(t, "event")
		line("  - {at: %ds, for: %ds, %s}", at, lasts, event)
	}
	line("expect:\n  - over == 0")
	return b.String()
}

// TestLeasesNeverExceedTheCapacity tries trees of all shapes in which wants change, and clients come
// and go. Whatever happens, the leases of all clients together are at most the capacity, at every instant.
func TestLeasesNeverExceedTheCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { neverOver(t, draw(t, changing)) })
}

// TestFaultsDoNotMakeCapacity is the same with crashes, elections, restarts and partitions of servers. A new
// master learns for as long as a lease, and so knows of all that was given before it.
func TestFaultsDoNotMakeCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { neverOver(t, draw(t, append(suffering, changing...))) })
}

// neverOver runs a scenario that expects that nobody has more than there is.
func neverOver(t *rapid.T, text string) {
	s, err := Read("drawn.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v, want it to be read:\n%s", err, text)
	}
	seed := rapid.Uint64Max(1<<32).Draw(t, "seed")
	if r := Run(s, seed); !r.Holds() {
		t.Fatalf("seed %d: leases exceed the capacity, want never\n%s\n%s", seed, text, r.Text())
	}
}
