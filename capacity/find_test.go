package capacity_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"pgregory.net/rapid"
)

// plain is a template nobody could object to.
func plain(glob string, amount float64) capacity.Template {
	return capacity.Template{Glob: glob, Capacity: amount, Algorithm: capacity.Algorithm{
		Kind: capacity.Static, LeaseLength: time.Minute, RefreshInterval: 5 * time.Second,
	}}
}

func TestTheExactNameIsFoundFirstThenTheFirstGlob(t *testing.T) {
	t.Parallel()
	several := capacity.Templates{
		plain("db-[ab]*", 1), plain("db-a?", 2), plain("db-ax", 3), plain("x/*", 4), plain(`\*`, 5),
		plain("*", 100),
	}
	twice := capacity.Templates{plain("r", 3), plain("r", 4), plain("*", 5)}
	for _, c := range []struct {
		templates capacity.Templates
		id        string
		want      float64
	}{
		{several, "db-ax", 3}, // exact beats earlier globs
		{several, "db-ay", 1},
		{several, "db-a?", 2}, // as a name, not as a pattern
		{several, "x/y", 4},
		{several, "zzz", 100},
		{several, "*", 100},
		{several, "", 100},
		{several, "db-ax\n", 1},
		{twice, "r", 3},
		{twice, "R", 5},
	} {
		if got := c.templates.Find(c.id); got == nil || got.Capacity != c.want {
			t.Errorf("Find(%q) = %+v, want the template with the capacity %v", c.id, got, c.want)
		}
	}
	if found := twice.Find("r"); found != &twice[0] {
		t.Errorf("Find(r) = %p, want the list's own %p", found, &twice[0])
	}
}

// doorman's process ended at the first name with a slash that no other template matched.
func TestTheCatchAllMatchesNamesWithSlashesToo(t *testing.T) {
	t.Parallel()
	templates := capacity.Templates{plain("x/*", 4), plain("*", 100)}
	for _, id := range []string{"a/b", "/", "x/y/z", "//", "a/", strings.Repeat("/", 1000)} {
		if got := templates.Find(id); got == nil || got.Capacity != 100 {
			t.Errorf("Find(%q) = %+v, want the template *", id, got)
		}
	}
}

func TestNothingIsFoundWhereNothingMatches(t *testing.T) {
	t.Parallel()
	without := capacity.Templates{plain("a", 1), plain("b*", 1), plain("[*-]", 1)}
	for _, templates := range []capacity.Templates{nil, {}, without} {
		if got := templates.Find("x/y"); got != nil {
			t.Errorf("Find(x/y) = %+v among %d templates, want nil", got, len(templates))
		}
	}
}

// Whatever the globs are, looking a name up ends well, and with templates that have no faults it finds one.
func TestFindNeverFails(t *testing.T) {
	t.Parallel()
	globs := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[ab/*?\[\]^\\-]{0,8}`), rapid.String()), 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		var templates capacity.Templates
		for _, glob := range globs.Draw(t, "globs") {
			templates = append(templates, plain(glob, 1))
		}
		templates = append(templates, plain("*", math.Pi))
		id := rapid.OneOf(rapid.StringMatching(`[ab/*?-]{0,8}`), rapid.String()).Draw(t, "id")
		if templates.Find(id) == nil {
			t.Errorf("Find(%q) = nil, want a template", id)
		}
	})
}

func TestKindsHaveDoormansNames(t *testing.T) {
	t.Parallel()
	for kind, name := range map[capacity.AlgorithmKind]string{
		capacity.NoAlgorithm: "NO_ALGORITHM", capacity.Static: "STATIC",
		capacity.ProportionalShare: "PROPORTIONAL_SHARE", capacity.FairShare: "FAIR_SHARE",
	} {
		if got := kind.String(); got != name {
			t.Errorf("Kind(%d) = %s, want %s", uint8(kind), got, name)
		}
		if got, err := capacity.ParseKind(name); got != kind || err != nil {
			t.Errorf("ParseKind(%s) = %v, %v, want %v", name, got, err, kind)
		}
	}
	if got := capacity.AlgorithmKind(9).String(); got != "Kind(9)" {
		t.Errorf("Kind(9) = %s, want Kind(9)", got)
	}
	for _, name := range []string{"", "fair_share", "FAIR_SHARE ", "3", "Kind(9)"} {
		if got, err := capacity.ParseKind(name); err == nil {
			t.Errorf("ParseKind(%q) = %v, want an error", name, got)
		}
	}
}

func TestPrioritiesAreStrictOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parameters []capacity.AlgorithmParameter
		want       bool
	}{
		{nil, false},
		{[]capacity.AlgorithmParameter{{"version", "1"}, {"priority", "strict"}}, true},
		{[]capacity.AlgorithmParameter{
			{"Priority", "strict"}, {"priority", "STRICT"}, {"strict", "priority"},
		}, false},
	} {
		a := capacity.Algorithm{Parameters: c.parameters}
		if a.Strict() != c.want {
			t.Errorf("Strict() = %t with %v, want %t", a.Strict(), c.parameters, c.want)
		}
	}
}

// No duration is another thing than none of it.
func TestLearningLastsALeaseUnlessItIsSet(t *testing.T) {
	t.Parallel()
	a := capacity.Algorithm{LeaseLength: time.Minute}
	if got := a.LearningMode(); got != time.Minute {
		t.Errorf("LearningMode() = %v when it is not set, want a lease", got)
	}
	for set, want := range map[time.Duration]time.Duration{0: 0, -time.Second: 0, time.Hour: time.Hour} {
		a.Learning = &set
		if got := a.LearningMode(); got != want {
			t.Errorf("LearningMode() = %v when set to %v, want %v", got, set, want)
		}
	}
}
