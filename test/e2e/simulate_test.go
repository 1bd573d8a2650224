package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// missed is a scenario that expects what cannot be.
const missed = `title: too much to ask
duration: 100s
resource:
  capacity: 10
  algorithm: {kind: FAIR_SHARE, lease_length: 10, refresh_interval: 5}
servers:
  - {name: root}
clients:
  - {of: root, recipe: 2x10}
expect:
  - peak >= 200%
`

// scenarioFile is a file with a text in it.
func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulateEndsWithItsVerdict(t *testing.T) {
	t.Parallel()
	cases := []struct {
		args   []string
		status int
		out    string
		said   string
	}{
		{[]string{"--list"}, 0, "seven ", ""},
		{[]string{"one"}, 0, "handed_out", ""},
		{[]string{"--seeds", "3", "one", "two"}, 0, "seed 3", ""},
		{[]string{"--print", "seven"}, 0, "title: As five for an hour", ""},
		{[]string{scenarioFile(t, missed)}, 1, "MISSED  peak >= 200%", "1 of 1 runs missed an expectation"},
		{[]string{scenarioFile(t, missed+"more: 1\n")}, 1, "", `.yaml:12:1: "more" is no setting here`},
		{[]string{"eleventy"}, 1, "", "--list shows the scenarios that need no file"},
		{[]string{}, 2, "", "no scenario, want a file"},
		{[]string{"--seeds", "0", "one"}, 2, "", "--seeds is 0, want 1 to 100000"},
		{[]string{"--seed", "x", "one"}, 2, "", "--seed"},
	}
	for _, c := range cases {
		status, out, said := gatehouse(t, nil, append([]string{"simulate"}, c.args...)...)
		if status != c.status || !strings.Contains(out, c.out) || !strings.Contains(said, c.said) {
			t.Errorf("simulate %q = %d, %q, %q, want %d, %q, %q",
				c.args, status, out, said, c.status, c.out, c.said)
		}
	}
}

func TestSimulateDrawsAndPrintsForPrograms(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "two.svg")
	status, out, said := gatehouse(t, nil, "simulate", "two", "--seed", "7", "--json", "--svg", picture)
	if status != 0 {
		t.Fatalf("simulate two = %d, %q, want 0", status, said)
	}
	var report struct {
		Seed    uint64
		Figures map[string]float64
	}
	err := json.Unmarshal([]byte(out), &report)
	if err != nil || report.Seed != 7 || report.Figures["peak"] == 0 {
		t.Errorf("simulate --json = %v, %+v, want seed 7 and figures:\n%s", err, report, out)
	}
	svg, err := os.ReadFile(picture)
	if err != nil || !strings.HasPrefix(string(svg), "<svg ") {
		t.Errorf("simulate --svg wrote %.20q, %v, want a picture", svg, err)
	}
}
