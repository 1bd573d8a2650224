package lazy

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// The store's record names every chunk that is out, and how much of it its holder had at the last exchange.
// What is left here must never be more than that, whatever becomes of an exchange: a reset counts what the
// record says. Between two exchanges it only falls, or rises again by what was drawn since the last one.

// A localChunk is what was taken from the store in one piece, to be granted here.
type localChunk struct {
	command     gatehouse.Command  // that was sent to take it
	reply       gatehouse.Decision // by the store
	validUntil  time.Time          // by when it is worth nothing: the bucket is refilled, or its window ends
	left        int64
	number      uint64 // of the last exchange, successful or not: what was drawn since then has it
	commands    int64  // how many were let through that the store does not know of
	usedInRound bool   // something was let through since the last round
}

// A cachedRefusal is what the store said when there was nothing to take.
type cachedRefusal struct {
	command    gatehouse.Command
	reply      gatehouse.Decision
	validUntil time.Time // by when it is to be asked again
}

// An unusedChunk is the rest of a chunk that is to be returned to the store. Returning it twice does no harm.
type unusedChunk struct {
	validUntil time.Time // the zero time when there is nothing to say
	left       int64
	commands   int64
}

// maxFetches is how often a chunk is asked for until the store is left to decide: it may have less than a
// whole one left, or the window may end on the way.
const maxFetches = 4

// applyFromChunk serves what it can of a queue from the chunk that is here, and returns the rest. That needs
// no exchange, even while another one is under way.
func (n *namedLimiter) applyFromChunk(queue []control.Turn) (rest []control.Turn, err error) {
	n.mu.Lock()
	if n.forgotten {
		n.mu.Unlock()
		return nil, errForgotten
	}
	n.used = true
	n.store.scheduleExchange(n)
	n.mu.Unlock()
	return n.drawQueue(queue), nil
}

// applyFromChunks serves a queue for which the chunk that is here does not suffice: it takes another one, and
// applies to the store what no chunk can serve.
func (n *namedLimiter) applyFromChunks(queue []control.Turn) error {
	if fitsChunk(&queue[0]) {
		var err error
		queue, err = n.fetchChunks(queue)
		if err != nil {
			return err
		}
	}
	switch {
	case len(queue) == 0:
		return nil
	case hasOp(queue, needsChunkBack):
		return n.applyAfterReturn(queue)
	case hasOp(queue, func(op gatehouse.Op) bool { return op == gatehouse.OpUndo }):
		// An exchange that is under way may be the one that reports the grant. It must end first, so that the
		// store knows what the undo is about.
		n.exchangeLock <- struct{}{}
		<-n.exchangeLock
	}
	err := n.applyToStore(queue)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range queue {
		// The store may have judged by a new limit. The next chunk must be no larger than that.
		if queue[i].Op == gatehouse.OpAcquire && err == nil {
			n.noteLimit(&queue[i].Decision)
		}
	}
	return err
}

// applyToStore applies a queue to the store, and waits for its answer.
func (n *namedLimiter) applyToStore(queue []control.Turn) error {
	err := (&control.Change{Key: n.key, Turns: queue}).ApplyTo(n.store.SharedStore)
	if err == nil && n.rule.Chunk > 0 {
		n.noteHeldBy(queue)
	}
	return err
}

// noteLimit notes the limit in force by which the store has judged an acquire: 0 if it did not, or by
// several. It is called with the lock held.
func (n *namedLimiter) noteLimit(d *gatehouse.Decision) {
	n.limit = d.Limit
	if len(d.Windows) > 0 {
		n.limit = 0
	}
}

