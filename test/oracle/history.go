package oracle

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A History records what was asked of locks, semaphores, counters and events, and what was answered, to be
// judged by [Linear]. Its clock counts beginnings and ends. What is asked of other kinds is not recorded. The
// zero value is an empty history, which may be used by many at once.
type History struct {
	mu   sync.Mutex
	time time.Duration // 1 ns for each beginning and end; their order is all that matters
	keys map[gatehouse.Key][]*Call
	len  int
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
	// Of such a kind there is no model that could judge it.
	if models[key.Kind] == nil {
		return func(gatehouse.Decision, error) {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys = make(map[gatehouse.Key][]*Call)
	}
	h.len++
	h.time++
	c := &Call{Key: key, Command: cmd, Begin: h.time}
	h.keys[key] = append(h.keys[key], c)
	return func(d gatehouse.Decision, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.time++
		c.End, c.Answered, c.Decision = h.time, err == nil, d
	}
}

// Len is how many calls have begun.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.len
}

// Check judges what was recorded, for at most so long for each name. The error is that of the first name with
// one.
func (h *History) Check(longest time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, calls := range h.keys {
		if err := Linear(calls, longest); err != nil {
			return err
		}
	}
	return nil
}

// listCalls lists calls in their order.
func listCalls(calls []*Call) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, "%6d ", c.Begin)
		// Without an answer it is not known when, or whether, it took effect.
		if c.Answered {
			fmt.Fprintf(&b, "to %6d ", c.End)
		} else {
			b.WriteString("         ? ")
		}
		cmd, d := &c.Command, &c.Decision
		fmt.Fprintf(&b, "%s holder %q cost %d amount %d: %s, fence %d, value %d, %q\n",
			cmd.Op, cmd.Holder, cmd.Cost, cmd.Amount, d.Outcome, d.Fence, d.Value, d.Message)
	}
	return b.String()
}
