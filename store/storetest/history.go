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
// That is linearizability. The zero value is an empty history.
//
// Holds must not end by themselves while it is recorded, the size of a semaphore must not change, and nothing
// may be deleted or forgotten. What is asked of other kinds is not recorded.
type History struct {
	mu   sync.Mutex
	time int64 // counts beginnings and ends; their order is all that matters
	keys map[gatehouse.Key]*record
	len  int
}

// A record is what happened under one name.
type record struct {
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
		h.keys = make(map[gatehouse.Key]*record)
	}
	r := h.keys[key]
	if r == nil {
		r = &record{}
		h.keys[key] = r
	}
	h.len++
	r.waits = r.waits || cmd.MaxWait != 0
	i := len(r.calls)
	r.calls = append(r.calls, h.unknown(cmd))
	return func(d gatehouse.Decision, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err == nil {
			h.time++
			r.calls[i].Output, r.calls[i].Return = answer{known: true, Decision: d}, h.time
			return
		}
		if cmd.Op == gatehouse.OpAcquire { // if it was granted, that is taken back some day
			undo := cmd
			undo.Op = gatehouse.OpRelease
			r.calls = append(r.calls, h.unknown(undo))
		}
	}
}

// unknown is a call that has not ended.
func (h *History) unknown(cmd gatehouse.Command) porcupine.Operation {
	h.time++
	return porcupine.Operation{Input: cmd, Output: answer{}, Call: h.time, Return: math.MaxInt64}
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
		model := models[key.Kind](r.waits)
		if result := porcupine.CheckOperationsTimeout(model, r.calls, longest); result != porcupine.Ok {
			return fmt.Errorf("%s: %s: no order of its %d calls explains their answers:\n%s",
				key, result, len(r.calls), r)
		}
	}
	return nil
}

// String lists the calls in the order of their beginnings.
func (r *record) String() string {
	var b strings.Builder
	for _, c := range r.calls {
		cmd, a := c.Input.(gatehouse.Command), c.Output.(answer)
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

// An answer is a decision, if it is known.
type answer struct {
	known bool
	gatehouse.Decision
}

// models are what is right for each kind. A call whose answer is not known is right in every state, and does
// what it can: one that did nothing can be thought of as coming after all others.
var models = map[gatehouse.Kind]func(waits bool) porcupine.Model{
	gatehouse.Lock:      holdsModel,
	gatehouse.Semaphore: holdsModel,
	gatehouse.Counter:   counterModel,
	gatehouse.Event:     eventModel,
}

// holds is the state of a lock or a semaphore.
type holds struct {
	list []aHold // in the order of the holders' names
	last uint64  // the greatest fencing token that was seen
}

type aHold struct {
	holder string
	cost   int64
	fence  uint64 // 0 when it is not known
}

// find is where a holder is, or would be.
func (h holds) find(holder string) (int, bool) {
	return slices.BinarySearchFunc(h.list, holder, func(a aHold, holder string) int {
		return strings.Compare(a.holder, holder)
	})
}

func (h holds) held() (sum int64) {
	for _, one := range h.list {
		sum += one.cost
	}
	return sum
}

func holdsModel(waits bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holds{} },
		Step: func(state, input, output any) (bool, any) {
			h, cmd, a := state.(holds), input.(gatehouse.Command), output.(answer)
			switch cmd.Op {
			case gatehouse.OpAcquire:
				return h.acquire(&cmd, &a, waits)
			case gatehouse.OpRelease:
				return h.release(&cmd, &a)
			case gatehouse.OpRenew:
				i, held := h.find(cmd.Holder)
				granted := a.Outcome == gatehouse.Granted
				fits := granted == held && (!held || h.list[i].fence == a.Fence || h.list[i].fence == 0)
				return !a.known || fits, h
			}
			return true, h
		},
		Equal: func(a, b any) bool {
			return a.(holds).last == b.(holds).last && slices.Equal(a.(holds).list, b.(holds).list)
		},
	}
}

func (h holds) acquire(cmd *gatehouse.Command, a *answer, waits bool) (right bool, next any) {
	size := max(cmd.Size, 1)
	i, held := h.find(cmd.Holder)
	room := held || h.held()+cmd.Cost <= size
	switch {
	case !a.known && (held || !room):
		return true, h
	case a.known && a.Outcome != gatehouse.Granted:
		return waits || !room, h
	case !room:
		return false, h
	case held:
		return h.list[i].fence == a.Fence || h.list[i].fence == 0, h
	case a.known && a.Fence <= h.last:
		return false, h
	}
	granted := holds{last: max(h.last, a.Fence)}
	granted.list = slices.Insert(slices.Clone(h.list), i, aHold{cmd.Holder, cmd.Cost, a.Fence})
	return true, granted
}

func (h holds) release(cmd *gatehouse.Command, a *answer) (right bool, next any) {
	i, held := h.find(cmd.Holder)
	if a.known && held != (a.Outcome == gatehouse.Granted) {
		return false, h
	}
	if !held {
		return true, h
	}
	return true, holds{last: h.last, list: slices.Delete(slices.Clone(h.list), i, i+1)}
}

func counterModel(bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			value, cmd, a := state.(int64), input.(gatehouse.Command), output.(answer)
			switch cmd.Op {
			case gatehouse.OpCount:
				value += cmd.Amount
			case gatehouse.OpReset:
				value = cmd.Amount
			}
			return !a.known || a.Value == value, value
		},
	}
}

// sent is the state of an event.
type sent struct {
	sent    bool
	message string
}

func eventModel(bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return sent{} },
		Step: func(state, input, output any) (bool, any) {
			e, cmd, a := state.(sent), input.(gatehouse.Command), output.(answer)
			granted := a.Outcome == gatehouse.Granted
			switch {
			case cmd.Op == gatehouse.OpWait:
				return !a.known || granted == e.sent && (!granted || a.Message == e.message), e
			case cmd.Op != gatehouse.OpSend || !a.known && e.sent:
				return true, e
			case a.known && granted == e.sent:
				return false, e
			case e.sent:
				return true, e
			}
			return true, sent{true, cmd.Message}
		},
	}
}
