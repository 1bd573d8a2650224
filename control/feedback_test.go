package control

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// drawFeedback draws any valid report, with times of these.
func drawFeedback(t *rapid.T, times []time.Duration) *gatehouse.Feedback {
	length := rapid.SampledFrom(times)
	return &gatehouse.Feedback{
		Status:     rapid.SampledFrom([]int{100, 200, 404, 429, 429, 500, 503, 599}).Draw(t, "status"),
		RetryAfter: length.Draw(t, "retry after"),
		Remaining:  rapid.SampledFrom([]int64{0, 1, 2, gatehouse.MaxSize}).Draw(t, "remaining"),
		Reset:      length.Draw(t, "reset"),
		MaxPause:   length.Draw(t, "max pause"),
		Seed:       rapid.Uint64().Draw(t, "seed"),
	}
}

// anyFeedback is a report about some seconds.
func anyFeedback(random *rand.Rand) *gatehouse.Feedback {
	return &gatehouse.Feedback{
		Status:     []int{200, 429, 503}[random.IntN(3)],
		RetryAfter: time.Duration(random.IntN(3)) * time.Second,
		Remaining:  random.Int64N(9),
		Reset:      time.Duration(random.IntN(9)) * time.Second,
		Seed:       random.Uint64(),
	}
}

// A pauseModel is what was reported, told apart from the state by the words of docs/feedback.md.
type pauseModel struct {
	from, until time.Time
	strikes     int
	granted     float64 // since the pause ended
}

// report notes a report at an instant.
func (m *pauseModel) report(now time.Time, f *gatehouse.Feedback) {
	switch {
	case f.Status == 200 || f.Status == 404:
		m.strikes = 0
		return
	case f.Status != 429 && (f.Status != 503 || f.RetryAfter == 0):
		return
	}
	length := f.RetryAfter
	if length == 0 {
		length = time.Second << m.strikes
		m.strikes++
	}
	length = min(length, f.MaxPause)
	if !now.Before(m.until) {
		*m = pauseModel{from: now, until: now, strikes: m.strikes}
	}
	if end := now.Add(length); end.After(m.until) {
		m.until = end
	}
}

func (m *pauseModel) ramp() time.Duration { return min(m.until.Sub(m.from), 30*time.Second) }

// allowed is how long the whole rate would take for what the ramp has let through by an instant.
func (m *pauseModel) allowed(now time.Time) float64 {
	x := now.Sub(m.until).Seconds()
	return x/10 + 0.45*x*x/m.ramp().Seconds()
}

// TestPauses: nothing is granted between a report and the end of its pause, on the ramp never more than its
// rate lets through, and afterwards everything as without. What is refused is refused until the time it is
// told, and no longer.
func TestPauses(t *testing.T) { each(t, checkPauses) }

func checkPauses(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	cmd.Interval = time.Duration(rapid.Int64Range(1, 2000).Draw(t, "ms")) * time.Millisecond
	cmd.Guard = 0
	most := capacity(v, &cmd)
	held, free := subject{kind: v.kind}, subject{kind: v.kind}
	held.step(now, cmd)
	free.step(now, cmd)
	var model pauseModel
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, max(cmd.Interval, model.until.Sub(model.from)/2)))
		if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
			reportPause(t, &held, &model, now)
			continue
		}
		cmd.Cost = rapid.Int64Range(1, min(most, 4)).Draw(t, "cost")
		checkRefusalTime(t, held, now, cmd)
		d, without := held.step(now, cmd), free.with(now, gatehouse.OpPeek, cmd.Cost)
		paused, end := now.Before(model.until), model.until.Add(model.ramp())
		switch granted := d.Outcome == gatehouse.Granted; {
		case granted && without.Outcome != gatehouse.Granted:
			t.Fatalf("at %s: %d = granted, and refused without a report", now, cmd.Cost)
		case granted && paused:
			t.Fatalf("at %s: %d = granted, paused until %s", now, cmd.Cost, model.until)
		case granted && now.Before(end):
			model.granted += float64(cmd.Cost) * cmd.Interval.Seconds() / float64(cmd.Size)
			if allowed := model.allowed(now); model.granted > allowed+1e-9 {
				t.Fatalf("at %s: the ramp has let %g s through, want at most %g", now, model.granted, allowed)
			}
		case !now.Before(end) && (d.Outcome != without.Outcome || d.RetryAfter != without.RetryAfter ||
			!granted && d.Remaining != without.Remaining || d.Reported != nil):
			t.Fatalf("at %s, after %s: %d = %+v, and without a report %+v", now, end, cmd.Cost, d, without)
		}
		if d.Outcome == gatehouse.Granted {
			free.step(now, cmd)
		}
	}
}

