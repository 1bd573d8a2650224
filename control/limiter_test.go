package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// each runs a property for all ways to limit.
func each(t *testing.T, property func(*rapid.T, variety)) {
	t.Helper()
	for _, v := range varieties() {
		t.Run(v.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, v) })
		})
	}
}

// TestRetryAfter: what is refused is refused until RetryAfter, and granted then. A delay says the same,
// and what can be taken is what remains.
func TestRetryAfter(t *testing.T) { each(t, checkRetryAfter) }

func checkRetryAfter(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	s := subject{kind: v.kind}
	most := capacity(v, &cmd)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Cost = rapid.Int64Range(1, most).Draw(t, "cost")
		if rapid.IntRange(0, 4).Draw(t, "forced") == 0 {
			s.stepTurn(now, &Turn{Command: &cmd, Forced: true})
		}
		d := s.step(now, cmd)
		left := d.Remaining
		if left > 0 && s.with(now, gatehouse.OpPeek, left).Outcome != gatehouse.Granted {
			t.Fatalf("%d remain, and a peek of as many is refused", left)
		}
		if left < most && s.with(now, gatehouse.OpPeek, left+1).Outcome != gatehouse.Refused {
			t.Fatalf("%d remain, and a peek of one more is granted", left)
		}
		if d.Outcome != gatehouse.Refused {
			continue
		}
		if delay := s.with(now, gatehouse.OpDelay, cmd.Cost); delay.Delay != d.RetryAfter {
			t.Fatalf("delay = %s, want the retry after of %s", delay.Delay, d.RetryAfter)
		}
		early := s.step(now.Add(d.RetryAfter-1), cmd)
		now = now.Add(d.RetryAfter)
		inTime := s.step(now, cmd)
		if early.Outcome != gatehouse.Refused || inTime.Outcome != gatehouse.Granted {
			t.Fatalf("retry %s: %s just before, %s then", d.RetryAfter, early.Outcome, inTime.Outcome)
		}
	}
}

// TestAskingChangesNothing: of twins, one is asked all the time, under its limit and under others. They
// decide the same. A peek says what an acquire gets.
func TestAskingChangesNothing(t *testing.T) { each(t, checkAsking) }

func checkAsking(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	asked, twin := subject{kind: v.kind}, subject{kind: v.kind}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Cost = rapid.Int64Range(1, capacity(v, &cmd)).Draw(t, "cost")
		ask := v.draw(t)
		ask.Op = rapid.SampledFrom([]gatehouse.Op{gatehouse.OpPeek, gatehouse.OpDelay}).Draw(t, "ask")
		asked.step(now, ask)
		asked.with(now, ask.Op, cmd.Cost)
		ask = cmd
		ask.Op = gatehouse.OpPeek
		peeked := asked.step(now, ask)
		if rapid.Bool().Draw(t, "reserve") {
			cmd.Op, cmd.Holder = gatehouse.OpReserve, fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "key"))
		} else {
			cmd.Op = gatehouse.OpAcquire
		}
		d, want := asked.step(now, cmd), twin.step(now, cmd)
		if !same(&d, &want) {
			t.Fatalf("%s %d = %+v, and %+v without being asked", cmd.Op, cmd.Cost, d, want)
		}
		as := peeked.Outcome == d.Outcome && peeked.RetryAfter == d.RetryAfter
		if cmd.Op == gatehouse.OpAcquire && !as {
			t.Fatalf("peek = %+v, acquire = %+v", peeked, d)
		}
	}
}

// same reports whether two decisions with one limit are the same.
func same(a, b *gatehouse.Decision) bool {
	return a.Outcome == b.Outcome && a.RetryAfter == b.RetryAfter && a.ResetAfter == b.ResetAfter &&
		a.Delay == b.Delay && a.Limit == b.Limit && a.Remaining == b.Remaining && a.Interval == b.Interval
}

// differ says how two states answer differently from an instant on; "" when they do not.
func differ(a, b subject, now time.Time, cmd gatehouse.Command) string {
	for _, later := range []time.Duration{0, 1, cmd.Interval / 3, cmd.Interval, cmd.Interval * 2} {
		for cost := int64(1); cost <= 12; cost++ {
			at := now.Add(later)
			got, want := a.with(at, gatehouse.OpDelay, cost), b.with(at, gatehouse.OpDelay, cost)
			if !same(&got, &want) {
				return fmt.Sprintf("%s later, a delay of %d = %+v, want %+v", later, cost, got, want)
			}
		}
	}
	return ""
}

// TestUndoRestores: what was granted and is undone is as if it had never been asked for.
func TestUndoRestores(t *testing.T) { each(t, checkUndo) }

func checkUndo(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	s, twin := subject{kind: v.kind}, subject{kind: v.kind}
	most := capacity(v, &cmd)
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Op, cmd.Cost = gatehouse.OpAcquire, rapid.Int64Range(1, most).Draw(t, "cost")
		s.step(now, cmd)
		twin.step(now, cmd)
	}
	cmd.Op = rapid.SampledFrom([]gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpReserve}).Draw(t, "op")
	cmd.Holder = rapid.SampledFrom([]string{"", "key"}).Draw(t, "key")
	before := s.with(now, gatehouse.OpStats, 0)
	d := s.step(now, cmd)
	if d.Outcome != gatehouse.Granted {
		return
	}
	if d.Delay == 0 || rapid.Bool().Draw(t, "wait") {
		now = now.Add(later(t, cmd.Interval))
	}
	if d.Reservation != 0 && !now.Before(d.At.Add(d.Delay)) {
		return // a place whose time has come is not taken back any more
	}
	s.undo(now, cmd, &d)
	after := s.with(now, gatehouse.OpStats, 0)
	if before.Stats[0] != after.Stats[0] {
		t.Fatalf("stats say %v after an undo, want %v", after.Stats[0], before.Stats[0])
	}
	if v.mode == gatehouse.ModePaced || v.mode == gatehouse.ModeClassic {
		cmd.Cost = 1 // what follows is differently spaced
	}
	if fault := differ(s, twin, now, cmd); fault != "" {
		t.Fatalf("after %s and undo of %d, granted %+v: %s", cmd.Op, cmd.Cost, d, fault)
	}
}

// TestExpiry: from its expiry on, a new state decides the same.
func TestExpiry(t *testing.T) { each(t, checkExpiry) }

func checkExpiry(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	s := subject{kind: v.kind}
	ops := []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpRefund}
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Op = rapid.SampledFrom(ops).Draw(t, "op")
		cmd.Cost = rapid.Int64Range(1, capacity(v, &cmd)).Draw(t, "cost")
		s.step(now, cmd)
	}
	if expiry := s.state.Expiry(); expiry.After(now) {
		now = expiry
	}
	fresh := subject{kind: v.kind}
	for range rapid.IntRange(1, 20).Draw(t, "more") {
		cmd.Op, cmd.Cost = gatehouse.OpAcquire, rapid.Int64Range(1, capacity(v, &cmd)).Draw(t, "cost")
		got, want := s.step(now, cmd), fresh.step(now, cmd)
		if got.Outcome != want.Outcome || got.Remaining != want.Remaining {
			t.Fatalf("acquire %d = %+v, and %+v when new", cmd.Cost, got, want)
		}
		if v.kind == gatehouse.TokenBucket {
			return // its boundaries are counted from the first use
		}
		now = now.Add(later(t, cmd.Interval))
	}
}

// TestRefundAndReset: after a refund of all, or a reset, all can be taken again; the limit stays.
func TestRefundAndReset(t *testing.T) { each(t, checkRefund) }

func checkRefund(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	s := subject{kind: v.kind}
	most := capacity(v, &cmd)
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Cost = rapid.Int64Range(1, most).Draw(t, "cost")
		before := s.step(now, cmd).Remaining
		back := rapid.Int64Range(1, most).Draw(t, "back")
		after := s.with(now, gatehouse.OpRefund, back).Remaining
		if after < before || after > min(most, before+back) {
			t.Fatalf("%d of %d remain, and %d after a refund of %d", before, most, after, back)
		}
	}
	op := rapid.SampledFrom([]gatehouse.Op{gatehouse.OpRefund, gatehouse.OpReset}).Draw(t, "op")
	d := s.with(now, op, gatehouse.MaxSize)
	if d.Remaining != most || d.Limit != most {
		t.Fatalf("after a %s of all, %d of %d remain, want %d", op, d.Remaining, d.Limit, most)
	}
	if again := s.with(now, gatehouse.OpRefund, 1); again.Remaining != most {
		t.Fatalf("after one more refund, %d remain", again.Remaining)
	}
}

// TestBehindOthers: a request that may not go only because others stand in front is told a time before which
// those cannot go, as if they wanted more than is left, and at most a second: they may as well have all they
// want here, and wait for another name.
func TestBehindOthers(t *testing.T) {
	for _, v := range varieties() {
		s := subject{kind: v.kind}
		cmd := gatehouse.Command{
			Op:   gatehouse.OpAcquire,
			Rule: gatehouse.Rule{Size: 5, Burst: 4, Interval: time.Second, Mode: v.mode}, Cost: 2,
		}
		s.step(epoch(), cmd)
		front := cmd
		front.Cost = 4
		want := min(time.Second, s.step(epoch(), front).RetryAfter)
		cmd.Cost = 1
		// All that is known about those in front: they want one at least.
		d := s.stepTurn(epoch(), &Turn{Command: &cmd, Ahead: 1})
		if d.Outcome != gatehouse.Refused || d.RetryAfter != want || d.Remaining != 3 {
			t.Errorf("%s: acquire 1 behind others = %s, retry %s, want refused, retry %s",
				v, d.Outcome, d.RetryAfter, want)
		}
	}
}

// TestKeptForEarlier: where a name has room, and is only kept for a request in front that waits for another
// name, a refusal says so. It does not say when a window or a hold ends, which may be in a day.
func TestKeptForEarlier(t *testing.T) {
	check := func(subject string, d gatehouse.Decision) {
		t.Helper()
		if d.Outcome != gatehouse.Refused || d.RetryAfter > time.Second || d.Message != keptForEarlier {
			t.Errorf("%s: kept = %s %q, retry %s, want refused %q, retry 1s at most",
				subject, d.Outcome, d.Message, d.RetryAfter, keptForEarlier)
		}
	}
	for _, v := range varieties() {
		s := subject{kind: v.kind}
		cmd := gatehouse.Command{
			Op:   gatehouse.OpAcquire,
			Rule: gatehouse.Rule{Size: 5, Burst: 4, Interval: 24 * time.Hour, Mode: v.mode}, Cost: 1,
		}
		if v.kind == gatehouse.Pace {
			continue // its next start is in hours, whatever is in front of it
		}
		s.step(epoch(), cmd)
		check(v.String(), s.stepTurn(epoch(), &Turn{Command: &cmd, Ahead: 1}))
	}
	for _, expires := range []time.Duration{0, time.Hour} {
		s := subject{kind: gatehouse.Semaphore}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: "a", Rule: gatehouse.Rule{Size: 5}, Cost: 1, Expires: expires,
		}
		s.step(epoch(), cmd)
		cmd.Holder, cmd.Explain = "b", true
		check("semaphore", s.stepTurn(epoch(), &Turn{Command: &cmd, Ahead: 1}))
	}
}
