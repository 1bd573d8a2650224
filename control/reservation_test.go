package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A diary is a record of what starts when somebody may change their mind. What was refunded is taken for
// what was oldest, because nobody says what was meant.
type diary struct {
	starts record
	places map[string]startRun // that lie ahead and can be cancelled
}

// start notes a start, in order.
func (y *diary) start(r startRun) {
	i, _ := slices.BinarySearchFunc(y.starts, r.at+1,
		func(s startRun, at int64) int { return int(s.at - at) })
	y.starts = slices.Insert(y.starts, i, r)
}

// drop forgets one start.
func (y *diary) drop(r startRun) {
	i := slices.Index(y.starts, r)
	y.starts = slices.Delete(y.starts, i, i+1)
}

// refund gives back the oldest of what started in a time.
func (y *diary) refund(after, upTo, n int64) {
	for i := range y.starts {
		if s := &y.starts[i]; s.at > after && s.at <= upTo {
			back := min(n, s.n)
			s.n -= back
			n -= back
		}
	}
}

// TestPlacesKeepTheLimit: whatever mixture of acquires, places, cancels, refunds and undos, what starts
// keeps the limit, places are given in order, and a place with a key stays where it is.
func TestPlacesKeepTheLimit(t *testing.T) { each(t, checkPlaces) }

func checkPlaces(t *rapid.T, v variety) {
	cmd, now := v.draw(t), origin(t)
	cmd.Interval = time.Duration(rapid.Int64Range(1, 40).Draw(t, "ms")) * time.Millisecond
	cmd.Guard = 0
	s, y := subject{kind: v.kind}, diary{places: map[string]startRun{}}
	keys := []string{"a", "b", "c", "d", ""}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		at := now.UnixNano()
		for key, p := range y.places {
			if p.at <= at {
				delete(y.places, key)
			}
		}
		cmd.Holder, cmd.Cost = "", rapid.Int64Range(1, capacity(v, &cmd)).Draw(t, "cost")
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0, 1, 2:
			cmd.Op = gatehouse.OpAcquire
			y.acquire(t, s.step(now, cmd), cmd, now)
		case 3, 4, 5, 6:
			cmd.Op, cmd.Holder = gatehouse.OpReserve, rapid.SampledFrom(keys).Draw(t, "key")
			y.reserve(t, s.step(now, cmd), cmd, now)
		case 7, 8:
			key := rapid.SampledFrom(keys[:4]).Draw(t, "key")
			d := s.step(now, gatehouse.Command{Op: gatehouse.OpCancel, Holder: key})
			p, ahead := y.places[key]
			if ahead != (d.Outcome == gatehouse.Granted) {
				t.Fatalf("cancel %s = %s with places %v", key, d.Outcome, y.places)
			}
			if ahead {
				delete(y.places, key)
				y.drop(p)
			}
		case 9:
			if v.exact() { // what others refund is not the oldest, but what of the present window
				s.with(now, gatehouse.OpRefund, cmd.Cost)
				y.refund(at-int64(cmd.Interval), at, cmd.Cost)
			}
		}
		y.check(t, v, &cmd)
	}
}

// acquire notes an acquire that was granted: there was nothing ahead.
func (y *diary) acquire(t *rapid.T, d gatehouse.Decision, cmd gatehouse.Command, now time.Time) {
	if d.Outcome != gatehouse.Granted {
		return
	}
	if last := len(y.starts) - 1; last >= 0 && y.starts[last].at > now.UnixNano() {
		t.Fatalf("acquire granted before %v", y.starts[last])
	}
	y.start(startRun{now.UnixNano(), cmd.Cost})
}

// reserve notes a place, or sees that it is the one there was.
func (y *diary) reserve(t *rapid.T, d gatehouse.Decision, cmd gatehouse.Command, now time.Time) {
	start := now.Add(d.Delay).UnixNano()
	if d.Outcome != gatehouse.Granted || d.Delay%time.Millisecond != 0 {
		t.Fatalf("reserve = %s, delay %s", d.Outcome, d.Delay)
	}
	if p, ahead := y.places[cmd.Holder]; ahead {
		if start < p.at || start >= p.at+int64(time.Millisecond) {
			t.Fatalf("reserve %s = %d, want %d as before, in whole milliseconds", cmd.Holder, start, p.at)
		}
		return
	}
	if last := len(y.starts) - 1; last >= 0 && y.starts[last].at > start {
		t.Fatalf("reserve = %d, before %v", start, y.starts[last])
	}
	y.start(startRun{start, cmd.Cost})
	if cmd.Holder != "" && d.Delay > 0 {
		y.places[cmd.Holder] = startRun{start, cmd.Cost}
	}
}

// check holds all that starts to the limit, at every start.
func (y *diary) check(t *rapid.T, v variety, cmd *gatehouse.Command) {
	for i := range y.starts {
		if v.mode == gatehouse.ModeFine {
			break // its bound is about what was admitted, and not about what was cancelled since
		}
		if broken := overAdmitted(v, cmd, y.starts[:i+1]); broken != "" {
			t.Fatalf("%s: %v", broken, y.starts)
		}
	}
}

// TestEarliestPlace: every place is the earliest whole millisecond away that is safe, and not before
// those promised already. Nothing is wasted.
func TestEarliestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := variety{kind: gatehouse.Pace}
		cmd, now := v.draw(t), origin(t)
		cmd.Op = gatehouse.OpReserve
		cmd.Interval = time.Duration(rapid.Int64Range(1, 40).Draw(t, "ms")) * time.Millisecond
		s, log := subject{kind: v.kind}, record{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(later(t, cmd.Interval))
			cmd.Cost = rapid.Int64Range(1, cmd.Size).Draw(t, "cost")
			want := time.Duration(0)
			for !safe(log, now.Add(want).UnixNano(), &cmd) {
				want += time.Millisecond
			}
			d := s.step(now, cmd)
			if d.Delay != want {
				t.Fatalf("reserve %d = %s, want %s; %v", cmd.Cost, d.Delay, want, log)
			}
			log = append(log, startRun{now.Add(d.Delay).UnixNano(), cmd.Cost})
		}
	})
}

