package lazy

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// The store's record names every chunk that is out, and how much of it its holder had at the last exchange.
// What is left here must never be more than that, whatever becomes of an exchange: a reset counts what the
// record says. Between two exchanges it only falls, or rises again by what was drawn since the last one.

// A chunk is what was taken from the store to be let through here.
type chunk struct {
	command  gatehouse.Command  // that was sent to take it
	said     gatehouse.Decision // by the store
	until    time.Time          // by when it is worth nothing: the bucket is refilled, or its window ends
	left     int64
	number   uint64 // of the last exchange, successful or not: what was drawn since then has it
	commands int64  // how many were let through that the store does not know of
	busy     bool   // something was let through since the last round
}

// A refusal is what the store said when there was nothing to take.
type refusal struct {
	command gatehouse.Command
	said    gatehouse.Decision
	until   time.Time // by when it is to be asked again
}

// A rest is what is to be given back of a chunk that is not used any more. To say so twice does no harm.
type rest struct {
	until    time.Time // the zero time when there is nothing to say
	left     int64
	commands int64
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
	queue = n.draw(queue)
	if len(queue) > 0 && chunked(queue[0].Command) {
		var err error
		queue, err = n.refill(ctx, queue)
		if err != nil {
			return err
		}
	}
	switch {
	case len(queue) == 0:
		return nil
	case hasOp(queue, settles):
		return n.afterChunk(ctx, queue)
	case hasOp(queue, func(op gatehouse.Op) bool { return op == gatehouse.OpUndo }):
		// The store must have heard first that it was let through.
		n.exchanging <- struct{}{}
		<-n.exchanging
	}
	err := n.store.shared.Apply(ctx, n.key, queue)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range queue {
		if queue[i].Command.Op == gatehouse.OpAcquire && err == nil {
			n.noteLimit(&queue[i].Decision)
		}
	}
	return err
}

// noteLimit notes the limit in force by which the store has judged an acquire: 0 if it did not, or by
// several. It is called with the lock held.
func (n *name) noteLimit(d *gatehouse.Decision) {
	n.limit = d.Limit
	if len(d.Windows) > 0 {
		n.limit = 0
	}
}

// knownLimit is the limit under which a chunk for a command would be taken; 0 when the store has to decide
// because the command leaves the limit as it is, and what that is is not known here.
func (n *name) knownLimit(cmd *gatehouse.Command) int64 {
	if cmd.HasLimit() {
		return max(1, cmd.Size)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.limit
}

func hasOp(queue []control.Turn, is func(gatehouse.Op) bool) bool {
	return slices.ContainsFunc(queue, func(turn control.Turn) bool { return is(turn.Command.Op) })
}

// settles reports whether an operation needs to know what was let through here: what lies in the chunk can
// neither be refunded nor outlive a reset.
func settles(op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpRefund, gatehouse.OpCharge, gatehouse.OpReset, gatehouse.OpDelete, gatehouse.OpReserve,
		gatehouse.OpCancel:
		return true
	default:
		return false
	}
}

// refill takes chunks from the store until all is served that they can serve, and returns the rest.
func (n *name) refill(ctx context.Context, queue []control.Turn) ([]control.Turn, error) {
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	size := n.rule.Chunk
	for range maxFetches {
		queue = n.draw(queue)
		if len(queue) == 0 || !chunked(queue[0].Command) {
			return queue, nil
		}
		cmd := *queue[0].Command
		limit := n.knownLimit(&cmd)
		if limit == 0 {
			return queue, nil
		}
		n.report(&cmd)
		wanted := max(1, cmd.Cost-cmd.Chunk.Left)
		cmd.Cost, cmd.MaxWait, cmd.Ticket, cmd.Again = max(wanted, min(size, limit)), 0, 0, false
		d, err := n.fetch(ctx, &cmd)
		if err != nil {
			return queue, err
		}
		n.hear(&cmd, &d)
		switch {
		case d.Outcome == gatehouse.Granted:
		case d.Outcome == gatehouse.Refused && d.Remaining < wanted:
			n.giveBackIf(func(c *chunk) bool { return c.left == 0 }) // so that a reset need not count it
			return n.draw(queue), nil
		case d.Outcome == gatehouse.Refused && d.Remaining < cmd.Cost:
			size = d.Remaining
		default: // the store says why
			return queue, nil
		}
	}
	return n.draw(queue), nil
}

