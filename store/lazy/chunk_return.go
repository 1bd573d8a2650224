package lazy

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// applyAfterReturn returns the chunk, and applies a queue to the store in the same change.
func (n *namedLimiter) applyAfterReturn(queue []control.Turn) error {
	n.exchangeLock <- struct{}{}
	defer func() { <-n.exchangeLock }()
	err := n.applyAfterUndo(queue)
	n.mu.Lock()
	defer n.mu.Unlock()
	// The queue may have changed the limit or given something back, so that the refusal proves nothing.
	n.refused = nil
	return err
}

// applyAfterUndo returns the chunk if there is one, and applies a queue behind it. It is called with
// exchangeLock held.
func (n *namedLimiter) applyAfterUndo(queue []control.Turn) error {
	var turns []control.Turn
	if undo := n.endChunk(); undo != nil {
		turns = append(turns, *undo)
	}
	before := len(turns)
	turns = append(turns, queue...)
	if len(turns) == 0 {
		return nil
	}
	err := n.applyToStore(turns)
	copy(queue, turns[before:])
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.toReturn = unusedChunk{}
	}
	return err
}

// endChunk ends the chunk here, and makes the turn by which the store learns that; nil when there is nothing
// to tell.
func (n *namedLimiter) endChunk() *control.Turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	// What is to be returned is kept until an exchange succeeds, and sent along with each.
	if c := n.liveChunk(); c != nil {
		n.toReturn = unusedChunk{c.validUntil, c.left, c.commands}
		n.chunk = nil
	}
	return n.returnTurn()
}

// returnTurn returns the turn that returns the unused chunk, nil if there is none. It is called with the lock
// held.
func (n *namedLimiter) returnTurn() *control.Turn {
	if !n.store.Now().Before(n.toReturn.validUntil) {
		n.toReturn = unusedChunk{}
		return nil
	}
	return &control.Turn{
		Command: &gatehouse.Command{Op: gatehouse.OpUndo, Cost: n.toReturn.left},
		Chunk:   &control.Chunk{Holder: n.store.holder, Commands: n.toReturn.commands},
	}
}

// returnUnused returns a chunk that was not used since the last round.
func (n *namedLimiter) returnUnused() {
	n.returnChunkIf(func(c *localChunk) bool {
		unused := !c.usedInRound
		c.usedInRound = false
		return unused
	})
}

// returnChunkIf gives back the chunk if it is so, and what could not be given back before. It is called with
// exchanging held.
func (n *namedLimiter) returnChunkIf(so func(c *localChunk) bool) {
	n.mu.Lock()
	c := n.liveChunk()
	// A chunk that is there was taken together with any earlier return, so that no other one is left.
	ends := c != nil && so(c) || c == nil && !n.toReturn.validUntil.IsZero()
	n.mu.Unlock()
	if ends {
		_ = n.returnChunk()
	}
}

// returnChunk gives the chunk back, if there is one. After an error it is not known whether the return
// arrived: it is sent again in the next round, which does no harm, until the chunk comes back by itself.
func (n *namedLimiter) returnChunk() error { return n.applyAfterUndo(nil) }
