package simulate

import (
	"strings"
	"testing"
)

// calm is a small scenario.
const calm = `title: small
duration: 200s
resource:
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}
servers:
  - {name: root}
clients:
  - {of: root, recipe: 3x40}
events:
  - {at: 100s, do: election, node: root}
expect:
  - over == 0
`

// faulty are scenarios, calm with one text in place of another, and what is said about them.
var faulty = []struct{ old, new, want string }{
	{"title: small", "titel: small", `x.yaml:1:1: "titel" is no setting here, want one of clients, duration`},
	{"title: small", "", "title is missing"},
	{"title: small\n", "title: small\ntitle: again\n", "x.yaml:2:1: title is set twice, first in line 1"},
	{"200s", "200", `x.yaml:2:11: "200" is no time, want one such as 90s or 1h`},
	{"200s", "[1s]", "x.yaml:2:11: a list here, want one value"},
	{"capacity: 100", "capacity: -1", `x.yaml:4:13: "-1" is no amount`},
	{"capacity: 100", "capacity: .nan", `".nan" is no amount`},
	{"kind: FAIR_SHARE", "kind: fair", `kind "fair" is unknown, want NO_ALGORITHM, STATIC`},
	{"lease_length: 20", "lease_length: 2", "lease_length is 2s, want at least the refresh_interval of 5s"},
	{"lease_length: 20", "lease_length: 20s", `"20s" are no seconds`},
	{", lease_length: 20", "", "lease_length is missing"},
	{"{name: root}", "root", `x.yaml:7:5: the single value "root" here, want settings: count, name, tasks`},
	{"{name: root}", "{name: root, count: 2}", "2 roots, want 1"},
	{"{name: root}", "{name: root}\n  - {name: root}", `name is "root", want one no other level has`},
	{"{name: root}", "{name: root, tasks: 101}", `"101" is no number of things, want 1 to 100`},
	{"{name: root}", "{name: root}\n  - {name: a, count: 10000}", "more than 10000 servers"},
	{"of: root", "of: leaf", `of is "leaf", want the name of a level of servers`},
	{"3x40", "3*40", `"3*40" is no recipe, want one such as 5x15`},
	{"3x40", "3x40+cos(2)", `changes by cos, want one of constant_increase, random_change, sin, inc_sin`},
	{"3x40", "3x40+sin(2)", "every is missing, want how often sin is done"},
	{"3x40", "2000000x1", "is no number of things, want 1 to 1000000"},
	{"do: election", "do: dance", `"dance" cannot be done, want one of crash, cut`},
	{"do: election, node: root", "do: election", "node is missing for election"},
	{
		"do: election, node: root", "do: election, node: root, clients: 2",
		"election has a setting clients, want it without",
	},
	{
		"do: election, node: root", "do: election, node: root, for: 5s",
		"election has a setting for, want it without",
	},
	{
		"do: election, node: root", "do: election, node: leaf",
		`node is "leaf", want "any", a level, or a server`,
	},
	{"do: election, node: root", "do: spike, clients: 1", "to is missing for spike"},
	{"do: election, node: root", "do: cut, clients: 120%", `"120%" is no number of clients`},
	{"at: 100s", "at: 200s", "want a time before 3m20s and no weight"},
	{"over == 0", "over", `"over" is no expectation, want one such as handed_out from 100s >= 94%`},
	{"over == 0", "under == 0", `"under" is no figure, want one of brief`},
	{"over == 0", "handed_out >= 5", `"5" is no share, want a percentage`},
	{"over == 0", "over to 300s == 0", "looks beyond the end"},
	{"over == 0", "satisfied of gold >= 5%", "want the name of a group of clients"},
	{"events:", "network: {delay: 5s}\nevents:", "delay is up to 5s, want less than the timeout of 5s"},
	{
		"events:", "mishaps: {every: 1s, kinds: [{at: 1s, do: election, node: any}]}\nevents:",
		"a mishap with a time",
	},
	{"events:", "measure: 200s\nevents:", "measure begins at 3m20s, want that before the end"},
	{calm, "", "x.yaml:1:1: nothing here, want a scenario"},
	{calm, "a: [", "not YAML: did not find expected node content"},
	{calm, "a: &a 1\nb: *a", "is no setting here"},
	{calm, calm + "---\ntitle: more\n", "a second document begins here, want one"},
}

func TestFaultsAreToldWithTheirPlace(t *testing.T) {
	for _, f := range faulty {
		text := strings.Replace(calm, f.old, f.new, 1)
		_, err := Read("x.yaml", []byte(text))
		told := err != nil && strings.Contains(err.Error(), "x.yaml:")
		if !told || !strings.Contains(err.Error(), f.want) {
			t.Errorf("Read with %q for %q = %v, want %q with its place", f.new, f.old, err, f.want)
		}
	}
	if _, err := Read("x.yaml", []byte(calm)); err != nil {
		t.Errorf("Read(calm) = %v, want no error", err)
	}
}

func TestAllFaultsAreTold(t *testing.T) {
	text := strings.NewReplacer("200s", "x", "FAIR_SHARE", "y", "3x40", "z").Replace(calm)
	_, err := Read("x.yaml", []byte(text))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("Read with three faults = %v, want a line for each behind their number", err)
	}
}

func TestFileTooLarge(t *testing.T) {
	if _, err := Read("x.yaml", make([]byte, MaxSize+1)); err == nil {
		t.Errorf("Read of %d bytes = nil, want an error", MaxSize+1)
	}
}

// FuzzRead wants a scenario or an error of any text, and never anything else.
func FuzzRead(f *testing.F) {
	f.Add([]byte(calm))
	for _, name := range Shipped() {
		text, _ := File(name)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read("x.yaml", text)
		if (s == nil) == (err == nil) {
			t.Fatalf("Read = %v, %v, want one of them", s, err)
		}
	})
}
