package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// costing is a cost of a limiter.
func costing(kind gatehouse.Kind, name string, cost int64) gatehouse.MemberCost {
	return gatehouse.MemberCost{Key: keyOf(kind, name), Cost: cost}
}

// TestGrantOfTokens: of five calls that reserve 663 tokens each before they begin, those pass that fit. An
// estimate above the limit makes no sense, or is cut to it.
func TestGrantOfTokens(t *testing.T) {
	for _, c := range []struct {
		size, passed, left int64
		clip               bool
	}{{1000, 1, 337, false}, {100, 0, 100, false}, {100, 1, 0, true}, {2000, 3, 11, false}} {
		for _, v := range varieties() {
			m := ofLimit(v.kind, "tokens", c.size, 663)
			m.Mode, m.Clip = v.mode, c.clip
			h := newHouse()
			passed := h.passedOfFive(t, m)
			left := h.alone(m.Key, gatehouse.Command{Op: gatehouse.OpPeek, Rule: m.Rule}).Remaining
			calls := h.held(keyOf(gatehouse.Semaphore, "calls"))
			if passed != c.passed || left != c.left || calls != passed {
				t.Errorf("%s: %d of 5 pass under %d, and %d are left, want %d and %d", v, passed, c.size,
					left, c.passed, c.left)
			}
		}
	}
}

// passedOfFive is how many of five grants of one limiter and a slot pass.
func (h *house) passedOfFive(t *testing.T, m gatehouse.Member) (passed int64) {
	t.Helper()
	for i := range 5 {
		d, err := h.try(acquireOf(string(rune('a'+i)), m, ofSlots("calls", 9, 1)))
		if (err != nil) != (m.Size < m.Cost && !m.Clip) {
			t.Fatalf("%s: %d of %d: %v", m.Key, m.Cost, m.Size, err)
		}
		passed += boolToInt(err == nil && d.Outcome == gatehouse.Granted)
	}
	return passed
}

// TestGrantSettles: what a call has cost in the end is what counts, of requests and of tokens.
func TestGrantSettles(t *testing.T) {
	calls, tpm := keyOf(gatehouse.Semaphore, "calls"), keyOf(gatehouse.TokenBucket, "tpm")
	want := []gatehouse.Member{
		ofLimit(gatehouse.TokenBucket, "tpm", 10_000, 3200), ofSlots("calls", 2, 1),
		ofLimit(gatehouse.GCRA, "rpm", 60, 1),
	}
	about := func(op gatehouse.Op, costs ...gatehouse.MemberCost) gatehouse.GrantCommand {
		return gatehouse.GrantCommand{Op: op, ID: "x", Costs: costs}
	}
	tokens := func(n int64) gatehouse.MemberCost { return costing(gatehouse.TokenBucket, "tpm", n) }
	type step struct {
		cmd                           gatehouse.GrantCommand
		outcome                       gatehouse.Outcome
		cost, booked, capped, left, n int64 // of the tokens; n are the slots held
	}
	const granted, conflict = gatehouse.Granted, gatehouse.Conflict
	for name, c := range map[string]struct {
		overrun gatehouse.Overrun
		steps   []step
	}{
		"less, then released": {steps: []step{
			{about(gatehouse.OpSettle, tokens(1200)), granted, 1200, 0, 0, 8800, 1},
			{about(gatehouse.OpTopUp, tokens(800)), granted, 2000, 0, 0, 8000, 1},
			{about(gatehouse.OpRelease), granted, 2000, 0, 0, 8000, 0},
			{about(gatehouse.OpSettle, tokens(1)), conflict, 2000, 0, 0, 8000, 0},
			{about(gatehouse.OpRelease), conflict, 2000, 0, 0, 8000, 0},
		}},
		"more than there is": {steps: []step{
			{about(gatehouse.OpSettle, tokens(14_000)), granted, 14_000, 4000, 0, 0, 1},
			{about(gatehouse.OpSettle, tokens(14_000)), granted, 14_000, 0, 0, 0, 1},
			{about(gatehouse.OpRelease, tokens(9000)), granted, 9000, 0, 0, 1000, 0},
		}},
		"capped": {overrun: gatehouse.OverrunCap, steps: []step{
			{about(gatehouse.OpSettle, tokens(14_000)), granted, 10_000, 0, 4000, 0, 1},
			{about(gatehouse.OpRelease, tokens(12_000)), granted, 10_000, 0, 2000, 0, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, cmd := newHouse(), acquireOf("x", want...)
			cmd.Overrun = c.overrun
			h.do(t, cmd)
			for i, s := range c.steps {
				d := h.do(t, s.cmd)
				m := d.Want[0]
				got := step{s.cmd, d.Outcome, m.Cost, m.Booked, m.Capped, h.left(tpm), h.held(calls)}
				if got.outcome != s.outcome || got.cost != s.cost || got.booked != s.booked ||
					got.capped != s.capped || got.left != s.left || got.n != s.n {
					t.Fatalf("step %d: %+v, want %+v", i, got, s)
				}
			}
			if left := h.left(keyOf(gatehouse.GCRA, "rpm")); left != 59 {
				t.Errorf("%d requests left, want 59", left)
			}
		})
	}
}

// TestGrantSettlesAllOrNothing: a settle of several limiters takes effect at all of them or at none, and
// names the one that it contradicts; so does one with a name that is not the grant's.
func TestGrantSettlesAllOrNothing(t *testing.T) {
	h := newHouse()
	one, two := ofLimit(gatehouse.TokenBucket, "a", 10, 8), ofLimit(gatehouse.GCRA, "b", 10, 5)
	h.do(t, acquireOf("x", two, one))
	h.alone(two.Key, gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Interval: time.Minute, Burst: 9}, Cost: 1,
	})
	settle := gatehouse.GrantCommand{Op: gatehouse.OpSettle, ID: "x", Costs: []gatehouse.MemberCost{
		costing(gatehouse.TokenBucket, "a", 3), costing(gatehouse.GCRA, "b", 7),
	}}
	d := h.do(t, settle)
	want := "gcra/b has a size of 0, under which nothing is ever repaid"
	if d.Outcome != gatehouse.Conflict || d.Binding != 0 || d.Message != want || h.left(one.Key) != 2 {
		t.Errorf("settle under a limit of 0 = %+v with %d left", d, h.left(one.Key))
	}
	settle.Costs[1].Key.Name = "c"
	_, err := h.try(settle)
	want = "grant/x: Costs has gcra/c, want names of this grant"
	if err == nil || err.Error() != want || gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("settle of another name: %v, want %q", err, want)
	}
	d = h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpSettle, ID: "y", Costs: settle.Costs})
	want = "grant/y is not there: it never was, or ended long ago"
	if d.Outcome != gatehouse.Missing || d.Message != want {
		t.Errorf("settle of no grant = %+v", d)
	}
}

