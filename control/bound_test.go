package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// overAdmitted says what is broken when one more than is promised was let through up to the last start
// of the record; "" when nothing is. These are the promises of docs/controllers.
func overAdmitted(v variety, cmd *gatehouse.Command, r record) string {
	at, size, w := r[len(r)-1].at, cmd.Size, int64(cmd.Interval)
	last := r.within(at-w, at)
	aligned := r.aligned(at, cmd.Interval)
	switch {
	case v.exact() && last > size:
		return "more than the size in an interval"
	case v.kind == gatehouse.TokenBucket && last > 2*size:
		return "more than twice the size in an interval"
	case v.kind == gatehouse.FixedWindow && (last > 2*size || aligned > size):
		return "more than the size in a window, or than twice that in an interval"
	case v.kind == gatehouse.SlidingWindow && v.mode == gatehouse.ModeDefault:
		if last > 2*size || aligned > size {
			return "more than the size in a window, or than twice that in an interval"
		}
	case v.mode == gatehouse.ModeFine:
		part := (w + partsPerWindow - 1) / partsPerWindow
		oldest := (at - w + 1) / part // the part in which the interval begins
		if excess := last - size; excess > r.within(oldest*part-1, (oldest+1)*part-1) {
			return "more than the size and what was in the oldest part"
		}
	case v.kind == gatehouse.GCRA:
		step := w / size
		for _, first := range r {
			if r.within(first.at-1, at) > cmd.Burst+1+(at-first.at)/step {
				return "more than the burst, one, and what came back"
			}
		}
	}
	return ""
}

// reach is how far back what counts can lie at most: what is refused would be one too many in that time.
func reach(v variety, cmd *gatehouse.Command) int64 {
	w := int64(cmd.Interval)
	switch {
	case v.kind == gatehouse.GCRA:
		return w / cmd.Size * (cmd.Burst + 1)
	case v.mode == gatehouse.ModeFine || v.mode == gatehouse.ModeStrict:
		return w + (w+partsPerWindow-1)/partsPerWindow
	case v.kind == gatehouse.SlidingWindow:
		return 2 * w
	}
	return w + int64(cmd.Guard)
}

// TestBounds holds every way to limit to what it may let through too much, and refuse too much.
func TestBounds(t *testing.T) {
	for _, v := range varieties() {
		t.Run(v.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkBounds(t, v) })
		})
	}
}

func checkBounds(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	s, log := subject{kind: v.kind}, record{}
	most := capacity(v, &cmd)
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		at := now.UnixNano()
		cmd.Cost = rapid.Int64Range(1, min(most, 4)).Draw(t, "cost")
		d := s.step(now, cmd)
		counted := log.within(at-reach(v, &cmd), at)
		switch d.Outcome {
		case gatehouse.Granted:
			log = append(log, startRun{at, cmd.Cost})
			if broken := overAdmitted(v, &cmd, log); broken != "" {
				t.Fatalf("at %d: acquire %d = granted: %s; %v", at, cmd.Cost, broken, log)
			}
		case gatehouse.Refused:
			if counted+cmd.Cost <= most {
				t.Fatalf("at %d: acquire %d = refused with %d of %d taken; %v",
					at, cmd.Cost, counted, most, log)
			}
		default:
			t.Fatalf("at %d: acquire %d = %s", at, cmd.Cost, d.Outcome)
		}
	}
}

// TestExactKeepsOthers: what passes a limiter that keeps every interval passes those that count in windows
// of their own, or evenly, under the same limit.
func TestExactKeepsOthers(t *testing.T) {
	for _, v := range varieties() {
		if v.exact() {
			t.Run(v.String(), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { checkOthers(t, v) })
			})
		}
	}
}

func checkOthers(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	cmd.Guard, cmd.Interval = 0, max(cmd.Interval, time.Duration(cmd.Size))
	ours := subject{kind: v.kind}
	others := []subject{{kind: gatehouse.TokenBucket}, {kind: gatehouse.FixedWindow}, {kind: gatehouse.GCRA}}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Cost = rapid.Int64Range(1, cmd.Size).Draw(t, "cost")
		if ours.step(now, cmd).Outcome != gatehouse.Granted {
			continue
		}
		for i := range others {
			theirs := cmd
			theirs.Mode, theirs.Burst = gatehouse.ModeDefault, cmd.Size-1
			if d := others[i].step(now, theirs); d.Outcome != gatehouse.Granted {
				t.Fatalf("%s refuses %d at %d", others[i].kind, cmd.Cost, now.UnixNano())
			}
		}
	}
}

// TestLateBurst is the worst that an estimate lets through, almost twice its size in one interval, beside
// what the others let through then.
func TestLateBurst(t *testing.T) {
	want := map[variety]int64{
		{kind: gatehouse.TokenBucket}: 200, {kind: gatehouse.GCRA}: 199, {kind: gatehouse.FixedWindow}: 200,
		{kind: gatehouse.SlidingWindow}:                 199,
		{gatehouse.SlidingWindow, gatehouse.ModeFine}:   120,
		{gatehouse.SlidingWindow, gatehouse.ModeStrict}: 100,
		{kind: gatehouse.SlidingLog}:                    100,
		{kind: gatehouse.Pace}:                          100,
		{gatehouse.Pace, gatehouse.ModePaced}:           100,
		{gatehouse.Pace, gatehouse.ModeClassic}:         100,
	}
	for _, v := range varieties() {
		s, log, worst := subject{kind: v.kind}, record{}, int64(0)
		cmd := gatehouse.Command{
			Op:   gatehouse.OpAcquire,
			Rule: gatehouse.Rule{Size: 100, Burst: 99, Interval: time.Second, Mode: v.mode}, Cost: 1,
		}
		// A token bucket's boundaries are to be here too. Then as many as go, from shortly before the
		// end of a second to the end of the next.
		s.step(epoch(), cmd)
		s.with(epoch(), gatehouse.OpReset, 0)
		for now := epoch().Add(990 * time.Millisecond); now.Before(epoch().Add(2 * time.Second)); {
			if s.step(now, cmd).Outcome == gatehouse.Granted {
				log = append(log, startRun{now.UnixNano(), 1})
				worst = max(worst, log.within(now.Add(-time.Second).UnixNano(), now.UnixNano()))
			}
			now = now.Add(50 * time.Microsecond)
		}
		if worst != want[v] {
			t.Errorf("%s let %d through within a second, want %d", v, worst, want[v])
		}
	}
}
