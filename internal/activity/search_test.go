package activity

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// Searches find by a part of the name in any letter case, in every order, and say if there is more.
func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		for i, name := range []string{"Alpha", "beta", "gamma", "delta"} {
			for range 1 + 20*i {
				take(t, g, name)
			}
		}
		for _, c := range []struct {
			query Query
			want  string
			more  bool
		}{
			{Query{Sort: sortName, Limit: 9}, "Alpha beta delta gamma", false},
			{Query{Sort: sortName, Reverse: true, Limit: 2}, "gamma delta", true},
			{Query{Sort: sortName, Limit: 2}, "Alpha beta", true},
			{Query{Sort: sortUsed, Limit: 1}, "delta", true},
			{Query{Sort: sortBusy, Limit: 4}, "delta gamma beta Alpha", false},
			{Query{Sort: sortRefused, Limit: 1}, "delta", true},
			{Query{Text: "ALPH", Sort: sortBusy, Limit: 4}, "Alpha", false},
			{Query{Text: "ta", Sort: sortName, Limit: 4}, "beta delta", false},
			{Query{Kind: gatehouse.Lock, Sort: sortBusy, Limit: 4}, "", false},
			{Query{Text: "nothing has this", Sort: sortBusy, Limit: 4}, "", false},
		} {
			r, err := m.Search(t.Context(), c.query)
			var names []string
			for _, row := range r.Rows {
				names = append(names, row.Key.Name)
			}
			if got := strings.Join(names, " "); err != nil || got != c.want || r.More != c.more {
				t.Errorf("Search(%+v) = %q, more %t, %v, want %q, %t",
					c.query, got, r.More, err, c.want, c.more)
			}
			if len(r.Rows) > 0 && r.Rows[0].Limits != "60/1m" {
				t.Errorf("the limits of a row are %q, want 60/1m", r.Rows[0].Limits)
			}
		}
	})
}

// A search is made once for all who ask for the same within its time.
func TestSearchIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		q := Query{Sort: sortBusy, Limit: 10}
		for range 5 {
			r, err := m.Search(t.Context(), q)
			if err != nil || len(r.Rows) != 0 || r.Fresh < freshFor {
				t.Fatalf("Search = %+v, %v, want nothing, for a second", r, err)
			}
			take(t, g, "a")
		}
		time.Sleep(freshFor)
		if r, _ := m.Search(t.Context(), q); len(r.Rows) != 1 {
			t.Errorf("Search after its time = %+v, want the new name", r)
		}
		for i := range 3 * maxCached {
			_, _ = m.Search(t.Context(), Query{Text: fmt.Sprint(i), Sort: sortBusy, Limit: 10})
		}
		if len(m.search.results) > maxCached {
			t.Errorf("%d results are kept, want at most %d", len(m.search.results), maxCached)
		}
	})
}

// A failingGate cannot list all kinds.
type failingGate struct {
	*countedGate
	fails gatehouse.Kind
}

// VisitNames implements [Gate].
func (g *failingGate) VisitNames(
	ctx context.Context, p gate.Prefix, visit func(gatehouse.NameDetails) bool,
) error {
	if g.fails == 0 || p.Kind == g.fails {
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: names cannot be listed", p.Kind)
	}
	return g.Gate.VisitNames(ctx, p, visit)
}

// VisitAllNames implements [Gate].
func (g *failingGate) VisitAllNames(
	ctx context.Context, kind gatehouse.Kind, visit func(gatehouse.NameDetails) bool,
) error {
	return g.VisitNames(ctx, gate.Prefix{Kind: kind}, visit)
}

// A store that lists some of its names gives a part of an answer, and one that lists none an error.
func TestSearchIsPartial(t *testing.T) {
	fails := new(failingGate)
	m, g := newMonitor(func(c *Config) { fails.countedGate, c.Gate = c.Gate.(*countedGate), fails })
	take(t, g, "a")
	for _, c := range []struct {
		kind    gatehouse.Kind
		partial bool
	}{{gatehouse.SlidingLog, true}, {0, false}} {
		fails.fails = c.kind
		r, err := m.scanNames(t.Context(), Query{Sort: sortName, Limit: 9})
		if (err == nil) != c.partial || r.Partial != c.partial || c.partial && len(r.Rows) != 1 {
			t.Errorf("where %s cannot be listed Search = %+v, %v, want a partial answer %t",
				c.kind, r, err, c.partial)
		}
	}
}
