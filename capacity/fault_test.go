package capacity_test

import (
	"fmt"
	"math"
	"path"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
)

func TestTemplatesWithoutFaults(t *testing.T) {
	t.Parallel()
	everything := plain("*", math.MaxFloat64)
	everything.Safe = new(-1.0)
	everything.Description = strings.Repeat("d", 4096)
	everything.Algorithm = capacity.Algorithm{
		Kind: capacity.FairShare, LeaseLength: gatehouse.MaxDuration, RefreshInterval: gatehouse.MaxDuration,
		Learning: new(-gatehouse.MaxDuration),
	}
	for i := range 15 {
		everything.Algorithm.Parameters = append(everything.Algorithm.Parameters,
			capacity.AlgorithmParameter{strconv.Itoa(i), strings.Repeat("v", 512)})
	}
	everything.Algorithm.Parameters = append(everything.Algorithm.Parameters,
		capacity.AlgorithmParameter{"priority", "strict"})
	templates := capacity.Templates{plain(strings.Repeat("ü", 256), 0), plain("**", 0), plain(`\*`, 0)}
	for i := range capacity.MaxTemplates - len(templates) - 1 {
		templates = append(templates, plain(fmt.Sprint("r", i), 1))
	}
	templates = append(templates, everything)
	if found := templates.Faults(); found != nil {
		t.Errorf("Faults() = %v, want none", found)
	}
}

