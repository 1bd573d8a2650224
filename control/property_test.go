package control

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A subject is one controller under test.
type subject struct {
	kind  gatehouse.Kind
	state State
}

// stepTurn applies the command of a turn to a state, and returns the decision.
func stepTurn(s State, now time.Time, turn *Turn) gatehouse.Decision {
	s.Step(now, turn)
	return turn.Decision
}

// step applies one command and returns its decision.
func (s *subject) step(now time.Time, cmd gatehouse.Command) gatehouse.Decision {
	return s.stepTurn(now, &Turn{Command: &cmd})
}

// stepTurn is step with what a gate and a store add.
func (s *subject) stepTurn(now time.Time, turn *Turn) gatehouse.Decision {
	queue := []Turn{*turn}
	s.state = Serve(now, s.kind, s.state, queue)
	return queue[0].Decision
}

// undo takes back what a command was granted.
func (s *subject) undo(now time.Time, cmd gatehouse.Command, granted *gatehouse.Decision) {
	undo := UndoOf(&Turn{Command: &cmd}, granted)
	s.stepTurn(now, &undo)
}

// A taking is tokens that a bucket gave at an instant.
type taking struct {
	at   time.Duration
	cost int64
}

// TestBucketAgainstLog compares the bucket with a log of all that was ever taken: a request is granted
// if and only if what was taken since the last boundary leaves room for it.
func TestBucketAgainstLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, 5000).Draw(t, "interval")) * time.Millisecond
		bucket := subject{kind: gatehouse.TokenBucket}
		var log []taking
		at := time.Duration(0) // counted from the first request, as boundaries are
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			size := rapid.Int64Range(0, 8).Draw(t, "size")
			cost := rapid.Int64Range(1, max(1, size)).Draw(t, "cost")
			taken := int64(0)
			for _, g := range log {
				if g.at >= at-at%interval {
					taken += g.cost
				}
			}
			d := bucket.step(epoch().Add(at), gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: size, Interval: interval}, Cost: cost,
			})
			if want := taken+cost <= size; want != (d.Outcome == gatehouse.Granted) {
				t.Fatalf("at %s: acquire %d of %d with %d taken = %s", at, cost, size, taken, d.Outcome)
			}
			if d.Outcome == gatehouse.Granted {
				log = append(log, taking{at, cost})
				taken += cost
			}
			if want := max(0, size-taken); d.Remaining != want {
				t.Fatalf("at %s: remaining %d, want %d", at, d.Remaining, want)
			}
			at += time.Duration(rapid.Int64Range(0, int64(interval)).Draw(t, "later"))
		}
	})
}

// TestBucketWindow holds the bucket to its promise: no window of w sees more than
// size·(ceil(w/interval)+1) tokens.
func TestBucketWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "interval")) * time.Millisecond
		size := rapid.Int64Range(1, 10).Draw(t, "size")
		bucket := subject{kind: gatehouse.TokenBucket}
		var log []taking
		at := time.Duration(0)
		for range 120 {
			at += time.Duration(rapid.Int64Range(0, int64(interval)/2).Draw(t, "later"))
			d := bucket.step(epoch().Add(at), gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: size, Interval: interval}, Cost: 1,
			})
			if d.Outcome == gatehouse.Granted {
				log = append(log, taking{at, 1})
			}
		}
		w := time.Duration(rapid.Int64Range(1, 5*int64(interval)).Draw(t, "window"))
		for i := range log {
			inside := 0
			for _, g := range log[i:] {
				if g.at < log[i].at+w {
					inside++
				}
			}
			if most := size * (int64((w+interval-1)/interval) + 1); int64(inside) > most {
				t.Fatalf("%d tokens within %s, want at most %d", inside, w, most)
			}
		}
	})
}

// TestBucketRetryAfter: what is refused is refused until RetryAfter, and granted then.
func TestBucketRetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire,
			Rule: gatehouse.Rule{
				Size:     rapid.Int64Range(1, 5).Draw(t, "size"),
				Interval: time.Duration(rapid.Int64Range(2, 1e9).Draw(t, "interval")),
			},
			Cost: 1,
		}
		bucket := subject{kind: gatehouse.TokenBucket}
		now := epoch()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(cmd.Interval)).Draw(t, "later")))
			d := bucket.step(now, cmd)
			if d.Outcome != gatehouse.Refused {
				continue
			}
			early := bucket.step(now.Add(d.RetryAfter-1), cmd)
			now = now.Add(d.RetryAfter)
			intime := bucket.step(now, cmd)
			if early.Outcome != gatehouse.Refused || intime.Outcome != gatehouse.Granted {
				t.Fatalf("retry %s: %s just before, %s then", d.RetryAfter, early.Outcome, intime.Outcome)
			}
		}
	})
}

// slowSemaphore is a semaphore as one would write it first: a list of holds.
type slowSemaphore struct {
	holds map[string]slowHold
}

type slowHold struct {
	cost  int64
	until time.Time // zero is never
}

func (s *slowSemaphore) expire(now time.Time) {
	maps.DeleteFunc(s.holds, func(_ string, h slowHold) bool {
		return !h.until.IsZero() && !now.Before(h.until)
	})
}

func (s *slowSemaphore) held() (sum int64) {
	for _, h := range s.holds {
		sum += h.cost
	}
	return sum
}

