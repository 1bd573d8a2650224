package gate_test

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// submit submits a command, and returns what cancels it. done is not called for one that was canceled before
// its decision.
func submit(
	g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command, done func(gatehouse.Decision, error),
) (cancel func()) {
	r := newRequest(key, cmd, done)
	g.Submit(r)
	return func() { g.Cancel(r) }
}

// newRequest returns a request. done is as in submit.
func newRequest(
	key gatehouse.Key, cmd gatehouse.Command, done func(gatehouse.Decision, error),
) *gate.Request {
	return &gate.Request{Key: key, Command: cmd, Decided: func(r *gate.Request) {
		if !errors.Is(r.Err, context.Canceled) {
			done(*r.Decision, r.Err)
		}
	}}
}

// together submits commands for one key as one change, and waits for all decisions. The error is the first.
func together(
	g *gate.Gate, key gatehouse.Key, cmds ...gatehouse.Command,
) (decisions []gatehouse.Decision, err error) {
	var all sync.WaitGroup
	requests := make([]*gate.Request, len(cmds))
	for i := range cmds {
		all.Add(1)
		requests[i] = &gate.Request{
			Key: key, Command: cmds[i], Decided: func(*gate.Request) { all.Done() }, // panics below 0
		}
	}
	g.Submit(requests...)
	all.Wait()
	for _, r := range requests {
		decisions, err = append(decisions, *r.Decision), cmp.Or(err, r.Err)
	}
	return decisions, err
}
