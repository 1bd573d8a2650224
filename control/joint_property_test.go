package control

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// drawNames draws what a grant may want: limiters, semaphores and locks of a few names.
func drawNames(t *rapid.T) (all []gatehouse.Member) {
	for i, v := range varieties() {
		cmd := v.draw(t)
		cmd.Interval = time.Duration(rapid.Int64Range(1, 3000).Draw(t, "ms")) * time.Millisecond
		all = append(all, gatehouse.Member{
			Key: keyOf(v.kind, fmt.Sprint("n", i)), Rule: cmd.Rule, Cost: capacity(v, &cmd),
		})
	}
	for i := range 3 {
		all = append(all, ofLock(fmt.Sprint("n", i)), ofSlots(fmt.Sprint("n", i), 4, 4))
	}
	return all
}

// drawWant draws some of them, at some cost.
func drawWant(t *rapid.T, all []gatehouse.Member) []gatehouse.Member {
	want := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, gatehouse.MaxMembers, rapid.ID).Draw(t, "want")
	for i := range want {
		want[i].Cost = rapid.Int64Range(1, want[i].Cost).Draw(t, "cost")
	}
	return want
}

// copyStates are copies of all states of a house.
func (h *house) copyStates(t *rapid.T) map[gatehouse.Key]State {
	copies := map[gatehouse.Key]State{}
	for key, s := range h.states {
		copies[key] = decoded(t, key.Kind, s)
	}
	return copies
}

// TestJointIsEachAlone: a grant passes if each of its names alone would let it pass, and then each stands as
// if it had been asked alone. If one does not, all of them stand as before. What is undone was never there.
func TestJointIsEachAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, all := newHouse(), drawNames(t)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			h.now = h.now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "later")) * time.Millisecond)
			cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, Want: drawWant(t, all)}
			if cmd.HasRecord() || rapid.Bool().Draw(t, "record") {
				cmd.ID = fmt.Sprint("g", i)
				cmd.Expires = time.Duration(rapid.IntRange(1, 5000).Draw(t, "expires")) * time.Millisecond
			}
			before := h.copyStates(t)
			h.parts.Acquire(&cmd)
			granted := h.serve()
			h.checkAlone(t, before, granted)
			if granted && rapid.IntRange(0, 3).Draw(t, "undo") == 0 {
				h.parts.Undo()
				h.serve()
				h.checkSame(t, before)
			}
		}
	})
}

// checkAlone compares each name with what it was before, asked alone if the grant passed.
func (h *house) checkAlone(t *rapid.T, before map[gatehouse.Key]State, granted bool) {
	passes, alone := true, maps.Clone(before)
	for i := range h.parts.Parts {
		p := &h.parts.Parts[i]
		if p.Key.Kind == gatehouse.Grant {
			continue
		}
		cmd := *p.Turn.Command
		one := State(nil)
		if s := before[p.Key]; s != nil {
			one = decoded(t, p.Key.Kind, s)
		}
		queue := []Turn{{Command: &cmd, MinFence: p.Turn.Decision.Fence}}
		alone[p.Key] = Serve(h.now, p.Key.Kind, one, queue)
		passes = passes && queue[0].Decision.Outcome == gatehouse.Granted
	}
	if passes != granted {
		t.Fatalf("granted: %t, each alone: %t", granted, passes)
	}
	if !granted {
		h.checkSame(t, before)
		return
	}
	for i := range h.parts.Parts {
		p := &h.parts.Parts[i]
		if p.Key.Kind == gatehouse.Grant || p.Key.Kind.Limiter() && p.Turn.Grant.ID != "" {
			continue // a limiter has a share besides
		}
		if got, want := Encode(nil, h.states[p.Key]), Encode(nil, alone[p.Key]); !bytes.Equal(got, want) {
			t.Fatalf("%s is\n%x, want\n%x", p.Key, got, want)
		}
	}
	h.checkFence(t)
}

// checkFence looks at the one fencing token.
func (h *house) checkFence(t *rapid.T) {
	first := h.parts.Parts[0].Turn.Decision.Fence
	for i := range h.parts.Parts {
		if fence := h.parts.Parts[i].Turn.Decision.Fence; fence != first {
			t.Fatalf("%s has fence %d, want %d", h.parts.Parts[i].Key, fence, first)
		}
	}
}

// checkSame compares how all names stand with how they stood.
func (h *house) checkSame(t *rapid.T, before map[gatehouse.Key]State) {
	for key, s := range h.states {
		then := before[key]
		if key.Kind == gatehouse.Grant && then == nil {
			t.Fatalf("%s is there", key)
		}
		if semaphore, ok := s.(*Semaphore); ok {
			Expire(h.now, s)
			held := int64(0)
			if then != nil {
				Expire(h.now, then)
				held = then.(*Semaphore).heldCost
			}
			if semaphore.heldCost != held {
				t.Fatalf("%s: %d held, want %d", key, semaphore.heldCost, held)
			}
		}
		if !key.Kind.Limiter() {
			continue
		}
		peek := gatehouse.Command{Op: gatehouse.OpPeek}
		got := stepTurn(decoded(t, key.Kind, s), h.now, &Turn{Command: &peek})
		want := gatehouse.Decision{Remaining: got.Limit}
		if then != nil {
			want = stepTurn(decoded(t, key.Kind, then), h.now, &Turn{Command: &peek})
		}
		if got.Remaining != want.Remaining {
			t.Fatalf("%s: %d left, want %d", key, got.Remaining, want.Remaining)
		}
	}
}