// Each change of a good template, and what is told of it: the field, and the beginning of the text.
func TestEachRuleOfATemplateIsKept(t *testing.T) {
	t.Parallel()
	type template = capacity.Template
	for _, c := range []struct {
		change      func(*template)
		field, text string
	}{
		{func(t *template) { t.Glob = "" }, "identifier_glob", "identifier_glob is empty"},
		{func(t *template) { t.Glob = "[*-]" }, "identifier_glob", `identifier_glob "[*-]" is a malformed`},
		{func(t *template) { t.Glob = `a\` }, "identifier_glob", `identifier_glob "a\\" is a malformed`},
		{func(t *template) { t.Glob = "a[" }, "identifier_glob", `identifier_glob "a[" is a malformed`},
		{func(t *template) { t.Glob = strings.Repeat("g", 513) }, "identifier_glob",
			"identifier_glob has 513 bytes, want at most 512"},
		{func(t *template) { t.Glob = "a\xff" }, "identifier_glob", `identifier_glob "a\xff" is not UTF-8`},
		{func(t *template) { t.Capacity = -0.5 }, "capacity", "capacity is -0.5, want a number from 0 on"},
		{func(t *template) { t.Capacity = math.NaN() }, "capacity", "capacity is NaN"},
		{func(t *template) { t.Capacity = math.Inf(1) }, "capacity", "capacity is +Inf"},
		{func(t *template) { t.Safe = new(-1.5) }, "safe_capacity",
			"safe_capacity is -1.5, want a number from 0 on, or -1 for no limit"},
		{func(t *template) { t.Safe = new(-0.5) }, "safe_capacity", "safe_capacity is -0.5"},
		{func(t *template) { t.Safe = new(math.NaN()) }, "safe_capacity", "safe_capacity is NaN"},
		{func(t *template) { t.Safe = new(math.Inf(1)) }, "safe_capacity", "safe_capacity is +Inf"},
		{func(t *template) { t.Description = strings.Repeat("d", 4097) }, "description",
			"description has 4097 bytes, want at most 4096"},
		{func(t *template) { t.Description = "\xff" }, "description", `description "\xff" is not UTF-8`},
		{func(t *template) { t.Algorithm.Kind = 9 }, "algorithm.kind",
			"kind is number 9, want 0 to 3, or NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE or FAIR_SHARE"},
		{func(t *template) { t.Algorithm.LeaseLength = 0 }, "algorithm.lease_length",
			"lease_length is 0 s, want at least 1 s"},
		{func(t *template) { t.Algorithm.LeaseLength = 4 * time.Second }, "algorithm.lease_length",
			"lease_length is 4 s, want at least the refresh_interval of 5 s"},
		{func(t *template) { t.Algorithm.LeaseLength = gatehouse.MaxDuration + time.Second },
			"algorithm.lease_length", "lease_length is 3153600001 s, want at most 3153600000 s"},
		{func(t *template) { t.Algorithm.RefreshInterval = -time.Second }, "algorithm.refresh_interval",
			"refresh_interval is -1 s, want at least 1 s"},
		{func(t *template) { t.Algorithm.RefreshInterval = 5500 * time.Millisecond },
			"algorithm.refresh_interval", "refresh_interval is 5.5s, want whole seconds"},
		{func(t *template) { t.Algorithm.Learning = new(1500 * time.Millisecond) },
			"algorithm.learning_mode_duration", "learning_mode_duration is 1.5s, want whole seconds"},
		{func(t *template) { t.Algorithm.Learning = new(gatehouse.MaxDuration + time.Second) },
			"algorithm.learning_mode_duration", "learning_mode_duration is 3153600001 s, want at most"},
	} {
		templates := capacity.Templates{plain("a", 1), plain("b", 1), plain("*", 1)}
		c.change(&templates[1])
		wantFault(t, templates, capacity.Fault{Index: 1, Field: c.field, Text: c.text})
	}
}

func TestEachRuleOfParametersIsKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("p", 513)
	for _, c := range []struct {
		parameters  []capacity.AlgorithmParameter
		field, text string
	}{
		{[]capacity.AlgorithmParameter{{"a", ""}, {"", "b"}}, "[1].name", "name of a parameter is empty"},
		{[]capacity.AlgorithmParameter{{long, ""}}, "[0].name", "name has 513 bytes, want at most 512"},
		{[]capacity.AlgorithmParameter{{"a", long}}, "[0].value", "value has 513 bytes, want at most 512"},
		{[]capacity.AlgorithmParameter{{"a", "\xff"}}, "[0].value", `value "\xff" is not UTF-8`},
		{[]capacity.AlgorithmParameter{{"priority", ""}}, "[0].value",
			`value of the parameter priority is "", want strict`},
		{[]capacity.AlgorithmParameter{{"priority", "Strict"}}, "[0].value",
			`value of the parameter priority is "Strict", want strict`},
		{[]capacity.AlgorithmParameter{{"priority", "strict"}, {"priority", "strict"}}, "[1].name",
			"name of a parameter is priority twice, want it once"},
		{make([]capacity.AlgorithmParameter, 17), "", "parameters are 17, want at most 16"},
	} {
		templates := capacity.Templates{plain("*", 1)}
		templates[0].Algorithm.Parameters = c.parameters
		wantFault(t, templates, capacity.Fault{Field: "algorithm.parameters" + c.field, Text: c.text})
	}
}

func TestEachRuleOfTheListIsKept(t *testing.T) {
	t.Parallel()
	const missing = `no template has the identifier_glob "*", want it as the last`
	for _, c := range []struct {
		templates capacity.Templates
		want      capacity.Fault
	}{
		{nil, capacity.Fault{Index: -1, Text: missing}},
		{capacity.Templates{plain("a", 1), plain("**", 1)}, capacity.Fault{Index: -1, Text: missing}},
		{capacity.Templates{plain("*", 1), plain("a", 1)}, capacity.Fault{Field: "identifier_glob",
			Text: `identifier_glob "*" is template 1 of 2, want it last`}},
		{capacity.Templates{plain("a", 1), plain("b", 1), plain("a", 2), plain("*", 1)}, capacity.Fault{
			Index: 2, Field: "identifier_glob",
			Text: `identifier_glob "a" is that of template 1 too, want each once`}},
		{make(capacity.Templates, capacity.MaxTemplates+1), capacity.Fault{Index: -1,
			Text: "there are 10001 templates, want at most 10000"}},
	} {
		wantFault(t, c.templates, c.want)
	}
}

// wantFault expects one fault, whose text begins as that of want.
func wantFault(t *testing.T, templates capacity.Templates, want capacity.Fault) {
	t.Helper()
	found := templates.Faults()
	if len(found) != 1 || found[0].Index != want.Index || found[0].Field != want.Field ||
		!strings.HasPrefix(found[0].Text, want.Text) {
		t.Errorf("Faults() = %q, want one: %q", found, want)
	}
}

func TestAllFaultsAreToldInOrder(t *testing.T) {
	t.Parallel()
	bad := capacity.Template{Glob: "[", Capacity: -1, Safe: new(-2.0), Description: "\xff"}
	bad.Algorithm.Kind = 4
	bad.Algorithm.Parameters = []capacity.AlgorithmParameter{{"priority", "x"}}
	templates := capacity.Templates{plain("*", 1), bad, plain("a", -1)}
	want := []string{
		"template 1: identifier_glob", "template 2: identifier_glob", "template 2: capacity",
		"template 2: safe_capacity", "template 2: description", "template 2: kind",
		"template 2: lease_length",
		"template 2: refresh_interval", "template 2: value", "template 3: capacity",
	}
	for range 10 {
		var got []string
		for _, f := range templates.Faults() {
			subject, _, _ := strings.Cut(f.String()[len("template 1: "):], " ")
			got = append(got, f.String()[:len("template 1: ")]+subject)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Faults() = %q, want %q", got, want)
		}
	}
	alone := bad.Algorithm.Faults()
	if len(alone) != 4 || alone[0].String() != alone[0].Text {
		t.Errorf("Faults() of the algorithm alone = %v, want four without a template", alone)
	}
}

// A glob that has no fault can be matched against any name.
func FuzzGlob(f *testing.F) {
	for _, glob := range []string{"*", "", "db-[ab]*", "[*-]", `\`, "[^a-z]x?", "[", "a[]b", "[a-", "x/*"} {
		f.Add(glob, "a/b")
	}
	f.Fuzz(func(t *testing.T, glob, id string) {
		templates := capacity.Templates{plain(glob, 1), plain("*", 1)}
		malformed := false
		for _, fault := range templates.Faults() {
			malformed = malformed || strings.Contains(fault.Text, "malformed") || glob == ""
		}
		if _, err := path.Match(glob, id); err != nil && !malformed {
			t.Errorf("the glob %q has no fault, but matching %q fails: %v", glob, id, err)
		}
		if templates.Find(id) == nil {
			t.Errorf("Find(%q) = nil, want a template", id)
		}
	})
}
