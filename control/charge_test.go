package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// TestChargesKeepTheLimit: with acquires, places and charges in any order, what starts keeps the limit. Each
// charge is taken in full, and until it is nothing else is.
func TestChargesKeepTheLimit(t *testing.T) { each(t, checkCharges) }

func checkCharges(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	cmd.Interval = time.Duration(rapid.Int64Range(1, 40).Draw(t, "ms")) * time.Millisecond
	cmd.Guard = 0
	most := capacity(v, &cmd)
	s, y := subject{kind: v.kind}, diary{places: map[string]startRun{}}
	charged, end := int64(0), now
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		due := y.repaid(s.state, now)
		charged += due
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0, 1, 2:
			cmd.Op, cmd.Cost = gatehouse.OpAcquire, rapid.Int64Range(1, most).Draw(t, "cost")
			d := s.step(now, cmd)
			y.acquire(t, d, cmd, now)
			if d.Outcome == gatehouse.Granted && now.Before(end) {
				t.Fatalf("acquire granted at %s, before a charge was taken at %s", now, end)
			}
		case 3:
			cmd.Op, cmd.Cost = gatehouse.OpReserve, rapid.Int64Range(1, most).Draw(t, "cost")
			y.reserve(t, s.step(now, cmd), cmd, now)
		default:
			cmd.Op, cmd.Cost = gatehouse.OpCharge, rapid.Int64Range(1, 4*most).Draw(t, "cost")
			before := debtOf(s.state) - due
			d := s.step(now, cmd)
			free := cmd.Cost + before - debtOf(s.state)
			if d.Outcome != gatehouse.Granted || free < 0 || d.Delay < 0 {
				t.Fatalf("charge %d = %s after %s, %d of it now", cmd.Cost, d.Outcome, d.Delay, free)
			}
			if free > 0 {
				y.start(startRun{now.UnixNano(), free})
			}
			charged -= cmd.Cost - free
			end = now.Add(d.Delay)
		}
	}
	charged += y.repaid(s.state, now.Add(10_000*time.Hour))
	if charged != 0 {
		t.Fatalf("%d more was taken than charged", charged)
	}
	y.check(t, v, &cmd)
}

// repaid notes the pieces of the debt that have started by now, and returns how much that is.
func (y *diary) repaid(s State, now time.Time) (n int64) {
	if s == nil || s.(interface{ limiterBase() *limiterCore }).limiterBase().extra == nil {
		return 0
	}
	for _, p := range s.(interface{ limiterBase() *limiterCore }).limiterBase().extra.reservations {
		if p.isDebt && p.at <= now.UnixNano() {
			y.start(startRun{p.at, p.n})
			n += p.n
		}
	}
	return n
}

func debtOf(s State) int64 {
	if s == nil {
		return 0
	}
	return s.(interface{ limiterBase() *limiterCore }).limiterBase().totalDebt()
}

// TestSmallChargesAreOne: however a sum is charged, the debt is the same, and nothing is let through earlier.
func TestSmallChargesAreOne(t *testing.T) { each(t, checkSmallCharges) }

func checkSmallCharges(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	most := capacity(v, &cmd)
	one, many := subject{kind: v.kind}, subject{kind: v.kind}
	cmd.Cost = most
	one.step(now, cmd)
	many.step(now, cmd)
	sum := int64(0)
	cmd.Op = gatehouse.OpCharge
	for range rapid.IntRange(1, 20).Draw(t, "charges") {
		cmd.Cost = rapid.Int64Range(1, 2*most).Draw(t, "cost")
		sum += cmd.Cost
		many.step(now, cmd)
	}
	cmd.Cost = sum
	a, b := one.step(now, cmd), many.with(now, gatehouse.OpPeek, 0)
	if a.ResetAfter != b.ResetAfter || debtOf(one.state) != debtOf(many.state) {
		t.Fatalf("all is back after %s with a debt of %d, and after %s with %d", a.ResetAfter,
			debtOf(one.state), b.ResetAfter, debtOf(many.state))
	}
}