// reportPause reports something, and looks whether the pause is as it should be.
func reportPause(t *rapid.T, s *subject, model *pauseModel, now time.Time) {
	f := gatehouse.Feedback{
		Status:   rapid.SampledFrom([]int{200, 404, 429, 429, 429, 500, 503}).Draw(t, "status"),
		MaxPause: 20 * time.Second,
	}
	if rapid.Bool().Draw(t, "named") {
		f.RetryAfter = time.Duration(rapid.Int64Range(1, 25_000).Draw(t, "retry after")) * time.Millisecond
	}
	model.report(now, &f)
	d := s.step(now, gatehouse.Command{
		Op: gatehouse.OpFeedback, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Feedback: &f,
	})
	end := model.until.Add(model.ramp())
	switch r := d.Reported; {
	case d.Outcome != gatehouse.Granted:
		t.Fatalf("at %s: feedback %+v = %s %s", now, f, d.Outcome, d.Message)
	case !now.Before(end) && r == nil:
	case r == nil || r.PausedFor != max(0, model.until.Sub(now)) || r.RampFor != end.Sub(now):
		t.Fatalf("at %s: feedback %+v = %+v, want a pause until %s and a ramp until %s", now, f, r,
			model.until, end)
	}
}

// checkRefusalTime asks a copy whether a command is refused until the time it is told, and no longer.
func checkRefusalTime(t *rapid.T, s subject, now time.Time, cmd gatehouse.Command) {
	copied := subject{kind: s.kind, state: decoded(t, s.kind, s.state)}
	cmd.Op = gatehouse.OpPeek
	d := copied.step(now, cmd)
	if d.Outcome != gatehouse.Refused {
		return
	}
	if before := copied.step(now.Add(d.RetryAfter-1), cmd); before.Outcome != gatehouse.Refused {
		t.Fatalf("at %s: %d = refused for %s, and %s 1 ns before",
			now, cmd.Cost, d.RetryAfter, before.Outcome)
	}
	if then := copied.step(now.Add(d.RetryAfter), cmd); then.Outcome != gatehouse.Granted {
		t.Fatalf("at %s: %d = refused for %s, and then %s for %s", now, cmd.Cost, d.RetryAfter, then.Outcome,
			then.RetryAfter)
	}
}

// feedback is a report under the limit in force.
func feedback(f gatehouse.Feedback) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpFeedback, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Feedback: &f,
	}
}

// TestJitter: a pause is longer by up to a tenth, and never longer than the longest. It is drawn from the
// seed and the instant alone.
func TestJitter(t *testing.T) {
	lengths := map[time.Duration]bool{}
	shortest, longest := time.Hour, time.Duration(0)
	pause := func(seed uint64, at, maxPause time.Duration) time.Duration {
		s, now := subject{kind: gatehouse.GCRA}, epoch().Add(at)
		s.step(now, inMinute(0))
		return s.step(now, feedback(gatehouse.Feedback{
			Status: 429, RetryAfter: 100 * time.Second, Seed: seed, MaxPause: maxPause,
		})).Reported.PausedFor
	}
	for i := range 1000 {
		seed, at := uint64(i/10+1), time.Duration(i%10) //nolint:gosec // it is small
		d := pause(seed, at, 0)
		if again := pause(seed, at, 0); again != d {
			t.Fatalf("of seed %d at %s the pause is %s, and then %s", seed, at, d, again)
		}
		lengths[d], shortest, longest = true, min(shortest, d), max(longest, d)
		if d := pause(seed, at, 100*time.Second); d != 100*time.Second {
			t.Errorf("the pause is %s, want at most 100s", d)
		}
	}
	if len(lengths) < 990 || shortest < 100*time.Second || shortest > 100500*time.Millisecond ||
		longest > 110*time.Second || longest < 109500*time.Millisecond {
		t.Errorf("%d pauses from %s to %s, want all from 100s to 110s", len(lengths), shortest, longest)
	}
}

