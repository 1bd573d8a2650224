package oracle

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehousehq/gatehouse"
)

// A GrantCall is a command about a grant over several names, or one on a single name, and what came of it.
type GrantCall struct {
	Begin, End time.Duration // as of a Call
	Answered   bool
	Command    gatehouse.GrantCommand
	Decision   gatehouse.GrantDecision
	Single     *Call // a command on one name, in place of one about a grant; its times are not used
}

// A GrantHistory records what was asked of some names, by grants and by single commands, to be judged by
// [LinearGrants]. The names of one history are judged together. The zero value is an empty history, which may
// be used by many at once.
type GrantHistory struct {
	mu    sync.Mutex
	time  time.Duration // as of a History
	calls []*GrantCall
}

// A GrantGate is a gate that decides about grants too.
type GrantGate interface {
	gatehouse.Gate
	DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error)
}

// DoGrant asks a gate about a grant, and records it.
func (h *GrantHistory) DoGrant(
	ctx context.Context, gate GrantGate, cmd gatehouse.GrantCommand,
) (gatehouse.GrantDecision, error) {
	c := &GrantCall{Command: cmd}
	h.begin(c)
	d, err := gate.DoGrant(ctx, cmd)
	h.end(c, func() { c.Answered, c.Decision = err == nil, d })
	return d, err
}

// Do asks a gate about one name, and records it.
func (h *GrantHistory) Do(
	ctx context.Context, gate GrantGate, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	c := &GrantCall{Single: &Call{Key: key, Command: cmd}}
	h.begin(c)
	d, err := gate.Do(ctx, key, cmd)
	h.end(c, func() { c.Answered, c.Single.Decision = err == nil, d })
	return d, err
}

func (h *GrantHistory) begin(c *GrantCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.time++
	c.Begin = h.time
	h.calls = append(h.calls, c)
}

func (h *GrantHistory) end(c *GrantCall, answer func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.time++
	c.End = h.time
	answer()
}

// Len is how many calls have begun.
func (h *GrantHistory) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// Unanswered is how many calls have ended without an answer.
func (h *GrantHistory) Unanswered() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.End != 0 && !c.Answered {
			n++
		}
	}
	return n
}

// Check judges what was recorded, for at most so long.
func (h *GrantHistory) Check(longest time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return LinearGrants(h.calls, longest)
}

// LinearGrants looks for an order of calls on some names that explains every answer, as [Linear] does for one
// name: each grant took effect under all of its names at one instant, or under none. What an acquire or a
// topup that failed was granted may be taken back at any time, all of it at one instant.
//
// Grants and holds must not end by themselves meanwhile, nothing may come back to a limiter by itself, limits
// and sizes must not change, and nothing may be deleted or forgotten. Limiters have one limit.
func LinearGrants(calls []*GrantCall, longest time.Duration) error {
	var list []porcupine.Operation
	names := make(map[gatehouse.Key]int)
	waits := false // others may have been refused although there was room
	last := time.Duration(0)
	for i, c := range calls {
		last = max(last, c.Begin, c.End)
		in := grantModelCall{GrantCall: c, number: i}
		waits = waits || c.Command.MaxWait != 0 || c.Single != nil && c.Single.Command.MaxWait != 0
		for _, key := range c.keys() {
			if _, ok := names[key]; !ok {
				names[key] = len(names)
			}
		}
		one := openGrantCall(in, c.Begin)
		if c.Answered {
			one.Output, one.Return = grantModelReply{known: true}, int64(c.End)
		}
		list = append(list, one)
		if !c.Answered && c.takes() {
			in.undo = true
			one.Input = in
			list = append(list, one)
		}
	}
	// As in Linear: open calls may be ordered behind the mark of the end.
	list = append(list, openGrantCall(grantModelCall{end: true}, last+1))
	model := boundedModel(grantsModel(names, waits))
	switch porcupine.CheckOperationsTimeout(model, list, longest) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%s do not suffice to try all orders of %d calls on %d names now:\n%s",
			longest, len(calls), len(names), listGrantCalls(calls))
	}
	return fmt.Errorf("no order of %d calls on %d names explains their answers:\n%s%s",
		len(calls), len(names), listGrantCalls(calls), explainMost(model, list, longest))
}

// openGrantCall is a call that has begun and has no answer.
func openGrantCall(in grantModelCall, begin time.Duration) porcupine.Operation {
	return porcupine.Operation{
		Input: in, Output: grantModelReply{}, Call: int64(begin), Return: math.MaxInt64,
	}
}

// explainMost tells the order that explains the most calls, and with what it ends: one of the calls under way
// then is wrong.
func explainMost(model porcupine.Model, list []porcupine.Operation, longest time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(model, list, longest)
	var most []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(most) {
				most = order
			}
		}
	}
	text, state := "the order that explains the most:", model.Init()
	for _, one := range most {
		in := one.Input.(grantModelCall)
		// A call without an answer may have been taken back at any later time.
		if in.undo {
			text += " undo of"
		}
		if in.GrantCall != nil {
			text += fmt.Sprint(" ", in.Begin)
		}
		_, state = model.Step(state, one.Input, one.Output)
	}
	return text + fmt.Sprintf("\nleads to %+v\n", state)
}

// keys are the names that a call is about, as far as it says.
func (c *GrantCall) keys() (keys []gatehouse.Key) {
	if c.Single != nil {
		return []gatehouse.Key{c.Single.Key}
	}
	for i := range c.Command.Want {
		keys = append(keys, c.Command.Want[i].Key)
	}
	return keys
}

// takes reports whether what the call was granted is taken back when its caller is told of an error.
func (c *GrantCall) takes() bool {
	op := c.Command.Op
	if c.Single != nil {
		op = c.Single.Command.Op
	}
	return op == gatehouse.OpAcquire || op == gatehouse.OpTopUp
}

// listGrantCalls lists calls in their order.
func listGrantCalls(calls []*GrantCall) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, "%6d ", c.Begin)
		// Without an answer it is not known when, or whether, it took effect.
		if c.Answered {
			fmt.Fprintf(&b, "to %6d ", c.End)
		} else {
			b.WriteString("         ? ")
		}
		if one := c.Single; one != nil {
			cmd, d := &one.Command, &one.Decision
			fmt.Fprintf(&b, "%s %s holder %q cost %d fence %d: %s, fence %d, %q\n", cmd.Op, one.Key,
				cmd.Holder, cmd.Cost, cmd.Fence, d.Outcome, d.Fence, d.Message)
			continue
		}
		cmd, d := &c.Command, &c.Decision
		fmt.Fprintf(&b, "%s %s fence %d overrun %s", cmd.Op, cmd, cmd.Fence, cmd.Overrun)
		for i := range cmd.Want {
			fmt.Fprintf(&b, " %s:%d", cmd.Want[i].Key, cmd.Want[i].Cost)
		}
		for _, cost := range cmd.Costs {
			fmt.Fprintf(&b, " %s=%d", cost.Key, cost.Cost)
		}
		fmt.Fprintf(&b, ": %s, fence %d, ended %t,", d.Outcome, d.Fence, d.Ended)
		for i := range d.Want {
			fmt.Fprintf(&b, " %d", d.Want[i].Cost)
		}
		fmt.Fprintf(&b, " %q\n", d.Message)
	}
	return b.String()
}
