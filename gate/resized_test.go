package gate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A request that has resized a name says so in its answer, whether it is answered at once or had to wait,
// alone or with others.
func TestResizedIsTold(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.Semaphore} {
		for _, cost := range []int64{1, 6} { // at once, and after a second
			t.Run(kind.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testResized(t, kind, cost) })
			})
		}
	}
}

func testResized(t *testing.T, kind gatehouse.Kind, cost int64) {
	t.Helper()
	g := newGate()
	rule := gatehouse.Rule{Size: 5, Interval: time.Second}
	if kind == gatehouse.Semaphore {
		rule.Interval = 0
	}
	begin := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: rule, Cost: 2, Holder: "first", Expires: time.Second,
	}
	resize := begin
	resize.Size, resize.Cost, resize.Holder, resize.MaxWait = 7, cost, "second", gatehouse.Forever
	resize.TellResize = true
	alone := gatehouse.Key{Kind: kind, Name: "alone"}
	mustDo(t, g, alone, begin)
	if d := mustDo(t, g, alone, resize); !d.Resized {
		t.Errorf("cost %d: an acquire that resizes does not say so", cost)
	}
	shared := gatehouse.Key{Kind: kind, Name: "shared"}
	mustDo(t, g, shared, begin)
	want := gatehouse.Member{Key: shared, Rule: resize.Rule, Cost: cost, TellResize: true}
	d, err := g.DoGrant(t.Context(), gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "x", Expires: time.Second, MaxWait: gatehouse.Forever,
		Want: []gatehouse.Member{{Key: alone, Rule: resize.Rule, Cost: 1}, want},
	})
	if err != nil || d.Outcome != gatehouse.Granted || d.Want[0].Resized || !d.Want[1].Resized {
		t.Errorf("cost %d: a grant that resizes the second of two is answered %+v, %v", cost, d, err)
	}
}

// mustDo has a command granted.
func mustDo(
	t *testing.T, g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command,
) gatehouse.Decision {
	t.Helper()
	d, err := g.Do(t.Context(), key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		t.Fatalf("%s: %s, %v, want granted", key, d.Outcome, err)
	}
	return d
}
