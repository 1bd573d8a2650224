package capacity

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLookupFindsWhatFindDoes compares it with looking through all.
func TestLookupFindsWhatFindDoes(t *testing.T) {
	t.Parallel()
	glob := rapid.OneOf(rapid.StringMatching(`a?b?[ab/*?\[\]^\\-]{0,4}`), rapid.StringMatching(`[ab]{0,3}`))
	rapid.Check(t, func(t *rapid.T) {
		var templates Templates
		for _, g := range rapid.SliceOfN(glob, 0, 20).Draw(t, "globs") {
			templates = append(templates, Template{Glob: g})
		}
		fast := newTemplateIndex(templates)
		for _, id := range rapid.SliceOfN(glob, 1, 20).Draw(t, "names") {
			if got, want := fast.findTemplate(id), templates.Find(id); got != want {
				t.Fatalf("find(%q) = %+v, want %+v", id, got, want)
			}
		}
	})
}

// TestManyTemplatesAreReplacedSoon: clients wait while a new configuration takes over. It took a second for
// each thousand resources.
func TestManyTemplatesAreReplacedSoon(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	var many Templates
	for i := range MaxTemplates - 1 {
		many = append(many, v.template)
		many[i].Glob = fmt.Sprintf("team-%d/*", i)
	}
	many = append(many, v.template)
	v.Configure(v.now, many)
	for i := range 10_000 {
		r := &Request{Resource: fmt.Sprintf("team-%d/%d", i, i), Demands: []Demand{{Clients: 1, Wants: 1}}}
		v.request("client", r)
	}
	began := time.Now()
	v.Configure(v.now, many)
	if took := time.Since(began); took > time.Second {
		t.Errorf("%d resources took over theirs of %d templates in %v, want some ms",
			len(v.resources), len(many), took)
	}
}
