package gate

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A call is a request whose caller waits. Gates pool them to save allocations.
type call struct {
	request Request
	alone   [1]*Request     // the request
	turn    [1]control.Turn // of the request's command, where that needs no change
	round   *round          // for the request; nil after it went elsewhere with one
	decided chan struct{}   // has an element when the request was decided later
}

func newCall() *call {
	// The channel has room for the answer, so that the callback never blocks, not even when no caller waits
	// any more.
	c := &call{decided: make(chan struct{}, 1)}
	c.alone[0] = &c.request
	c.turn[0].Command = &c.request.Command
	c.request.Decided = func(*Request) { c.decided <- struct{}{} }
	return c
}

// Do implements [gatehouse.Gate]. When ctx ends first, what is granted later is taken back.
func (g *Gate) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (d gatehouse.Decision, err error) {
	if err := ctx.Err(); err != nil {
		return d, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", key, err)
	}
	c := g.calls.Get().(*call)
	r := &c.request
	r.Command = cmd
	if g.atOnce != nil && g.decideAtOnce(key, c) {
		d = c.turn[0].Decision
		g.calls.Put(c)
		return d, nil
	}
	r.Key, r.Decision = key, nil
	if !g.prepareRequests(c.alone[:]) {
		err = r.Err
		g.calls.Put(c)
		return d, err
	}
	if c.round == nil {
		c.round = g.newRound()
	}
	// One that may wait goes into a line with the request, and is given back from there.
	kept := !mayWait(&r.Command)
	c.round.kept = kept
	// What is decided at once needs no channel, and leaves its round to the next call. Its decision goes from
	// the turn to the caller, as every further copy would take longer than the rest of this function.
	if g.begin(c.alone[:], c.round) {
		turn := c.round.answeredTurn(0)
		err = turn.Err
		if err == nil {
			g.addWaiting(r, &turn.Decision)
		}
		if g.config.Observer != nil {
			r.Err, r.Decision = err, &turn.Decision
			g.observeRequests(c.alone[:])
			// The decision is part of the round, which serves the next call.
			r.Decision = nil
		}
		if err == nil {
			d = turn.Decision
		}
		c.round.clearRequests()
	} else {
		if !kept {
			c.round = nil
		}
		select {
		case <-c.decided:
			d, err = *r.Decision, r.Err
			if kept {
				c.round.clearRequests()
			}
		case <-ctx.Done():
			// The call does not go back to the pool: the gate has it until Decided is called.
			g.Cancel(r)
			return d, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %s: %w", key, cmd.Op, ctx.Err())
		}
	}
	g.calls.Put(c)
	return d, err
}