// TestAdoptedForNearestWindow: what is left by the third party's count is for the limit whose window ends
// nearest to the reset.
func TestAdoptedForNearestWindow(t *testing.T) {
	for _, v := range varieties() {
		for want, reset := range []time.Duration{time.Second, 50 * time.Second, 50 * time.Minute} {
			s, cmd := subject{kind: v.kind}, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1}
			cmd.Mode = v.mode
			cmd.Limits = gatehouse.NewLimitList(
				gatehouse.Limit{Size: 10, Interval: time.Second},
				gatehouse.Limit{Size: 20, Interval: time.Minute},
				gatehouse.Limit{Size: 30, Interval: time.Hour})
			now := epoch().Add(-40 * time.Second) // when a window of a minute begins
			s.step(now, cmd)
			d := s.step(now, feedback(gatehouse.Feedback{Status: 200, Remaining: 2, Reset: reset}))
			left := make([]bool, 3)
			for i, w := range d.Windows {
				left[i] = w.Remaining == 2
			}
			if slices.Index(left, true) != want || slices.Contains(left[want+1:], true) {
				t.Errorf("%s: with a reset after %s the limits have %+v, want 2 of the one at %d",
					v, reset, d.Windows, want)
			}
		}
	}
}

// TestEndPause: an open ends all that was reported to a name.
func TestEndPause(t *testing.T) {
	for _, v := range varieties() {
		s, cmd := subject{kind: v.kind}, inMinute(v.mode)
		before := s.step(epoch(), cmd)
		s.step(epoch(), feedback(gatehouse.Feedback{Status: 429, Remaining: 1, Reset: time.Minute}))
		weight := s.state.Weight()
		s.with(epoch(), gatehouse.OpOpen, 0)
		if left := s.state.Weight(); left >= weight {
			t.Errorf("%s: it weighs %d when its pause was ended, and %d before", v, left, weight)
		}
		d := s.with(epoch(), gatehouse.OpPeek, 1)
		if d.Outcome != gatehouse.Granted || d.Remaining != before.Remaining || d.Reported != nil {
			t.Errorf("%s: peek after the pause was ended = %+v, want %d left", v, d, before.Remaining)
		}
	}
}

// TestNoChunkWhileReported: while anything that was reported holds back, no chunk is lent, and a chunk that
// comes back gives nothing to the pause.
func TestNoChunkWhileReported(t *testing.T) {
	for _, test := range []struct {
		kind gatehouse.Kind
		size int64
	}{
		{gatehouse.TokenBucket, 9},
		{gatehouse.FixedWindow, 9},
		{gatehouse.TokenBucket, 60000}, // the ramp has room for a chunk of one
	} {
		s, cmd, kind := subject{kind: test.kind}, inMinute(0), test.kind
		cmd.Size, cmd.Burst = test.size, test.size-1
		chunk := func(now time.Time, holder uint64) gatehouse.Decision {
			return s.stepTurn(now, &Turn{Command: &cmd, Chunk: &Chunk{Holder: holder}})
		}
		if d := chunk(epoch(), 1); d.Outcome != gatehouse.Granted {
			t.Fatalf("%s: chunk = %s", kind, d.Outcome)
		}
		s.step(epoch(), feedback(gatehouse.Feedback{Status: 429, RetryAfter: 4 * time.Second}))
		for _, at := range []time.Duration{0, 4*time.Second - 1, 4 * time.Second, 8*time.Second - 1} {
			d := chunk(epoch().Add(at), 2)
			if d.Outcome != gatehouse.Refused || d.RetryAfter <= 0 || d.Reported == nil {
				t.Errorf("%s after %s: chunk = %+v, want it refused by the report", kind, at, d)
			}
		}
		one := s.step(epoch().Add(8*time.Second-1), cmd)
		if fits := test.size > 9; fits != (one.Outcome == gatehouse.Granted) {
			t.Errorf("%s: one alone at the end of the ramp = %+v, want it granted: %t", kind, one, fits)
		}
		if d := chunk(epoch().Add(8*time.Second), 2); d.Outcome != gatehouse.Granted {
			t.Errorf("%s after the ramp: chunk = %+v", kind, d)
		}
	}
}

