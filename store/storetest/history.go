package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehousehq/gatehouse"
)

// A History records what was asked of locks, semaphores, counters and events, and what was answered, and
// checks that there is an order of all that was asked which explains every answer: each call took effect at
// one instant between its beginning and its end, or, if it failed, at any time after its beginning or never.
// That is linearizability. What an acquire that failed was granted may be taken back at any time after that,
// and nothing else: a hold that was answered to its holder, or renewed, stays. The zero value is an empty
// history.
//
// Holds must not end by themselves while it is recorded, the size of a semaphore must not change, and nothing
// may be deleted or forgotten. What is asked of other kinds is not recorded.
type History struct {
	mu   sync.Mutex
	time int64 // counts beginnings and ends; their order is all that matters
	keys map[gatehouse.Key]*keyHistory
	len  int
}

// A keyHistory is what happened under one name.
type keyHistory struct {
	calls []porcupine.Operation
	waits bool // somebody may have waited: others may have been refused although there was room
}

// Do asks a gate, and records it.
func (h *History) Do(
	ctx context.Context, gate gatehouse.Gate, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	done := h.Begin(key, cmd)
	d, err := gate.Do(ctx, key, cmd)
	done(d, err)
	return d, err
}

// Begin records that a call begins. Its answer is given to done. A call of which done is never called is one
// that may have taken effect.
func (h *History) Begin(key gatehouse.Key, cmd gatehouse.Command) (done func(gatehouse.Decision, error)) {
	if models[key.Kind] == nil {
		return func(gatehouse.Decision, error) {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys = make(map[gatehouse.Key]*keyHistory)
	}
	r := h.keys[key]
	if r == nil {
		r = &keyHistory{}
		h.keys[key] = r
	}
	h.len++
	r.waits = r.waits || cmd.MaxWait != 0
	// The index stays valid, because calls are only appended. A pointer would not, as the slice grows.
	i := len(r.calls)
	h.time++
	r.calls = append(r.calls, openCall(modelCall{Command: cmd, number: i}, h.time))
	return func(d gatehouse.Decision, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		// Only an answer ends a call. One that failed stays open, as it may take effect at any later time.
		if err == nil {
			h.time++
			r.calls[i].Output, r.calls[i].Return = modelReply{known: true, Decision: d}, h.time
			return
		}
		if cmd.Op == gatehouse.OpAcquire {
			// What it was granted may be taken back even before its caller gets the error.
			undo := modelCall{Command: cmd, number: i}
			undo.Op = gatehouse.OpUndo
			r.calls = append(r.calls, openCall(undo, r.calls[i].Call))
		}
	}
}

// openCall is a call that has begun and has no answer yet, or never.
func openCall(in modelCall, begin int64) porcupine.Operation {
	return porcupine.Operation{Input: in, Output: modelReply{}, Call: begin, Return: math.MaxInt64}
}

// Len is how many calls have begun.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.len
}

// Check looks for an order that explains everything, for at most so long for each name. The error tells the
// calls of the first name for which there is none, or that takes too long.
func (h *History) Check(longest time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, r := range h.keys {
		model := boundedModel(models[key.Kind](r.waits))
		// The mark of the end comes after all calls with an answer. Open calls may be ordered behind it,
		// which means that they had no effect.
		calls := append(slices.Clone(r.calls), openCall(modelCall{end: true}, h.time+1))
		if result := porcupine.CheckOperationsTimeout(model, calls, longest); result != porcupine.Ok {
			return fmt.Errorf("%s: %s: no order of its %d calls explains their answers:\n%s",
				key, result, len(r.calls), r)
		}
	}
	return nil
}

// String lists the calls in the order of their beginnings.
func (r *keyHistory) String() string {
	var b strings.Builder
	for _, c := range r.calls {
		cmd, a := c.Input.(modelCall), c.Output.(modelReply)
		fmt.Fprintf(&b, "%6d ", c.Call)
		if a.known {
			fmt.Fprintf(&b, "to %6d ", c.Return)
		} else {
			b.WriteString("         ? ")
		}
		fmt.Fprintf(&b, "%s holder %q cost %d amount %d: %s, fence %d, value %d, %q\n",
			cmd.Op, cmd.Holder, cmd.Cost, cmd.Amount, a.Outcome, a.Fence, a.Value, a.Message)
	}
	return b.String()
}
