package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// drawLimits returns two to four limits, in order, some of them with a window of the calendar.
func drawLimits(t *rapid.T, kind gatehouse.Kind) []gatehouse.Limit {
	var limits []gatehouse.Limit
	interval := int64(0)
	for range rapid.IntRange(2, 4).Draw(t, "limits") {
		interval += rapid.Int64Range(1, 400).Draw(t, "further")
		limits = append(limits, gatehouse.Limit{
			Size:     rapid.Int64Range(1, 12).Draw(t, "size"),
			Interval: time.Duration(interval) * time.Microsecond,
		})
	}
	if rapid.Bool().Draw(t, "of the calendar") {
		last := &limits[len(limits)-1]
		last.Interval, last.Calendar = 0, gatehouse.Day
		last.Size = rapid.Int64Range(1, 40).Draw(t, "day")
	}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1}
	cmd.Limits = gatehouse.NewLimitList(limits...)
	if err := cmd.Check(gatehouse.Key{Kind: kind, Name: "several"}); err != nil {
		t.Fatal(err)
	}
	return limits
}

// single is the command that asks one of several limits alone.
func single(cmd gatehouse.Command, i int) gatehouse.Command {
	limit := cmd.Limits.At(i)
	cmd.Size, cmd.Interval, cmd.Calendar = limit.Size, limit.Interval, limit.Calendar
	cmd.Limits, cmd.Burst = gatehouse.LimitList{}, limit.Size-1
	return cmd
}

// TestSeveralAgainstSingles: several limits let through what as many limiters with one each do, which are
// all asked first and then all charged. Who is refused by one is charged by none.
func TestSeveralAgainstSingles(t *testing.T) { each(t, checkSeveral) }

func checkSeveral(t *rapid.T, v variety) {
	limits := drawLimits(t, v.kind)
	rule := gatehouse.Rule{Limits: gatehouse.NewLimitList(limits...), Mode: v.mode}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule}
	// Just before midnight UTC, so that days end too.
	now := time.Unix(86_400*15_000, -rapid.Int64Range(1, 10_000_000).Draw(t, "before"))
	s, singles, most := subject{kind: v.kind}, make([]subject, len(limits)), int64(12)
	for i, limit := range limits {
		singles[i].kind = v.kind
		most = min(most, limit.Size)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, limits[0].Interval))
		cmd.Cost = rapid.Int64Range(1, most).Draw(t, "cost")
		alone, all, retry := make([]gatehouse.Decision, len(limits)), true, time.Duration(0)
		for i := range singles {
			ask := single(cmd, i)
			ask.Op = gatehouse.OpPeek
			alone[i] = singles[i].step(now, ask)
			all = all && alone[i].Outcome == gatehouse.Granted
			retry = max(retry, alone[i].RetryAfter)
		}
		d := s.step(now, cmd)
		if all != (d.Outcome == gatehouse.Granted) || d.RetryAfter != retry {
			t.Fatalf("acquire %d of %v = %+v; one by one %+v", cmd.Cost, limits, d, alone)
		}
		if all {
			for i := range singles {
				alone[i] = singles[i].step(now, single(cmd, i))
			}
		}
		checkWindows(t, &d, limits, alone)
	}
}

// checkWindows compares what is said about every limit with what that says alone, and the one that is
// told of first with the others.
func checkWindows(t *rapid.T, d *gatehouse.Decision, limits []gatehouse.Limit, alone []gatehouse.Decision) {
	first := false
	for i, w := range d.Windows {
		a := &alone[i]
		if w.Limit != limits[i] || w.Remaining != a.Remaining || w.RetryAfter != a.RetryAfter ||
			w.ResetAfter != a.ResetAfter {
			t.Fatalf("limit %v = %+v, alone %+v", limits[i], w, a)
		}
		first = first || d.Limit == a.Limit && d.Remaining == a.Remaining && d.ResetAfter == a.ResetAfter &&
			d.Interval == a.Interval && d.RetryAfter == a.RetryAfter
		if d.Outcome == gatehouse.Granted && w.Remaining < d.Remaining {
			t.Fatalf("%d remain, but %d of %v", d.Remaining, w.Remaining, limits[i])
		}
	}
	if !first {
		t.Fatalf("decision %+v is about none of %v", d, limits)
	}
}

// TestSeveralUndo: an undo gives back under every limit; a refund and a reset too.
func TestSeveralUndo(t *testing.T) { each(t, checkSeveralUndo) }

func checkSeveralUndo(t *rapid.T, v variety) {
	limits := drawLimits(t, v.kind)
	rule := gatehouse.Rule{Limits: gatehouse.NewLimitList(limits...), Mode: v.mode}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 1}
	now, s := origin(t), subject{kind: v.kind}
	for range rapid.IntRange(1, 10).Draw(t, "steps") {
		now = now.Add(later(t, limits[0].Interval))
		cmd.Op = rapid.SampledFrom([]gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpReserve}).Draw(t, "op")
		s.step(now, cmd)
	}
	cmd.Holder = rapid.SampledFrom([]string{"", "key"}).Draw(t, "key")
	before := s.with(now, gatehouse.OpPeek, 0)
	granted := s.step(now, cmd)
	if granted.Outcome != gatehouse.Granted {
		return
	}
	s.undo(now, cmd, &granted)
	after := s.with(now, gatehouse.OpPeek, 0)
	for i, w := range before.Windows {
		if w != after.Windows[i] {
			t.Fatalf("%v before and %v after an undo of %+v", before.Windows, after.Windows, granted)
		}
	}
	s.with(now, gatehouse.OpReset, 0)
	for _, w := range s.with(now, gatehouse.OpPeek, 0).Windows {
		if w.Remaining != w.Limit.Size {
			t.Fatalf("%+v after a reset", w)
		}
	}
}
