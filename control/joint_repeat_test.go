package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestUndoOfTopUpLeavesSettle: a settle says the whole cost. If a topup that came before it is taken back
// afterwards, as its answer was lost, what was settled still counts; a settle before it, or of another
// limiter, changes nothing.
func TestUndoOfTopUpLeavesSettle(t *testing.T) {
	for _, v := range varieties() {
		for _, c := range []struct {
			name          string
			before, since []gatehouse.MemberCost
			counted       int64
		}{
			{"not settled", nil, nil, 2},
			{"settled before", []gatehouse.MemberCost{costing(v.kind, "a", 1)}, nil, 1},
			{"settled since", nil, []gatehouse.MemberCost{costing(v.kind, "a", 4)}, 4},
			{"settled to less since", nil, []gatehouse.MemberCost{costing(v.kind, "a", 1)}, 1},
			{"settled to more since", nil, []gatehouse.MemberCost{costing(v.kind, "a", 7)}, 7},
			{"the other settled since", nil, []gatehouse.MemberCost{costing(v.kind, "b", 1)}, 2},
		} {
			one, other := ofLimit(v.kind, "a", 10, 2), ofLimit(v.kind, "b", 10, 2)
			one.Mode, other.Mode = v.mode, v.mode
			h, undone := newHouse(), newHouse()
			h.do(t, acquireOf("x", one, other))
			h.settle(t, c.before)
			h.do(t, gatehouse.GrantCommand{
				Op: gatehouse.OpTopUp, ID: "x", Costs: []gatehouse.MemberCost{costing(v.kind, "a", 3)},
			})
			undone.parts, h.parts = h.parts, GrantParts{}
			h.settle(t, c.since)
			undone.states, undone.now = h.states, h.now
			undone.parts.Undo()
			undone.serve()
			got := h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "x"}).Want[0].Cost
			left := h.left(one.Key)
			if got != c.counted || left != 10-c.counted {
				t.Errorf("%s, %s: %d count and %d are left, want %d and %d", v, c.name, got, left, c.counted,
					10-c.counted)
			}
		}
	}
}

// settle settles the grant x, a microsecond later; nothing if there are no costs.
func (h *house) settle(tb testing.TB, costs []gatehouse.MemberCost) {
	tb.Helper()
	h.now = h.now.Add(time.Microsecond)
	if costs != nil {
		h.do(tb, gatehouse.GrantCommand{Op: gatehouse.OpSettle, ID: "x", Costs: costs})
	}
	h.now = h.now.Add(time.Microsecond)
}

// TestRepeatAfterLoss: an acquire that is repeated is answered with its grant only as long as that holds all
// that it wants. After an evict or a delete of one of the names another client may hold it.
func TestRepeatAfterLoss(t *testing.T) {
	lock, slots := keyOf(gatehouse.Lock, "l"), keyOf(gatehouse.Semaphore, "s")
	want := []gatehouse.Member{ofLimit(gatehouse.GCRA, "g", 10, 4), ofLock("l"), ofSlots("s", 3, 2)}
	for _, c := range []struct {
		key  gatehouse.Key
		op   gatehouse.Op
		now  bool
		lost string
	}{
		{keyOf(gatehouse.GCRA, "g"), gatehouse.OpDelete, false, ""},
		{lock, gatehouse.OpEvict, false, ""}, // it holds until its term is over
		{lock, gatehouse.OpEvict, true, "lock/l"},
		{slots, gatehouse.OpEvict, true, "semaphore/s"},
		{lock, gatehouse.OpDelete, false, "lock/l"},
	} {
		for _, taken := range []bool{false, true} {
			h := newHouse()
			first := h.do(t, acquireOf("x", want...))
			h.alone(c.key, gatehouse.Command{Op: c.op, Fence: first.Fence, Now: c.now})
			if other := h.states[lock]; taken && (other == nil || h.held(lock) == 0) {
				h.alone(lock, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "other"})
			}
			d, outcome, message := h.do(t, acquireOf("x", want...)), gatehouse.Granted, ""
			if c.lost != "" {
				outcome = gatehouse.Conflict
				message = "grant/x does not hold " + c.lost + " any more: it was evicted, or the name deleted"
			}
			if d.Outcome != outcome || d.Message != message {
				t.Errorf("%s %s, taken %t: %s %q, want %s %q", c.op, c.key, taken, d.Outcome, d.Message,
					outcome, message)
			}
			d = h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "x"})
			wantShown(t, d.Want, want, c.lost)
			d = h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "x"})
			if d.Outcome != gatehouse.Granted {
				t.Errorf("release = %+v", d)
			}
		}
	}
}

// wantShown sees that a peek shows the costs that were asked for, and 0 for what was lost.
func wantShown(t *testing.T, got []gatehouse.MemberDecision, want []gatehouse.Member, lost string) {
	t.Helper()
	for i, m := range got {
		cost := want[i].Cost
		if m.Key.String() == lost {
			cost = 0
		}
		if m.Cost != cost {
			t.Errorf("a peek says %d of %s when %q was lost, want %d", m.Cost, m.Key, lost, cost)
		}
	}
}

// TestOptionalPartFails: what could not be served of a release makes no error of it, if nothing depended on
// that.
func TestOptionalPartFails(t *testing.T) {
	for _, optional := range []bool{true, false} {
		h := newHouse()
		h.do(t, acquireOf("x", ofLock("l"), ofLimit(gatehouse.GCRA, "g", 10, 4)))
		release := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "x"}
		if !optional {
			release.Costs = []gatehouse.MemberCost{costing(gatehouse.GCRA, "g", 1)}
		}
		h.do(t, release)
		for i := range h.parts.Parts {
			if p := &h.parts.Parts[i]; p.Key.Kind == gatehouse.GCRA {
				p.Turn.Err = ErrMemory // as a store may answer one part
			}
		}
		var d gatehouse.GrantDecision
		err := h.parts.Decide(true, &d)
		if optional && (err != nil || d.Outcome != gatehouse.Granted) || !optional && err == nil {
			t.Errorf("a release with a part that failed, optional %t, is %s, %v", optional, d.Outcome, err)
		}
	}
}