// do decides as the real one should.
func (s *slowSemaphore) do(now time.Time, cmd *gatehouse.Command) gatehouse.Outcome {
	s.expire(now)
	h, holds := s.holds[cmd.Holder]
	switch {
	case cmd.Op == gatehouse.OpAcquire && holds:
		return gatehouse.Granted
	case cmd.Op == gatehouse.OpAcquire && s.held()+cmd.Cost > cmd.Size:
		return gatehouse.Refused
	case cmd.Op == gatehouse.OpAcquire:
		h.cost = cmd.Cost
	case !holds:
		return gatehouse.Conflict
	case cmd.Op == gatehouse.OpRelease:
		delete(s.holds, cmd.Holder)
		return gatehouse.Granted
	}
	h.until = time.Time{}
	if cmd.Expires > 0 {
		h.until = now.Add(cmd.Expires)
	}
	s.holds[cmd.Holder] = h
	return gatehouse.Granted
}

// TestSemaphoreAgainstList compares the semaphore with the slow one, and looks at its invariants.
func TestSemaphoreAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		semaphore := subject{kind: gatehouse.Semaphore}
		slow := slowSemaphore{holds: map[string]slowHold{}}
		now, fence := epoch(), uint64(0)
		// More than are found by a look at each, and fewer.
		most := rapid.SampledFrom([]int{6, 40}).Draw(t, "most")
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 3).Draw(t, "later")) * time.Second)
			cmd := gatehouse.Command{
				Op: rapid.SampledFrom([]gatehouse.Op{
					gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew,
				}).Draw(t, "op"),
				Holder:  fmt.Sprint(rapid.IntRange(0, most).Draw(t, "key")),
				Rule:    gatehouse.Rule{Size: rapid.Int64Range(0, int64(most)).Draw(t, "size")},
				Expires: time.Duration(rapid.Int64Range(0, 8).Draw(t, "expires")) * time.Second,
			}
			cmd.Cost = rapid.Int64Range(1, max(1, cmd.Size/int64(1+most/20))).Draw(t, "cost")
			slow.expire(now)
			_, had := slow.holds[cmd.Holder]
			want := slow.do(now, &cmd)
			d := semaphore.step(now, cmd)
			if d.Outcome != want {
				t.Fatalf("%s %s = %s, want %s", cmd.Op, cmd.Holder, d.Outcome, want)
			}
			if cmd.Op == gatehouse.OpAcquire && d.Outcome == gatehouse.Granted && !had {
				if d.Fence <= fence {
					t.Fatalf("fence %d after %d", d.Fence, fence)
				}
				fence = d.Fence
			}
			checkHolds(t, semaphore.state, &slow)
		}
	})
}

// checkHolds looks at what the semaphore holds, and that its count did not drift.
func checkHolds(t *rapid.T, state State, slow *slowSemaphore) {
	s := state.(*Semaphore)
	sum, got := int64(0), []string(nil)
	for _, h := range s.holds.heap {
		sum += h.cost
		got = append(got, h.holder)
	}
	slices.Sort(got)
	want := slices.Sorted(maps.Keys(slow.holds))
	if !slices.Equal(got, want) {
		t.Fatalf("held by %q, want %q", got, want)
	}
	if s.heldCost != sum || sum != slow.held() {
		t.Fatalf("held %d, holds sum to %d, want %d", s.heldCost, sum, slow.held())
	}
	checkHoldList(t, &s.holds)
}

// checkHoldList looks at the order of a list of holds, and whether each is found by its holder.
func checkHoldList(t *rapid.T, l *holdList) {
	for i, h := range l.heap {
		switch {
		case h.place != i:
			t.Fatalf("the hold of %q at place %d says %d", h.holder, i, h.place)
		case i > 0 && h.endsBefore(l.heap[(i-1)/2]):
			t.Fatalf("the hold of %q ends before the one above it", h.holder)
		case l.find(h.holder) != h:
			t.Fatalf("the hold of %q is not found", h.holder)
		}
	}
	if l.byHolder != nil && len(l.byHolder) != len(l.heap) || l.byHolder == nil && len(l.heap) > fewHolds {
		t.Fatalf("%d of %d holds are listed by holder", len(l.byHolder), len(l.heap))
	}
	for _, h := range l.heap[len(l.heap):cap(l.heap)] {
		if h != nil {
			t.Fatalf("the hold of %q is kept from the collector", h.holder)
		}
	}
}

// TestHolders: one name has a limit of holders, and beyond it says so.
func TestHolders(t *testing.T) {
	semaphore := subject{kind: gatehouse.Semaphore}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.MaxSize}, Cost: 1}
	for i := range maxHolders {
		cmd.Holder = fmt.Sprint(i)
		if d := semaphore.step(epoch(), cmd); d.Outcome != gatehouse.Granted {
			t.Fatalf("holder %d: %s", i, d.Outcome)
		}
	}
	cmd.Holder = "one too many"
	if d := semaphore.step(epoch(), cmd); d.Outcome != gatehouse.Exhausted {
		t.Fatalf("holder %d: %s, want exhausted", maxHolders, d.Outcome)
	}
	cmd.Holder = "7"
	if d := semaphore.step(epoch(), cmd); d.Outcome != gatehouse.Granted {
		t.Fatalf("the same holder again: %s", d.Outcome)
	}
}