// TestGrantOutlivesItsNames: a grant is released although one of its names was deleted or reset; a renew of a
// hold that is gone is a conflict.
func TestGrantOutlivesItsNames(t *testing.T) {
	h := newHouse()
	bucket, slots, lock := ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofSlots("s", 3, 2), ofLock("l")
	h.do(t, acquireOf("x", bucket, slots, lock))
	h.alone(bucket.Key, gatehouse.Command{Op: gatehouse.OpDelete})
	renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "x", Expires: time.Minute}
	if d := h.do(t, renew); d.Outcome != gatehouse.Granted || d.Want[0].Cost != 4 {
		t.Errorf("renew without the limiter = %+v", d)
	}
	h.alone(slots.Key, gatehouse.Command{Op: gatehouse.OpDelete})
	d := h.do(t, renew)
	if d.Outcome != gatehouse.Conflict || d.Binding != 1 {
		t.Errorf("renew without the slots = %+v", d)
	}
	d = h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "x"})
	if d.Outcome != gatehouse.Granted || h.held(lock.Key) != 0 || d.Want[1].Outcome != gatehouse.Conflict {
		t.Errorf("release = %+v", d)
	}
	if h.states[bucket.Key] != nil {
		t.Error("a release has made a limiter")
	}
	// What was spent beyond is charged, even of a name that was deleted.
	h.do(t, acquireOf("y", bucket))
	h.alone(bucket.Key, gatehouse.Command{Op: gatehouse.OpDelete})
	costs := []gatehouse.MemberCost{costing(gatehouse.TokenBucket, "b", 7)}
	h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "y", Costs: costs})
	if left := h.left(bucket.Key); left != 7 {
		t.Errorf("%d left after 3 more than were taken were charged, want 7", left)
	}
}

// TestGrantEndsEverywhere: record, hold and limiter of a grant end at one instant, and agree on what counts.
func TestGrantEndsEverywhere(t *testing.T) {
	bucket, lock := ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l")
	for _, c := range []struct {
		onExpiry gatehouse.OnExpiry
		left     int64
	}{{gatehouse.ExpiryEstimate, 6}, {gatehouse.ExpiryZero, 10}, {gatehouse.ExpiryLast, 9}} {
		h, cmd := newHouse(), acquireOf("x", bucket, lock)
		cmd.OnExpiry, cmd.Expires = c.onExpiry, 10*time.Second
		h.do(t, cmd)
		settle := gatehouse.GrantCommand{Op: gatehouse.OpSettle, ID: "x"}
		settle.Costs = []gatehouse.MemberCost{costing(gatehouse.TokenBucket, "b", 1)}
		h.do(t, settle)
		peek := gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "x"}
		h.now = h.now.Add(10*time.Second - 1)
		if d := h.do(t, peek); d.Ended || h.left(bucket.Key) != 9 || h.held(lock.Key) != 1 {
			t.Errorf("%s: just before the end %+v", c.onExpiry, d)
		}
		h.now = h.now.Add(1)
		d := h.do(t, peek)
		if !d.Ended || h.left(bucket.Key) != c.left || h.held(lock.Key) != 0 || d.Want[0].Cost != 10-c.left {
			t.Errorf("%s: after the end %+v with %d left", c.onExpiry, d, h.left(bucket.Key))
		}
		again := h.do(t, cmd)
		want := "grant/x has ended, and its id is remembered"
		if again.Outcome != gatehouse.Conflict || again.Message != want {
			t.Errorf("%s: the same id again = %+v", c.onExpiry, again)
		}
	}
}