// TestWaitersAreHeldInOrder: those who wait are let through in their order, no earlier than the ramp has room
// for all of them so far.
func TestWaitersAreHeldInOrder(t *testing.T) {
	state, now := State(nil), epoch()
	cmd := inMinute(0)
	cmd.Size, cmd.Burst, cmd.MaxWait = 600, 599, gatehouse.Forever
	report := feedback(gatehouse.Feedback{Status: 429, RetryAfter: 10 * time.Second})
	report.Rule = cmd.Rule
	state = Serve(now, gatehouse.GCRA, state, []Turn{{Command: &report}})
	queue := make([]Turn, 30)
	for i := range queue {
		queue[i] = Turn{Command: &cmd, Ticket: Ticket(i + 1)}
	}
	model := pauseModel{from: now, until: now.Add(10 * time.Second)}
	for len(queue) > 0 {
		state = Serve(now, gatehouse.GCRA, state, queue)
		for len(queue) > 0 && queue[0].Decision.Outcome == gatehouse.Granted {
			model.granted += 0.1
			if now.Before(model.until) || model.granted > model.allowed(now)+1e-9 {
				t.Fatalf("after %s %g s are through", now.Sub(epoch()), model.granted)
			}
			queue = queue[1:]
		}
		for i := range queue {
			if queue[i].Decision.Outcome != gatehouse.Refused || queue[i].Decision.Message != "" {
				t.Fatalf("the waiter at %d = %+v", i, queue[i].Decision)
			}
			queue[i].Again = true
		}
		if len(queue) > 0 {
			now = now.Add(queue[0].Decision.RetryAfter)
		}
	}
	if last := now.Sub(epoch()); last < 17129*time.Millisecond || last > 17130*time.Millisecond {
		t.Errorf("the last was let through after %s, want the 30th of the ramp's sum", last)
	}
}

// TestAdoptedIsKept: until its reset no more is let through than a third party has left, less what was taken
// back since; and then everything as without.
func TestAdoptedIsKept(t *testing.T) { each(t, checkAdopted) }

func checkAdopted(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	most := capacity(v, &cmd)
	s, free := subject{kind: v.kind}, subject{kind: v.kind}
	s.step(now, cmd)
	free.step(now, cmd)
	left, reset := rapid.Int64Range(0, 12).Draw(t, "left"), 1+later(t, 9*cmd.Interval)
	before := s.with(now, gatehouse.OpPeek, 0).Remaining
	d := s.step(now, feedback(gatehouse.Feedback{Status: 200, Remaining: left, Reset: reset}))
	if adopted := d.Reported != nil; adopted != (left < before) || d.Remaining != min(left, before) {
		t.Fatalf("with %d left, a remaining of %d is answered %+v", before, left, d)
	}
	reported, end := now, now.Add(reset)
	if left >= before {
		return
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		cmd.Cost = rapid.Int64Range(1, min(most, 4)).Draw(t, "cost")
		checkRefusalTime(t, s, now, cmd)
		d, without := s.step(now, cmd), free.with(now, gatehouse.OpPeek, cmd.Cost)
		wants := without.Outcome == gatehouse.Granted && (cmd.Cost <= left || !now.Before(end))
		if granted := d.Outcome == gatehouse.Granted; granted != wants {
			t.Fatalf("at %s: %d = %s with %d left until %s, and %s without",
				now, cmd.Cost, d.Outcome, left, end, without.Outcome)
		}
		if d.Outcome != gatehouse.Granted {
			continue
		}
		// What is given back of the very instant of the report is not counted: TestTakenAtTheReport.
		if now.After(reported) && now.Before(end) && rapid.IntRange(0, 2).Draw(t, "undo") == 0 {
			s.undo(now, cmd, &d)
			continue
		}
		free.step(now, cmd)
		left -= cmd.Cost
	}
}

// What was taken at the very instant of a report may have reached the third party before it. So it gives
// nothing back to the figure of the report.
func TestTakenAtTheReport(t *testing.T) {
	s, rule := subject{kind: gatehouse.SlidingLog}, gatehouse.Rule{Size: 100, Interval: time.Minute}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 5}
	early := s.step(epoch(), cmd)
	s.step(epoch(), feedback(gatehouse.Feedback{Status: 200, Remaining: 3, Reset: time.Minute}))
	three := cmd
	three.Cost = 3
	if d := s.step(epoch(), three); d.Outcome != gatehouse.Granted {
		t.Fatalf("three that remain = %+v", d)
	}
	s.undo(epoch(), cmd, &early)
	if d := s.step(epoch(), three); d.Outcome != gatehouse.Refused {
		t.Errorf("three more, behind an undo of five of the same instant = %+v, want refused", d)
	}
}
