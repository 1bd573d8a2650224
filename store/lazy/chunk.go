package lazy

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A chunk is what was taken from the store and not let through yet.
type chunk struct {
	left    int64
	until   time.Time // by when it is worth nothing any more, because the limiter refills or its window ends
	used    time.Time
	command gatehouse.Command  // that took it
	granted gatehouse.Decision // what the store said to it
}

// fromChunk lets through what was taken from the store before, and takes more when that is used up.
func (n *name) fromChunk(ctx context.Context, rule Rule, queue []control.Turn) error {
	queue = n.fromLeft(rule, queue)
	if len(queue) == 0 {
		return nil
	}
	n.exchanging.Lock()
	defer n.exchanging.Unlock()
	for size := rule.Chunk; ; {
		if queue = n.fromLeft(rule, queue); len(queue) == 0 {
			return nil
		}
		cmd := *queue[0].Command
		if !chunked(&cmd) {
			return n.store.shared.Apply(ctx, n.key, queue)
		}
		cmd.Cost, cmd.MaxWait, cmd.Ticket = max(cmd.Cost, min(size, cmd.Size)), 0, 0
		more := []control.Turn{{Command: &cmd}}
		if err := n.store.shared.Apply(ctx, n.key, more); err != nil {
			return err
		}
		switch d := &more[0].Decision; {
		case d.Outcome == gatehouse.Granted:
			n.fill(rule, cmd, *d)
		case d.Outcome == gatehouse.Refused && d.Remaining >= queue[0].Command.Cost && d.Remaining < cmd.Cost:
			size = d.Remaining
		default: // the store says why, and lets those wait that may
			return n.store.shared.Apply(ctx, n.key, queue)
		}
	}
}

// chunked reports whether a command can be let through from a chunk.
func chunked(cmd *gatehouse.Command) bool {
	return cmd.Op == gatehouse.OpAcquire && cmd.Ahead == 0 && len(cmd.Limits) == 0
}

// fromLeft serves as much of the queue as the chunk is enough for, and returns the rest.
func (n *name) fromLeft(rule Rule, queue []control.Turn) []control.Turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(queue) > 0 && n.chunk.serve(&queue[0], n.store.shared) {
		n.quiet = 0
		n.store.enter(n, rule.Interval)
		queue = queue[1:]
	}
	return queue
}

// fill adds what was taken to what is left, if that is worth something for as long.
func (n *name) fill(rule Rule, cmd gatehouse.Command, d gatehouse.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	more := chunk{left: cmd.Cost, until: d.At.Add(d.ResetAfter), used: d.At, command: cmd, granted: d}
	if n.chunk.until.Equal(more.until) {
		more.left += n.chunk.left
	}
	n.chunk = more
	n.store.enter(n, rule.Interval)
}

// serve answers one command, and reports false if the store has to.
func (c *chunk) serve(turn *control.Turn, clock Shared) bool {
	cmd := turn.Command
	if c.left == 0 || !clock.Latest().Before(c.until) {
		return false
	}
	if cmd.Op == gatehouse.OpUndo && cmd.Granted != nil && !cmd.Granted.At.Before(c.granted.At) {
		c.left += cmd.Cost
		turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: clock.Now()}
		return true
	}
	same := cmd.Again || cmd.Size == c.command.Size && cmd.Interval == c.command.Interval &&
		cmd.Calendar == c.command.Calendar && cmd.Zone == c.command.Zone
	if !chunked(cmd) || !same || c.left < cmd.Cost {
		return false
	}
	now := clock.Now()
	c.left -= cmd.Cost
	c.used = now
	turn.Decision = c.granted
	turn.Decision.At = now
	turn.Decision.ResetAfter = max(0, c.until.Sub(now))
	turn.Decision.Remaining = c.granted.Remaining + c.left
	return true
}

// giveBack is the command that gives back what nobody has asked for within an interval; nil when somebody
// has, or there is none.
func (c *chunk) giveBack(now time.Time, idle time.Duration) *gatehouse.Command {
	if c.left == 0 || now.Sub(c.used) < idle {
		return nil
	}
	undo, granted := c.command, c.granted
	undo.Op, undo.Cost, undo.Granted = gatehouse.OpUndo, c.left, &granted
	*c = chunk{}
	return &undo
}

// exchangeChunk gives back what is left over. That it fails is nobody's to hear: it comes back by itself.
func (n *name) exchangeChunk(rule Rule, idle time.Duration) {
	n.mu.Lock()
	n.entered = false
	undo := n.chunk.giveBack(n.store.shared.Now(), idle)
	switch n.quiet++; {
	case n.chunk.left > 0:
		n.store.enter(n, rule.Interval)
	case undo == nil && n.quiet > idleRounds:
		n.store.forget(n)
	case undo == nil:
		n.store.enter(n, rule.Interval)
	}
	n.mu.Unlock()
	if undo != nil {
		_ = n.store.shared.Apply(context.Background(), n.key, []control.Turn{{Command: undo}})
	}
}
