package config_test

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/config"
)

// parse reads templates that are expected to be right.
func parse(t *testing.T, text string) capacity.Templates {
	t.Helper()
	templates, err := config.ParseCapacity([]byte(text))
	if err != nil {
		t.Fatalf("ParseCapacity: %v, want none, of:\n%s", err, text)
	}
	return templates
}

// The configuration of doorman's tutorials, and one with all there is.
func TestDoormansFilesLoadUnchanged(t *testing.T) {
	t.Parallel()
	got := parse(t, `resources:
  - identifier_glob: proportional
    capacity: 100
    safe_capacity: 10
    description: proportional example
    algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 15, refresh_interval: 5}
  - identifier_glob: "*"
    capacity: 1000
    safe_capacity: 10
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 15}
`)
	want := capacity.Templates{
		{Glob: "proportional", Capacity: 100, Safe: new(10.0), Description: "proportional example",
			Algorithm: algorithm(capacity.ProportionalShare, 15, 5)},
		{Glob: "*", Capacity: 1000, Safe: new(10.0), Algorithm: algorithm(capacity.FairShare, 60, 15)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the tutorial's configuration = %+v, want %+v", got, want)
	}
	got = parse(t, `# keys in any case, a kind by number, numbers in every plain form, a block used twice
Resources:
- Identifier_Glob: db-[ab]*
  CAPACITY: 1_000
  safe_capacity: -1
  algorithm: &shared
    kind: 2
    lease_length: 300.0
    refresh_interval: 1e1
    learning_mode_duration: -1
    parameters: [{name: priority, value: strict}, {name: version, value: 7}, {name: flag}]
- {identifier_glob: 42, capacity: .5, description: , safe_capacity: ~, algorithm: *shared}
- {identifier_glob: '*', capacity: 1.5e+3, algorithm: {refresh_interval: 7, <<: *shared}}
`)
	shared := algorithm(capacity.ProportionalShare, 300, 10)
	shared.Learning = new(-time.Second)
	shared.Parameters = []capacity.AlgorithmParameter{
		{Name: "priority", Value: "strict"}, {Name: "version", Value: "7"}, {Name: "flag"},
	}
	other := shared
	other.RefreshInterval = 7 * time.Second
	want = capacity.Templates{
		{Glob: "db-[ab]*", Capacity: 1000, Safe: new(-1.0), Algorithm: shared},
		{Glob: "42", Capacity: 0.5, Algorithm: shared},
		{Glob: "*", Capacity: 1500, Algorithm: other},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("all there is = %+v, want %+v", got, want)
	}
}

// algorithm has times in seconds.
func algorithm(kind capacity.AlgorithmKind, lease, refresh int) capacity.Algorithm {
	return capacity.Algorithm{
		Kind:            kind,
		LeaseLength:     time.Duration(lease) * time.Second,
		RefreshInterval: time.Duration(refresh) * time.Second,
	}
}

// one is a configuration of a single template with more in its algorithm or behind it.
func one(algorithm, behind string) string {
	return fmt.Sprintf("resources: [{identifier_glob: '*', capacity: 1, "+
		"algorithm: {lease_length: 60, refresh_interval: 5%s}%s}]", algorithm, behind)
}

// That something is not set is another thing than nought.
func TestUnsetIsNotZero(t *testing.T) {
	t.Parallel()
	unset := parse(t, one("", ""))[0]
	if unset.Safe != nil || unset.Algorithm.Learning != nil || unset.Algorithm.LearningMode() != time.Minute {
		t.Errorf("unset = safe %v, learning %v, want nil", unset.Safe, unset.Algorithm.Learning)
	}
	if unset.Algorithm.Kind != capacity.NoAlgorithm {
		t.Errorf("unset = kind %v, want NO_ALGORITHM", unset.Algorithm.Kind)
	}
	zero := parse(t, one(", learning_mode_duration: 0", ", safe_capacity: 0"))[0]
	if zero.Safe == nil || *zero.Safe != 0 {
		t.Errorf("safe_capacity: 0 = %v, want 0", zero.Safe)
	}
	if l := zero.Algorithm.Learning; l == nil || *l != 0 || zero.Algorithm.LearningMode() != 0 {
		t.Errorf("learning_mode_duration: 0 = %v, want 0", l)
	}
}

// doorman's process ended at the first request with a template that lacks one of these. Its own tests
// have the lists without a last "*".
func TestATemplateThatLacksSomethingIsRefused(t *testing.T) {
	t.Parallel()
	const star = "{identifier_glob: '*', capacity: 1, algorithm: {lease_length: 2, refresh_interval: 1}}"
	const algorithm = "want how the resource is shared: kind, lease_length and refresh_interval"
	const noStar = `no template has the identifier_glob "*", want it as the last`
	for _, c := range []struct{ text, want string }{
		{"", "1:1: " + noStar},
		{"# nothing", "1:1: " + noStar},
		{"resources:", "1:1: " + noStar},
		{"resources: []", "1:12: " + noStar},
		{"resources: [{identifier_glob: a, capacity: 1, algorithm: {lease_length: 2, refresh_interval: 1}}]",
			"1:12: " + noStar},
		{"resources: [" + star + ", {identifier_glob: a, capacity: 1, algorithm: {lease_length: 2, " +
			"refresh_interval: 1}}]", `1:31: identifier_glob "*" is template 1 of 2, want it last`},
		{"resources: [{identifier_glob: a, algorithm: {lease_length: 2, refresh_interval: 1}}, " + star + "]",
			`1:13: the template "a" has no capacity, want a number from 0 on`},
		{"resources: [{identifier_glob: a, capacity: , algorithm: {lease_length: 2, refresh_interval: 1}}, " +
			star + "]", `1:13: the template "a" has no capacity, want a number from 0 on`},
		{"resources: [{identifier_glob: a, capacity: 1}, " + star + "]",
			`1:13: the template "a" has no algorithm, ` + algorithm},
		{"resources: [{identifier_glob: '*', capacity: 1}]",
			`1:13: the template "*" has no algorithm, ` + algorithm},
		{"resources: [{capacity: 1, algorithm: {lease_length: 2, refresh_interval: 1}}, " + star + "]",
			"1:13: the template has no identifier_glob, want a resource's name, or a pattern such as db-*"},
		{"resources: [{identifier_glob: '*', capacity: 1, algorithm: {lease_length: 2}}]",
			"1:60: the algorithm has no refresh_interval, want whole seconds, at least 1"},
		{"resources: [{identifier_glob: '*', capacity: 1, algorithm: {refresh_interval: 2}}]",
			"1:60: the algorithm has no lease_length, want whole seconds, at least 1"},
		{"resources: [{identifier_glob: '[*-]', capacity: 1, algorithm: {lease_length: 2, " +
			"refresh_interval: 1}}, " + star + "]", `1:31: identifier_glob "[*-]" is a malformed pattern, ` +
			`want each [ closed, and something behind each - and \`},
	} {
		refused(t, c.text, c.want)
	}
}

// refused expects exactly these faults, one in a line.
func refused(t *testing.T, text, want string) {
	t.Helper()
	templates, err := config.ParseCapacity([]byte(text))
	if err == nil || err.Error() != want || templates != nil {
		t.Errorf("ParseCapacity = %v, %v, want none, and\n%s\nof:\n%s", templates, err, want, text)
	}
}

func TestAValueThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	const kinds = "want NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE or FAIR_SHARE"
	for _, c := range []struct{ algorithm, behind, want string }{
		{", kind: FAIR", "", `kind "FAIR" is unknown, ` + kinds},
		{", kind: fair_share", "", `kind "fair_share" is unknown, ` + kinds},
		{", kind: '2'", "", `kind "2" is unknown, ` + kinds},
		{", kind: 9", "", "kind is number 9, want 0 to 3, or a name such as FAIR_SHARE"},
		{", kind: 300", "", "kind is number 300, want 0 to 3, or a name such as FAIR_SHARE"},
		{", kind: -1", "", "kind is number -1, want 0 to 3, or a name such as FAIR_SHARE"},
		{", kind: [STATIC]", "", "kind is a list, want a name such as FAIR_SHARE"},
		{", learning_mode_duration: 5.5", "",
			"learning_mode_duration is 5.5, want whole seconds such as 60"},
		{", learning_mode_duration: 5s", "",
			"learning_mode_duration is 5s, want whole seconds such as 60"},
		{", learning_mode_duration: '5'", "",
			`learning_mode_duration is "5", want whole seconds such as 60`},
		{", learning_mode_duration: 1e300", "",
			"learning_mode_duration is 1e300, want whole seconds such as 60"},
		{", learning_mode_duration: 3153600001", "",
			"learning_mode_duration is 3153600001, want at most 3153600000, a hundred years"},
		{", learning_mode_duration: 010", "",
			"learning_mode_duration is 010, want whole seconds such as 60"},
		{", learning_mode_duration: .inf", "",
			"learning_mode_duration is .inf, want whole seconds such as 60"},
		{", parameters: strict", "", "parameters is a single value, want a list such as " +
			"[{name: priority, value: strict}]"},
		{", parameters: [strict]", "", "a parameter is a single value, want a mapping with name: …"},
		{", parameters: [{value: 1}]", "", "name of a parameter is empty, want one"},
		{", parameters: [{name: priority, value: fair}]", "",
			`value of the parameter priority is "fair", want strict`},
		{", parameters: [{name: [a]}]", "", "name is a list, want a text"},
		{"", ", safe_capacity: -0.5", "safe_capacity is -0.5, want a number from 0 on, or -1 for no limit"},
		{"", ", safe_capacity: -2", "safe_capacity is -2, want a number from 0 on, or -1 for no limit"},
		{"", ", safe_capacity: .nan", "safe_capacity is .nan, want a number"},
		{"", ", safe_capacity: '1'", `safe_capacity is "1", want a number`},
		{"", ", safe_capacity: 1e999", "safe_capacity is 1e999, want a number"},
		{"", ", safe_capacity: 0x10", "safe_capacity is 0x10, want a number"},
		{"", ", safe_capacity: true", "safe_capacity is true, want a number"},
		{"", ", description: {}", "description is a mapping, want a text"},
		{"", ", description: !!binary aGk=", `description has the tag "!!binary", want a text`},
		{"", ", description: !mine hi", `description has the tag "!mine", want a text`},
		{"", ", capasity: 1", `"capasity" is no key of a template, want one of identifier_glob, capacity, ` +
			"safe_capacity, description or algorithm"},
		{", lease: 1", "", `"lease" is no key of an algorithm, want one of kind, lease_length, ` +
			"refresh_interval, learning_mode_duration or parameters"},
		{"", ", Capacity: 2", "capacity is set twice, first in line 1"},
		{"", ", ? [a] : 1", "a list is no key of a template, want one of identifier_glob, capacity, " +
			"safe_capacity, description or algorithm"},
		{"", ", <<: 1", "<< is a single value, want a mapping, or a list of them"},
	} {
		_, err := config.ParseCapacity([]byte(one(c.algorithm, c.behind)))
		alone := regexp.MustCompile(`^1:\d+: ` + regexp.QuoteMeta(c.want) + `$`)
		if err == nil || !alone.MatchString(err.Error()) {
			t.Errorf("ParseCapacity = %v, want %s, of:\n%s", err, c.want, one(c.algorithm, c.behind))
		}
	}
}

// doorman told the first fault alone, and for some the text instead of the reason.
func TestAllFaultsAreToldWithTheirPlaceAndReason(t *testing.T) {
	t.Parallel()
	const keys = "one of identifier_glob, capacity, safe_capacity, description or algorithm"
	refused(t, `resources:
  - identifier_glob: web
    capasity: 100
    algorithm: &a {kind: FAIR, lease_length: 5.5, refresh_interval: 5}
  - identifier_glob: db
    capacity: -1
    algorithm: *a
  - 7
  - identifier_glob: web
    capacity: 1
    algorithm: {lease_length: 1, refresh_interval: 2}
  - identifier_glob: "*"
    capacity: 1
    algorithm: 60
colour: blue
`, `the text has 10 faults:
2:5: the template "web" has no capacity, want a number from 0 on
3:5: "capasity" is no key of a template, want `+keys+`
4:26: kind "FAIR" is unknown, want NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE or FAIR_SHARE
4:46: lease_length is 5.5, want whole seconds such as 60
6:15: capacity is -1, want a number from 0 on
8:5: a template is a single value, want a mapping with identifier_glob: …
9:22: identifier_glob "web" is that of template 1 too, want each once
11:31: lease_length is 1 s, want at least the refresh_interval of 2 s
14:16: an algorithm is a single value, want a mapping with kind: …
15:1: "colour" is no key of the configuration, want resources`)
}

func TestATextThatIsNoConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	const star = `; a text that begins with a star needs quotes: "*"`
	for _, c := range []struct{ text, want string }{
		{"7", "1:1: the configuration is a single value, want a mapping with resources: …"},
		{"- a", "1:1: the configuration is a list, want a mapping with resources: …"},
		{"resources: {}", "1:12: resources is a mapping, want a list of templates"},
		{one("", "") + "\n---\na: b", "2:1: a second document begins here, want one"},
		{"resources: [{identifier_glob: *}]",
			"1:32: not YAML: did not find expected alphabetic or numeric character" + star},
		{"resources: [{identifier_glob: *db}]", "1:31: not YAML: unknown anchor 'db' referenced" + star},
		{strings.Repeat("#", config.MaxSize+1), "1:1: the text has 1048577 bytes, want at most 1048576"},
		{"resources: [" + strings.Repeat("1,", capacity.MaxTemplates) + "1]",
			"1:12: resources are 10001, want at most 10000"},
		{"resources: &a [*a]", "1:12: a template is a list, want a mapping with identifier_glob: …"},
	} {
		_, err := config.ParseCapacity([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseCapacity(%.50q) = %v, want %s", c.text, err, c.want)
		}
	}
	if err := padded(config.MaxSize); err != nil {
		t.Errorf("a text of %d bytes is refused: %v", config.MaxSize, err)
	}
}

// padded reads a configuration that is padded to this size.
func padded(size int) error {
	start := one("", "") + " #"
	_, err := config.ParseCapacity([]byte(start + strings.Repeat("x", size-len(start))))
	return err
}

// A few hundred bytes that stand for billions of keys cost no more than what they may unfold to.
func TestAliasesThatGrowWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	bomb := strings.Builder{}
	bomb.WriteString("a0: &a0 {kind: STATIC}\n")
	for i := range 14 {
		last := "*a" + strconv.Itoa(i)
		fmt.Fprintf(&bomb, "a%d: &a%d {<<: [%s%s]}\n", i+1, i+1, strings.Repeat(last+", ", 8), last)
	}
	bomb.WriteString("resources: [{identifier_glob: '*', capacity: 1, algorithm: *a14}]")
	for _, c := range []struct{ text, want string }{
		{bomb.String(), "aliases unfold to more than 1000000 keys"},
		{"resources: [&a {<<: *a}]", "<< merges mappings more than 16 deep"},
	} {
		_, err := config.ParseCapacity([]byte(c.text)) // which would not end if it unfolded them
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseCapacity = %.200v, want %s", err, c.want)
		}
	}
}

// placed is how a fault of a text without a name begins.
var placed = regexp.MustCompile(`^[1-9]\d*:[1-9]\d*: .`)

// Whatever the text is, it is read or refused, and what was read has no faults.
func FuzzParseCapacity(f *testing.F) {
	for _, text := range []string{
		"", "resources: []", "resources: [{}]", "resources: &a [*a]", "<<: {}\n",
		"resources:\n- {<<: [{}, {}]}\n",
		one("", ""), one(", kind: FAIR_SHARE, learning_mode_duration: 0", ", safe_capacity: -1"),
		one(", parameters: [{name: priority, value: strict}]", ", description: 5"),
		"resources:\n- &a {identifier_glob: a, capacity: 1, algorithm: &b {lease_length: 2, " +
			"refresh_interval: 1}}\n- {<<: *a, identifier_glob: '*'}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		templates, err := config.ParseCapacity([]byte(text))
		if err != nil {
			line := err.Error()
			if rest, ok := strings.CutPrefix(line, "the text has "); ok {
				_, line, _ = strings.Cut(rest, "\n")
			}
			if !placed.MatchString(line) {
				t.Errorf("%q is refused with %q, want the place of the first fault", text, err)
			}
			return
		}
		if found := templates.Faults(); found != nil {
			t.Errorf("%q was read with the faults %v", text, found)
		}
		for _, c := range templates {
			if math.IsNaN(c.Capacity) || math.IsInf(c.Capacity, 0) {
				t.Errorf("%q was read with the capacity %v", text, c.Capacity)
			}
		}
	})
}
