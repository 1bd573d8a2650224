package breaker

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// maxPendingUndos bounds how many undos are remembered. What the others would undo ends when it expires.
const maxPendingUndos = 10_000

// A deferredUndo is an undo that is sent once the store responds again, because a command that would have
// undone something, or has left something behind, was not sent.
type deferredUndo struct {
	key  gatehouse.Key
	turn control.Turn
}

// keepUndos remembers the undos of a queue that is not sent to the store: those in the queue, and those of
// commands at a barrier, which the store still counts as waiting. It reports false, and remembers nothing, if
// the store has come back: then the queue must be sent.
func (b *Breaker) keepUndos(key gatehouse.Key, queue []control.Turn) (away bool) {
	// Once more under the lock: sendPendingUndos empties the list under it after the breaker has closed, and
	// an undo that came later would never be sent.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unreachable.Load() == nil {
		return false
	}
	for i := range queue {
		turn := &queue[i]
		arrived := key.Kind == gatehouse.Barrier && turn.Ticket != 0
		// A ticket that waits at a barrier may have been counted there by an earlier try, and would go on
		// counting. An undo without a grant ends that.
		switch {
		case len(b.pendingUndos) == maxPendingUndos:
		case turn.Op == gatehouse.OpUndo && turn.Granted != nil:
			b.pendingUndos = append(b.pendingUndos, deferredUndo{key, control.UndoOf(turn, turn.Granted)})
		case arrived && (turn.Op == gatehouse.OpWait || turn.Op == gatehouse.OpUndo):
			b.pendingUndos = append(b.pendingUndos, deferredUndo{key, control.UndoOf(turn, nil)})
		}
	}
	return true
}

// sendPendingUndos sends the pending undos, until the store is unreachable again. Errors are ignored: the
// store itself repeats an undo of which it does not know whether it took effect.
func (b *Breaker) sendPendingUndos() {
	for {
		b.mu.Lock()
		if len(b.pendingUndos) == 0 || b.closed || b.unreachable.Load() != nil {
			b.mu.Unlock()
			return
		}
		// One at a time, and by way of the breaker as any other: a store that goes away meanwhile opens it,
		// which ends the loop and keeps the rest.
		one := b.pendingUndos[0]
		b.pendingUndos = b.pendingUndos[1:]
		b.mu.Unlock()
		_ = (&control.Change{Key: one.key, Turns: []control.Turn{one.turn}}).ApplyTo(b)
	}
}