// chunked reports whether a command can be let through from a chunk. One that the store knows to wait must be
// served by the store.
func chunked(cmd *gatehouse.Command) bool {
	known := cmd.Again && cmd.Ticket != 0
	return cmd.Op == gatehouse.OpAcquire && cmd.Ahead == 0 && len(cmd.Limits) == 0 && !known
}

// report has a command that is to take a chunk tell of the one before it.
func (n *name) report(cmd *gatehouse.Command) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cmd.Chunk = &gatehouse.Chunk{Holder: n.store.holder}
	n.exchanges++
	c := n.live()
	if c == nil {
		return
	}
	c.number = n.exchanges
	cmd.Chunk.Left, cmd.Chunk.Commands = c.left, c.commands
}

// live is the chunk while it can be used; nil when there is none. It is called with the lock held.
func (n *name) live() *chunk {
	if n.chunk == nil || !n.store.shared.Latest().Before(n.chunk.until) {
		n.chunk = nil
	}
	return n.chunk
}

// fetch has the store answer a command that is to take a chunk, after it was told what was left to tell.
func (n *name) fetch(ctx context.Context, cmd *gatehouse.Command) (gatehouse.Decision, error) {
	n.mu.Lock()
	var turns []control.Turn
	if undo := n.restTurn(); undo != nil {
		turns = append(turns, control.Turn{Command: undo})
	}
	n.mu.Unlock()
	turns = append(turns, control.Turn{Command: cmd})
	if err := n.store.shared.Apply(ctx, n.key, turns); err != nil {
		return gatehouse.Decision{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rest = rest{}
	return turns[len(turns)-1].Decision, nil
}

// hear notes what the store said to a command that was to take a chunk.
func (n *name) hear(cmd *gatehouse.Command, d *gatehouse.Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.At.After(n.now) || n.now.Sub(d.At) > maxBackwards {
		n.now = d.At
	}
	granted := d.Outcome == gatehouse.Granted
	known := d.Value // what it knows to be left of the chunk before
	if granted {
		known -= cmd.Cost
	}
	judged := granted || d.Outcome == gatehouse.Refused
	n.noteLimit(d)
	if c := n.chunk; c != nil && judged && known < cmd.Chunk.Left { // the record is younger than the chunk
		c.left = max(0, c.left-(cmd.Chunk.Left-known))
	}
	switch {
	case granted:
		c := n.chunk
		if c == nil {
			c = &chunk{number: n.exchanges}
			n.chunk = c
		}
		c.command, c.said, c.until, c.busy = *cmd, *d, d.At.Add(d.ResetAfter), true
		c.said.Value = 0
		c.left += cmd.Cost
		c.commands -= min(c.commands, cmd.Chunk.Commands)
		n.refused = nil
	case d.Outcome == gatehouse.Refused: // for as long as others may have given something back
		until := n.rule.Interval
		if d.RetryAfter != gatehouse.Forever && d.RetryAfter < until {
			until = d.RetryAfter
		}
		n.refused = &refusal{*cmd, *d, d.At.Add(until)}
		n.refused.said.Value = 0
	}
}

// draw serves as much of the queue as there is in the chunk, and returns the rest.
func (n *name) draw(queue []control.Turn) []control.Turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(queue) > 0 && n.serve(&queue[0]) {
		queue = queue[1:]
	}
	return queue
}

// serve answers one command, and reports false if the store has to. It is called with the lock held.
func (n *name) serve(turn *control.Turn) bool {
	cmd := turn.Command
	left := int64(0)
	if c := n.live(); c != nil {
		left = c.left
		switch {
		case cmd.Op == gatehouse.OpUndo && cmd.Granted != nil && cmd.Granted.Drawn == c.number:
			c.left, c.commands = c.left+cmd.Cost, c.commands-1
			turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: n.clock()}
			return true
		case c.left >= cmd.Cost && answers(&c.command, cmd):
			c.left, c.commands, c.busy = c.left-cmd.Cost, c.commands+1, true
			turn.Decision = c.said
			turn.Decision.Remaining += c.left
			turn.Decision.Drawn = c.number
			tell(n.clock(), &turn.Decision)
			return true
		}
	}
	if r := n.refused; r != nil && n.store.shared.Latest().Before(r.until) && answers(&r.command, cmd) &&
		cmd.MaxWait == 0 && cmd.Cost > r.said.Remaining+left {
		turn.Decision = r.said
		tell(n.clock(), &turn.Decision)
		return true
	}
	return false
}

