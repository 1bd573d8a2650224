package lazy

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A chunk is what was taken from the store to be let through here, or that there was nothing to take.
type chunk struct {
	command gatehouse.Command  // that was sent to take it
	said    gatehouse.Decision // by the store
	until   time.Time          // by when it is worth nothing: the bucket is refilled, or its window ends
	left    int64
	busy    bool // something was let through since the last round
}

// maxFetches is how often a chunk is asked for until the store is left to decide: it may have less than a
// whole one left, or the window may end on the way.
const maxFetches = 4

// fromChunk lets through what was taken from the store before, and takes more when that is used up.
func (n *name) fromChunk(ctx context.Context, queue []control.Turn) error {
	n.mu.Lock()
	if n.gone {
		n.mu.Unlock()
		return errGone
	}
	n.used = true
	n.store.enter(n)
	n.mu.Unlock()
	queue = n.fromLeft(queue)
	if len(queue) > 0 && chunked(queue[0].Command) {
		var err error
		if queue, err = n.refill(ctx, queue); err != nil {
			return err
		}
	}
	if len(queue) == 0 {
		return nil
	}
	return n.store.shared.Apply(ctx, n.key, queue)
}

// refill takes chunks from the store until all is served that they can serve, and returns the rest.
func (n *name) refill(ctx context.Context, queue []control.Turn) ([]control.Turn, error) {
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	size := n.rule.Chunk
	for range maxFetches {
		if queue = n.fromLeft(queue); len(queue) == 0 || !chunked(queue[0].Command) {
			return queue, nil
		}
		cmd := *queue[0].Command
		cmd.Cost, cmd.MaxWait, cmd.Ticket, cmd.Again = max(cmd.Cost, min(size, cmd.Size)), 0, 0, false
		more := []control.Turn{{Command: &cmd}}
		if err := n.store.shared.Apply(ctx, n.key, more); err != nil {
			return queue, err
		}
		d := &more[0].Decision
		switch wanted := queue[0].Command.Cost; {
		case d.Outcome == gatehouse.Granted:
			n.fill(&cmd, d, cmd.Cost)
		case d.Outcome == gatehouse.Refused && d.Remaining < wanted:
			n.fill(&cmd, d, 0)
			return n.fromLeft(queue), nil
		case d.Outcome == gatehouse.Refused && d.Remaining < cmd.Cost:
			size = d.Remaining
		default: // the store says why
			return queue, nil
		}
	}
	return n.fromLeft(queue), nil
}

// chunked reports whether a command can be let through from a chunk. One that the store knows to wait must be
// served by the store.
func chunked(cmd *gatehouse.Command) bool {
	known := cmd.Again && cmd.Ticket != 0
	return cmd.Op == gatehouse.OpAcquire && cmd.Ahead == 0 && len(cmd.Limits) == 0 && !known
}

// fromLeft serves as much of the queue as the chunk is enough for, and returns the rest.
func (n *name) fromLeft(queue []control.Turn) []control.Turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(queue) > 0 && n.chunk != nil && n.chunk.serve(&queue[0], n) {
		queue = queue[1:]
	}
	return queue
}

// fill notes what the store said to a command that was to take a chunk.
func (n *name) fill(cmd *gatehouse.Command, d *gatehouse.Decision, left int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.At.After(n.now) || n.now.Sub(d.At) > maxBackwards {
		n.now = d.At
	}
	c := &chunk{command: *cmd, said: *d, until: d.At.Add(d.ResetAfter), left: left, busy: true}
	if old := n.chunk; old != nil && old.until.Equal(c.until) {
		c.left += old.left
	}
	if d.Outcome == gatehouse.Refused { // for as long as others may have given something back
		c.until = d.At.Add(n.rule.Interval)
		if d.RetryAfter != gatehouse.Forever && d.RetryAfter < n.rule.Interval {
			c.until = d.At.Add(d.RetryAfter)
		}
		if n.chunk != nil && n.chunk.left > 0 {
			return // there is enough for somebody who wants less
		}
	}
	n.chunk = c
}

// serve answers one command, and reports false if the store has to. It is called with the lock held.
func (c *chunk) serve(turn *control.Turn, n *name) bool {
	cmd := turn.Command
	if !n.store.shared.Latest().Before(c.until) {
		return false
	}
	granted := c.said.Outcome == gatehouse.Granted
	if cmd.Op == gatehouse.OpUndo && granted && cmd.Granted != nil && !cmd.Granted.At.Before(c.said.At) {
		c.left += cmd.Cost
		turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: n.clock()}
		return true
	}
	if !chunked(cmd) || !cmd.Again && !sameLimits(cmd, &c.command) {
		return false
	}
	switch now := n.clock(); {
	case granted && c.left >= cmd.Cost:
		c.left, c.busy = c.left-cmd.Cost, true
		turn.Decision = c.said
		turn.Decision.Remaining += c.left
		c.tell(now, &turn.Decision)
		return true
	case !granted && cmd.MaxWait == 0 && cmd.Cost > c.said.Remaining:
		turn.Decision = c.said
		c.tell(now, &turn.Decision)
		return true
	}
	return false
}

// tell makes what the store said one that is said now.
func (c *chunk) tell(now time.Time, d *gatehouse.Decision) {
	passed := now.Sub(d.At)
	d.At, d.ResetAfter = now, max(0, d.ResetAfter-passed)
	if d.RetryAfter > 0 {
		d.RetryAfter = max(1, d.RetryAfter-passed)
	}
}

// giveBackUnused gives back what nobody has asked for since the last round.
func (n *name) giveBackUnused() {
	n.mu.Lock()
	unused := n.chunk != nil && !n.chunk.busy
	if n.chunk != nil {
		n.chunk.busy = false
	}
	n.mu.Unlock()
	if unused {
		n.giveBack()
	}
}

// giveBack gives the chunk back. That it fails is nobody's to hear: it comes back by itself.
func (n *name) giveBack() {
	n.mu.Lock()
	c := n.chunk
	n.chunk = nil
	n.mu.Unlock()
	if c == nil || c.left == 0 || !n.store.shared.Now().Before(c.until) {
		return
	}
	undo := c.command
	undo.Op, undo.Cost, undo.Granted = gatehouse.OpUndo, c.left, &c.said
	_ = n.store.shared.Apply(context.Background(), n.key, []control.Turn{{Command: &undo}})
}