// knownLimit is the limit under which a chunk for a command would be taken; 0 when the store has to decide
// because the command leaves the limit as it is, and what that is is not known here.
func (n *namedLimiter) knownLimit(cmd *gatehouse.Command) int64 {
	if cmd.HasLimit() {
		return max(1, cmd.Size)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.limit
}

func hasOp(queue []control.Turn, is func(gatehouse.Op) bool) bool {
	for i := range queue {
		if is(queue[i].Op) {
			return true
		}
	}
	return false
}

// needsChunkBack reports whether the chunk must be returned before an operation: what is left in it can
// neither be refunded nor outlive a reset, and nothing may be let through in a pause, or at a name that is
// closed.
func needsChunkBack(op gatehouse.Op) bool {
	return slices.Contains([]gatehouse.Op{
		gatehouse.OpRefund, gatehouse.OpCharge, gatehouse.OpReset, gatehouse.OpDelete, gatehouse.OpReserve,
		gatehouse.OpCancel, gatehouse.OpClose, gatehouse.OpFeedback,
	}, op)
}

// fetchChunks takes chunks from the store until all is served that they can serve, and returns the rest.
func (n *namedLimiter) fetchChunks(queue []control.Turn) ([]control.Turn, error) {
	// One exchange at a time. Callers that come meanwhile find a new chunk when it is their turn.
	n.exchangeLock <- struct{}{}
	defer func() { <-n.exchangeLock }()
	size := n.rule.Chunk
	if n.lendsNothing() {
		return queue, nil
	}
	for range maxFetches {
		queue = n.drawQueue(queue)
		if len(queue) == 0 || !fitsChunk(&queue[0]) {
			return queue, nil
		}
		cmd := *queue[0].Command
		turn := queue[0]
		turn.Command = &cmd
		// A chunk larger than the limit would always be refused. Without a known limit the store decides.
		limit := n.knownLimit(&cmd)
		if limit == 0 {
			return queue, nil
		}
		n.addChunkReport(&turn)
		wanted := max(1, cmd.Cost-turn.Chunk.Left)
		cmd.Cost, cmd.MaxWait = max(wanted, min(size, limit)), 0
		turn.Ticket, turn.Again = 0, false
		if err := n.fetchChunk(&turn); err != nil {
			return queue, err
		}
		n.readReply(&turn)
		d := &turn.Decision
		switch {
		case d.Outcome == gatehouse.Granted:
		case d.Reported != nil:
			// The store decides each command until that is over, and nothing is let through here any more.
			n.noteHeld(d)
			n.returnChunkIf(func(*localChunk) bool { return true })
			return queue, nil
		case d.Outcome == gatehouse.Refused && d.Remaining < wanted:
			// An empty chunk is returned, so that a reset need not count it.
			n.returnChunkIf(func(c *localChunk) bool { return c.left == 0 })
			return n.drawQueue(queue), nil
		case d.Outcome == gatehouse.Refused && d.Remaining < cmd.Cost:
			size = d.Remaining // there is less than a whole chunk left: ask for that
		default: // the store says why
			return queue, nil
		}
	}
	return n.drawQueue(queue), nil
}

// fitsChunk reports whether a command can be served from a chunk. A command that the store knows to wait
// must be served by the store.
func fitsChunk(turn *control.Turn) bool {
	known := turn.Again && turn.Ticket != 0
	return turn.Op == gatehouse.OpAcquire && turn.Ahead == 0 && turn.Limits.Len() == 0 && !known
}

// addChunkReport has a turn that is to take a chunk tell of the one before it.
func (n *namedLimiter) addChunkReport(turn *control.Turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	turn.Chunk = &control.Chunk{Holder: n.store.holder}
	n.exchanges++
	c := n.liveChunk()
	if c == nil {
		return
	}
	// From now on an undo of an earlier grant must go to the store, which may know of that grant.
	c.number = n.exchanges
	turn.Chunk.Left, turn.Chunk.Commands = c.left, c.commands
}

// liveChunk is the chunk while it can be used; nil when there is none. It is called with the lock held.
func (n *namedLimiter) liveChunk() *localChunk {
	if n.chunk == nil || !n.store.Latest().Before(n.chunk.validUntil) {
		n.chunk = nil
	}
	return n.chunk
}

// fetchChunk has the store answer a turn that is to take a chunk, after it was told what was left to tell.
func (n *namedLimiter) fetchChunk(turn *control.Turn) error {
	n.mu.Lock()
	var turns []control.Turn
	// In the same change, and first: what is returned may be just what the new chunk needs.
	if undo := n.returnTurn(); undo != nil {
		turns = append(turns, *undo)
	}
	n.mu.Unlock()
	turns = append(turns, *turn)
	if err := n.applyToStore(turns); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.toReturn = unusedChunk{}
	turn.Decision = turns[len(turns)-1].Decision
	return nil
}

// readReply notes what the store said to a turn that was to take a chunk.
func (n *namedLimiter) readReply(turn *control.Turn) {
	d := &turn.Decision
	n.mu.Lock()
	defer n.mu.Unlock()
	// A reply may arrive after a younger one was read. Only a large step back means that the clock was set.
	if d.At.After(n.now) || n.now.Sub(d.At) > maxBackwards {
		n.now = d.At
	}
	granted := d.Outcome == gatehouse.Granted
	known := d.Value // what it knows to be left of the chunk before
	if granted {
		known -= turn.Cost
	}
	judged := granted || d.Outcome == gatehouse.Refused
	n.noteLimit(d)
	// The store knows of less than was reported: the record is younger than the chunk, after a reset. What
	// the record does not count must not be granted.
	if c := n.chunk; c != nil && judged && known < turn.Chunk.Left {
		c.left = max(0, c.left-(turn.Chunk.Left-known))
	}
	switch {
	case granted:
		c := n.chunk
		if c == nil {
			c = &localChunk{number: n.exchanges}
			n.chunk = c
		}
		c.command, c.reply, c.validUntil, c.usedInRound = *turn.Command, *d, d.At.Add(d.ResetAfter), true
		c.reply.Value = 0
		c.left += turn.Cost
		c.commands -= min(c.commands, turn.Chunk.Commands)
		n.refused = nil
	// What was reported refuses chunks alone for a while, and single commands for another one.
	case d.Outcome == gatehouse.Refused && d.Reported == nil:
		// The refusal is repeated here without the store, for one interval at most: other servers may return
		// something at any time.
		until := n.rule.Interval
		if d.RetryAfter != gatehouse.Forever && d.RetryAfter < until {
			until = d.RetryAfter
		}
		n.refused = &cachedRefusal{*turn.Command, *d, d.At.Add(until)}
		n.refused.reply.Value = 0
	}
}

// drawQueue serves as much of the queue as there is in the chunk, and returns the rest.
func (n *namedLimiter) drawQueue(queue []control.Turn) []control.Turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(queue) > 0 && n.serveTurn(&queue[0]) {
		queue = queue[1:]
	}
	return queue
}