// answers reports whether what the store said to one command that was to take a chunk answers another.
func answers(asked, cmd *gatehouse.Command) bool {
	return chunked(cmd) && (cmd.Again || !cmd.HasLimit() || sameLimits(cmd, asked))
}

// tell makes what the store said one that is said now.
func tell(now time.Time, d *gatehouse.Decision) {
	passed := now.Sub(d.At)
	d.At, d.ResetAfter = now, max(0, d.ResetAfter-passed)
	if d.RetryAfter > 0 {
		d.RetryAfter = max(1, d.RetryAfter-passed)
	}
}

// afterChunk has the store serve a queue after it was given the chunk back.
func (n *name) afterChunk(ctx context.Context, queue []control.Turn) error {
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	var turns []control.Turn
	if undo := n.surrender(); undo != nil {
		turns = append(turns, control.Turn{Command: undo})
	}
	before := len(turns)
	turns = append(turns, queue...)
	err := n.store.shared.Apply(ctx, n.key, turns)
	copy(queue, turns[before:])
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = nil
	if err == nil {
		n.rest = rest{}
	}
	return err
}

// surrender ends the chunk here, and makes the command by which the store learns that; nil when there is
// nothing to tell.
func (n *name) surrender() *gatehouse.Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.live(); c != nil {
		n.rest = rest{c.until, c.left, c.commands}
		n.chunk = nil
	}
	return n.restTurn()
}

// restTurn makes the command that gives back the rest; nil when there is none. It is called with the lock
// held.
func (n *name) restTurn() *gatehouse.Command {
	if !n.store.shared.Now().Before(n.rest.until) {
		n.rest = rest{}
		return nil
	}
	return &gatehouse.Command{
		Op: gatehouse.OpUndo, Cost: n.rest.left,
		Chunk: &gatehouse.Chunk{Holder: n.store.holder, Commands: n.rest.commands},
	}
}

// giveBackUnused gives back what nobody has asked for since the last round.
func (n *name) giveBackUnused() {
	n.giveBackIf(func(c *chunk) bool {
		unused := !c.busy
		c.busy = false
		return unused
	})
}

// giveBackIf gives back the chunk if it is so, and what could not be given back before. It is called with
// exchanging held.
func (n *name) giveBackIf(so func(c *chunk) bool) {
	n.mu.Lock()
	c := n.live()
	ends := c != nil && so(c) || c == nil && !n.rest.until.IsZero()
	n.mu.Unlock()
	if ends {
		n.giveBack()
	}
}

// giveBack gives the chunk back. If that fails it is tried again in the next round, until it comes back by
// itself.
func (n *name) giveBack() {
	undo := n.surrender()
	if undo == nil {
		return
	}
	err := n.store.shared.Apply(context.Background(), n.key, []control.Turn{{Command: undo}})
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.rest = rest{}
	}
}
