package lazy

import (
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A namedLimiter is one limiter as this server knows it. Locks are taken in the order exchangeLock, mu, and
// those of the store.
//
//	             first round trip              exchange fails for staleIntervals
//	┌─────────┐ ─────────────────▶ ┌───────┐ ────────────────────────────────▶ ┌─────────┐
//	│ unknown │                    │ known │                                   │ failing │
//	└─────────┘ ◀───────────────── └───────┘ ◀──────────────────────────────── └─────────┘
//	             not used for one interval     exchange succeeds
//
// Only a known limiter is served from memory. The state of an unknown one is read by its first command; a
// failing one returns the error of the last exchange.
type namedLimiter struct {
	store *Store
	key   gatehouse.Key
	rule  SyncRule

	exchangeLock chan struct{} // a lock of capacity 1, held during a round trip

	mu        sync.Mutex
	forgotten bool // it was forgotten

	jointUnderWay bool // the store decides a change of it and others, so that nothing may be taken here
	scheduled     bool // it is in a round
	now           time.Time
	used          bool // it has saved a round trip since the last round

	// Of names that are taken in chunks.
	chunk     *localChunk    // nil when there is none
	refused   *cachedRefusal // nil when there is none
	toReturn  unusedChunk
	exchanges uint64    // the number of the last exchange about chunks
	limit     int64     // that was in force at the last one; 0 when it is not known
	heldUntil time.Time // until when the store lends no chunk, as far as is known

	// The rest is of names that are not taken in chunks.
	state       control.State      // as of the last exchange, plus what was granted here since; nil: unknown
	learnedAt   time.Time          // when an exchange succeeded last
	failure     error              // of the last exchange
	requests    []*exchangeRequest // queues that the store has to serve
	storeTaking bool               // the store may take for them, so that nothing may be taken here
	unreported  unreportedUse
}

// An unreportedUse is what was counted and not yet sent to the store.
type unreportedUse struct {
	rule     gatehouse.Rule // of the last command that came with one; the zero Rule before that
	changed  bool           // that is another than the store was told
	cost     int64          // how much was let through
	commands int64          // in how many commands
	undone   []control.Turn // undos of what the store was told already
	since    time.Time      // what was let through later is in none of the reports so far
}

const (
	// staleIntervals is for how many intervals exchanges may fail until commands fail; at least minStale.
	staleIntervals = 3
	minStale       = time.Second

	// maxBackwards is how far the store's time may go back while it is taken to stand still, as store/cas
	// does. After more than that all is learnt again.
	maxBackwards = 10 * time.Second

	// maxUndone is how many undos wait for the next exchange. What more are about comes back with time.
	maxUndone = 1000
)

// applyInMemory answers what can be answered without the store, and returns the rest. errForgotten says that
// it did nothing.
func (n *namedLimiter) applyInMemory(queue []control.Turn) (rest []control.Turn, err error) {
	if n.rule.Chunk > 0 {
		return n.applyFromChunk(queue)
	}
	answered, err := n.applyLocally(queue)
	if answered {
		return nil, nil
	}
	return queue, err
}

// storeTime is the store's time, which does not go back by little. It is called with the lock held.
func (n *namedLimiter) storeTime() time.Time {
	now := n.store.Now()
	if now.Before(n.now) && n.now.Sub(now) <= maxBackwards {
		return n.now
	}
	n.now = now
	return now
}

// servedLocally reports whether a queue can be served here.
func servedLocally(queue []control.Turn) bool {
	return !hasOp(queue, func(op gatehouse.Op) bool {
		return op != gatehouse.OpAcquire && op != gatehouse.OpPeek && op != gatehouse.OpDelay &&
			op != gatehouse.OpUndo
	})
}

// mayTake reports whether a queue may take something, or have nothing be taken.
func mayTake(queue []control.Turn) bool {
	return hasOp(queue, func(op gatehouse.Op) bool {
		return op == gatehouse.OpAcquire || op == gatehouse.OpReserve || op == gatehouse.OpCharge ||
			op == gatehouse.OpFeedback
	})
}

// applyLocally serves a queue by the state that is known here, if it is, and if that is enough.
func (n *namedLimiter) applyLocally(queue []control.Turn) (answered bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.forgotten:
		return false, errForgotten
	case n.state == nil || n.storeTaking || n.jointUnderWay || !servedLocally(queue):
		return false, nil
	}
	now := n.storeTime()
	age, patience := now.Sub(n.learnedAt), max(minStale, staleIntervals*n.rule.Interval)
	switch {
	case age > patience && n.failure != nil:
		// The exchange is scheduled again, or the name would fail even after the store is back.
		n.store.scheduleExchange(n)
		return false, n.failure
	case age > patience+maxBackwards || age < -maxBackwards: // the time was set
		return false, nil
	case control.Ramping(now, n.state):
		// Several servers would each let the whole ramp through.
		return false, nil
	}
	n.state = control.Serve(now, n.key.Kind, n.state, queue)
	n.used = true
	for i := range queue {
		n.unreported.noteTurn(&queue[i])
	}
	n.store.scheduleExchange(n)
	return true, nil
}

// isEmpty reports whether there is nothing to tell.
func (u *unreportedUse) isEmpty() bool { return u.cost == 0 && !u.changed && len(u.undone) == 0 }

// noteTurn notes what a turn that was served here means for the store.
func (u *unreportedUse) noteTurn(turn *control.Turn) {
	switch {
	case turn.Op == gatehouse.OpUndo:
		u.noteUndo(turn)
	case turn.Op != gatehouse.OpAcquire || turn.Decision.Outcome == gatehouse.Invalid:
		return
	case !turn.Again && turn.HasLimit() && turn.Rule != u.rule:
		u.rule, u.changed = turn.Rule, true
	}
	if turn.Op == gatehouse.OpAcquire && turn.Decision.Outcome == gatehouse.Granted {
		u.cost = min(u.cost+turn.Cost, gatehouse.MaxSize)
		u.commands++
	}
}

// noteUndo notes that something is taken back.
func (u *unreportedUse) noteUndo(turn *control.Turn) {
	switch {
	case turn.Granted == nil:
	// The grant is in no report so far: both cancel out, and the store need not learn of either.
	case turn.Granted.At.After(u.since) && u.cost >= turn.Cost && u.commands > 0:
		u.cost, u.commands = u.cost-turn.Cost, u.commands-1
	case len(u.undone) < maxUndone:
		undone := control.UndoOf(turn, turn.Granted)
		// As in addTurn: a ticket would take a place in the store's own order.
		undone.Ticket = 0
		u.undone = append(u.undone, undone)
	}
}
