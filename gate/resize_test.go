package gate_test

import (
	"testing"
	"testing/synctest"

	"github.com/gatehousehq/gatehouse"
)

// A resize that makes a cost impossible is told at once, also when the limit that became too small is not
// the one that the decision is about, and after somebody asked about a limit that never was in force.
func TestResizeOfALimiterBelowACost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "impossible"}
		limited := func(cost int64, limits string) gatehouse.Command {
			parsed, err := gatehouse.ParseLimits(limits)
			if err != nil {
				t.Fatal(err)
			}
			return gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: cost,
				Rule: gatehouse.Rule{Limits: parsed}, MaxWait: gatehouse.Forever,
			}
		}
		must(t, g, key, limited(5, "5/1s,6/1h"))
		defer submit(g, key, limited(2, "5/1s,6/1h"), l.done("narrow"))()
		submit(g, key, limited(4, "5/1s,6/1h"), l.done("wide"))
		peek := limited(1, "2/1s")
		peek.Op = gatehouse.OpPeek
		if d, err := g.Do(t.Context(), key, peek); err != nil || d.Outcome != gatehouse.Refused {
			t.Fatalf("peek = %s, %v, want refused", d.Outcome, err)
		}
		l.wantOrder(t)
		smaller := limited(1, "3/1s,6/1h")
		smaller.MaxWait = 0
		if d, err := g.Do(t.Context(), key, smaller); err != nil || d.Outcome != gatehouse.Refused {
			t.Fatalf("smaller = %s, %v, want refused", d.Outcome, err)
		}
		l.wantOrder(t, "wide")
		if got := l.get("wide"); got.outcome != gatehouse.Conflict {
			t.Errorf("wide: %s, want conflict", got.outcome)
		}
	})
}
