package capacity

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"testing"
)

//go:embed testdata/vectors.txt
var vectors string

// TestVectors replays what doorman answers, and where it is wrong what we answer.
func TestVectors(t *testing.T) {
	blocks := strings.Split(vectors, "--- # ")[1:]
	if len(blocks) < 30 {
		t.Fatalf("%d blocks, want all of testdata/vectors.txt", len(blocks))
	}
	for _, block := range blocks {
		title, lines, _ := strings.Cut(block, "\n")
		t.Run(strings.ReplaceAll(title, ".", ""), func(t *testing.T) { replay(t, lines) })
	}
}

// replay runs one block of testdata/vectors.txt.
func replay(t *testing.T, lines string) {
	t.Helper()
	head, lines, _ := strings.Cut(lines, "\n")
	v := newBench(t, head)
	for line := range strings.Lines(lines) {
		var client string
		var has, wants, want float64
		var clients int64
		switch verb, _, _ := strings.Cut(line, " "); strings.TrimSpace(verb) {
		case "hold":
			scan(t, line, "hold %s %g %g %d", &client, &has, &wants, &clients)
			v.hold(client, has, Demand{Clients: clients, Wants: wants})
		case "ask":
			scan(t, line, "ask %s %g %g %d -> %g", &client, &has, &wants, &clients, &want)
			g := v.ask(client, has, Demand{Clients: clients, Wants: wants})
			if !near(g.Lease.Capacity, want) {
				t.Errorf("%s: got %v", strings.TrimSpace(line), g.Lease.Capacity)
			}
			v.check()
		case "taken":
			scan(t, line, "taken %g", &want)
			if got := v.status().Has; !near(got, want) {
				t.Errorf("%s: got %v", strings.TrimSpace(line), got)
			}
		}
	}
}

func scan(t *testing.T, line, format string, to ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(strings.Join(strings.Fields(line), " "), format, to...); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
}

// near compares to nine digits.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }
