package control

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// drawExtreme returns a turn of any valid command of a limiter, with numbers at the ends of what is allowed.
func drawExtreme(t *rapid.T, v variety) (turn *Turn, ok bool) {
	sizes := []int64{0, 1, 2, maxExact, maxExact + 1, gatehouse.MaxSize - 1, gatehouse.MaxSize}
	intervals := []time.Duration{
		1, 2, 59, 60, 61, time.Millisecond, time.Second, gatehouse.MaxDuration - 1, gatehouse.MaxDuration,
	}
	ops := []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpReserve, gatehouse.OpPeek,
		gatehouse.OpDelay, gatehouse.OpCancel, gatehouse.OpRefund, gatehouse.OpReset, gatehouse.OpStats,
		gatehouse.OpCharge, gatehouse.OpFeedback,
	}
	cmd := gatehouse.Command{
		Op:     rapid.SampledFrom(ops).Draw(t, "op"),
		Holder: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"),
		Rule: gatehouse.Rule{
			Size:     rapid.SampledFrom(sizes).Draw(t, "size"),
			Burst:    rapid.SampledFrom(sizes).Draw(t, "burst"),
			Interval: rapid.SampledFrom(intervals).Draw(t, "interval"),
			Mode:     v.mode,
		},
	}
	cmd.Cost = rapid.SampledFrom([]int64{1, max(1, cmd.Size), max(1, cmd.Burst), 7}).Draw(t, "cost")
	switch rapid.IntRange(0, 8).Draw(t, "shape") {
	case 0:
		cmd.Guard = rapid.SampledFrom(intervals).Draw(t, "guard")
	case 1:
		cmd.Calendar = rapid.SampledFrom([]gatehouse.Calendar{gatehouse.Day, gatehouse.Month}).Draw(t, "unit")
		cmd.Zone = "Europe/Berlin"
	case 2:
		cmd.Limits = gatehouse.NewLimitList([]gatehouse.Limit{
			{Size: max(1, cmd.Size), Interval: 3}, {Size: cmd.Burst, Interval: time.Hour},
			{Size: 5, Calendar: gatehouse.Week}, {Size: gatehouse.MaxSize, Interval: gatehouse.MaxDuration},
		}...)
	case 3:
		modes := []gatehouse.Mode{gatehouse.ModeDefault, gatehouse.ModeFine, gatehouse.ModeClassic}
		cmd.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
	}
	if rapid.IntRange(0, 8).Draw(t, "in force") == 0 {
		cmd.Size = gatehouse.InForce
	}
	if cmd.Op == gatehouse.OpFeedback {
		cmd.Feedback = drawFeedback(t, append(slices.Clone(intervals), 0))
	}
	turn = &Turn{Command: &cmd}
	turn.Forced = cmd.Op == gatehouse.OpAcquire && rapid.IntRange(0, 5).Draw(t, "forced") == 0
	return turn, cmd.Check(gatehouse.Key{Kind: v.kind, Name: "extreme"}) == nil
}

// TestExtremes: whatever valid command comes after whatever other, nothing overflows: every figure is in
// its range, a promise is kept within a hundred years, and no more remains than the limit.
func TestExtremes(t *testing.T) { each(t, checkExtremes) }

func checkExtremes(t *rapid.T, v variety) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pauses := []time.Duration{0, 0, 0, 1, time.Second, 3 * time.Hour, gatehouse.MaxDuration / 8}
	s, years := subject{kind: v.kind}, now.Add(gatehouse.MaxDuration)
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		if pause := rapid.SampledFrom(pauses).Draw(t, "pause"); now.Add(pause).Before(years) {
			now = now.Add(pause)
		}
		turn, ok := drawExtreme(t, v)
		if !ok {
			continue
		}
		cmd := turn.Command
		d := s.stepTurn(now, turn)
		if d.Remaining < 0 || d.Remaining > d.Limit || d.Limit < 0 || d.Limit > gatehouse.MaxSize ||
			d.ResetAfter < 0 || d.Interval < 0 || d.Delay < 0 || d.Delay > gatehouse.MaxDuration ||
			d.RetryAfter < gatehouse.Forever || d.RetryAfter > gatehouse.MaxDuration {
			t.Fatalf("at %s: %+v = %+v", now, cmd, d)
		}
		if d.Outcome == gatehouse.Refused && d.RetryAfter == 0 {
			t.Fatalf("at %s: %+v = refused, but not for how long", now, cmd)
		}
		takes := cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpReserve
		if !takes || d.Outcome != gatehouse.Granted {
			continue
		}
		if expiry := s.state.Expiry(); len(d.Windows) == 0 && expiry.Before(now.Add(d.ResetAfter)) {
			t.Fatalf("at %s: %+v = %+v, but expires at %s", now, cmd, d, expiry)
		}
		if rapid.IntRange(0, 5).Draw(t, "undo") == 0 {
			s.undo(now, *cmd, &d)
		}
	}
}