// safe reports whether a start then keeps the limit, after all others.
func safe(log record, at int64, cmd *gatehouse.Command) bool {
	return log.within(at, noTime) == 0 && logged(log, at, cmd)+cmd.Cost <= cmd.Size
}

// TestPacedPlaces: who is promised a start behind others that lie ahead is a step behind, but for what
// rounding takes.
func TestPacedPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cmd, now := gatehouse.Command{Op: gatehouse.OpReserve, Cost: 1}, origin(t)
		modes := []gatehouse.Mode{gatehouse.ModePaced, gatehouse.ModeClassic}
		cmd.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
		cmd.Size = rapid.Int64Range(1, 20).Draw(t, "size")
		cmd.Interval = time.Duration(rapid.Int64Range(1, 500).Draw(t, "ms")) * time.Millisecond
		step := int64(cmd.Interval) / cmd.Size
		s, last := subject{kind: gatehouse.Pace}, int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 2*step).Draw(t, "later")))
			start := now.Add(s.step(now, cmd).Delay).UnixNano()
			if last > now.UnixNano() && start-last < step-int64(time.Millisecond) {
				t.Fatalf("%d, only %d after the one before, want %d", start, start-last, step)
			}
			last = start
		}
		// In the long run as many go as may: a burst is through in as many intervals as it fills,
		// and a millisecond more for each, for what is rounded.
		most := last + 52*int64(cmd.Interval+time.Millisecond)
		for range cmd.Size * 50 {
			last = now.Add(s.step(now, cmd).Delay).UnixNano()
		}
		if last > most {
			t.Fatalf("50 intervals of places take until %d, want %d at most", last, most)
		}
	})
}

// TestMostPlaces: a name has a limit of places with a key, and beyond it says so.
func TestMostPlaces(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.GCRA, gatehouse.Pace} {
		s := subject{kind: kind}
		cmd := gatehouse.Command{
			Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1,
		}
		for i := range maxReservations + 1 {
			cmd.Holder = fmt.Sprint(i)
			if d := s.step(epoch(), cmd); d.Outcome != gatehouse.Granted {
				t.Fatalf("%s: place %d: %s", kind, i, d.Outcome)
			}
		}
		cmd.Holder = "one too many"
		if d := s.step(epoch(), cmd); d.Outcome != gatehouse.Exhausted || d.Delay != 0 {
			t.Errorf("%s: place %d: %s, want exhausted", kind, maxReservations+1, d.Outcome)
		}
		cmd.Holder = "7"
		if d := s.step(epoch(), cmd); d.Outcome != gatehouse.Granted || d.Delay != 7*time.Second {
			t.Errorf("%s: the same key again: %s, %s", kind, d.Outcome, d.Delay)
		}
		if stats := s.with(epoch(), gatehouse.OpStats, 0); stats.Outcome != gatehouse.Granted {
			t.Errorf("%s: stats: %s", kind, stats.Outcome)
		}
	}
}

// TestEndlessSchedule: places without a key are kept by the schedule alone. There may be any number, in
// bounded memory, and none of them is too early.
func TestEndlessSchedule(t *testing.T) {
	s := subject{kind: gatehouse.Pace}
	cmd := gatehouse.Command{
		Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: 2, Interval: time.Second}, Cost: 1,
	}
	for i := range 100_000 {
		if d := s.step(epoch(), cmd); d.Delay != time.Duration(i/2)*time.Second {
			t.Fatalf("place %d = %s", i, d.Delay)
		}
	}
	runs := s.state.(*limiterState[paceMeter, *paceMeter]).meter.runs
	if len(runs) > maxRuns || cap(runs) > maxRuns*13/10 {
		t.Errorf("%d runs in room for %d are kept, want at most %d", len(runs), cap(runs), maxRuns)
	}
	now := epoch().Add(49_998 * time.Second)
	if d := s.with(now, gatehouse.OpDelay, 2); d.Delay != 2*time.Second {
		t.Errorf("near the end, a delay = %s", d.Delay)
	}
}

// TestHugePlaces: costs that add up to more than a number holds are counted as what they are: too much.
func TestHugePlaces(t *testing.T) {
	s := subject{kind: gatehouse.Pace}
	cmd := gatehouse.Command{
		Op:   gatehouse.OpReserve,
		Rule: gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Millisecond}, Cost: gatehouse.MaxSize,
	}
	for i := range 20_000 {
		if d := s.step(epoch(), cmd); d.Delay != time.Duration(i)*time.Millisecond {
			t.Fatalf("place %d = %s", i, d.Delay)
		}
	}
	if d := s.with(epoch(), gatehouse.OpStats, 0); d.Remaining != 0 {
		t.Errorf("%d remain behind 20,000 places", d.Remaining)
	}
}

// TestPlaceForTooMuch: no place is given to what can never fit.
func TestPlaceForTooMuch(t *testing.T) {
	for _, v := range varieties() {
		s := subject{kind: v.kind}
		cmd := gatehouse.Command{
			Op:   gatehouse.OpReserve,
			Rule: gatehouse.Rule{Size: 2, Burst: 1, Interval: time.Second, Mode: v.mode}, Cost: 3,
		}
		if d := s.step(epoch(), cmd); d.Outcome != gatehouse.Conflict || d.Delay != 0 {
			t.Errorf("%s: reserve 3 of 2 = %s", v, d.Outcome)
		}
	}
}