// serveTurn answers one command, and reports false if the store has to. It is called with the lock held.
func (n *namedLimiter) serveTurn(turn *control.Turn) bool {
	left := int64(0)
	if c := n.liveChunk(); c != nil {
		// An undo of something drawn since the last exchange goes back into the chunk, because the store does
		// not know of it yet.
		left = c.left
		switch {
		case turn.Op == gatehouse.OpUndo && turn.Granted != nil && turn.Granted.Drawn == c.number:
			c.left, c.commands = c.left+turn.Cost, c.commands-1
			turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: n.storeTime()}
			return true
		// Drawn marks the grant with the last exchange, so that a later undo shows whether the store knows of
		// it.
		case c.left >= turn.Cost && answersTurn(&c.command, turn):
			c.left, c.commands, c.usedInRound = c.left-turn.Cost, c.commands+1, true
			turn.Decision = c.reply
			turn.Decision.Remaining += c.left
			turn.Decision.Drawn = c.number
			ageDecision(n.storeTime(), &turn.Decision)
			return true
		}
	}
	// The last refusal answers commands that want more than was left then, unless they wait: those must be
	// known to the store.
	r := n.refused
	if r != nil && n.store.Latest().Before(r.validUntil) && answersTurn(&r.command, turn) &&
		turn.MaxWait == 0 && turn.Cost > r.reply.Remaining+left {
		turn.Decision = r.reply
		ageDecision(n.storeTime(), &turn.Decision)
		return true
	}
	return false
}

// answersTurn reports whether what the store said to a command that was to take a chunk answers a turn.
func answersTurn(asked *gatehouse.Command, turn *control.Turn) bool {
	return fitsChunk(turn) && (turn.Again || !turn.HasLimit() || turn.Rule == asked.Rule)
}

// ageDecision makes what the store said one that is said now.
func ageDecision(now time.Time, d *gatehouse.Decision) {
	passed := now.Sub(d.At)
	d.At, d.ResetAfter = now, max(0, d.ResetAfter-passed)
	if d.RetryAfter > 0 {
		d.RetryAfter = max(1, d.RetryAfter-passed)
	}
}
