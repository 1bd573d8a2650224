package cas

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

const (
	// maxPendingUndos is how many grants may await being taken back. More end when they expire.
	maxPendingUndos = 10_000
	// undoInterval is the time between two tries to reach the store for it.
	undoInterval = time.Second
)

// An undoQueue is what may have been granted to calls that failed. It is taken back, by its fencing token or
// number, once the store answers again: if it was granted, and to no other client.
//
//	added ──► pending ── a second later, with all of its name ──► sent ──► done, or found to be none: gone
//	             ▲                                                 │
//	             └────────────── last of all, if the store does not answer
type undoQueue struct {
	// send puts undos of one name to the store, as one change. It returns an error if they have to be sent
	// again.
	send func(key gatehouse.Key, together []pendingUndo) error

	delayedRun
	pending []pendingUndo
}

// A pendingUndo is one undo.
type pendingUndo struct {
	key     gatehouse.Key
	undoing control.Turn // that does it
	undo

	joint *pendingJointUndo // instead of these, if it is of several names
}

// goesWith reports whether one undo is sent together with another.
func (u *pendingUndo) goesWith(other *pendingUndo) bool {
	return u.joint == nil && other.joint == nil && u.key == other.key
}

// addUnresolved notes what a failed transaction may have been granted, by changes whose answers were lost.
func (q *undoQueue) addUnresolved(key gatehouse.Key, turns []control.Turn, unresolved []attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range unresolved {
		try := &unresolved[i]
		for j, d := range try.decisions {
			if d.Outcome != gatehouse.Granted || !try.canUndo(turns[j].Command, &d) {
				continue
			}
			// The decision names the token or the number. Of the attempt only its identity is needed.
			made := &attempt{nonce: try.nonce, base: try.base}
			one := undo{id: rand.Uint64(), onlyIf: made, shared: existedBefore(&d)}
			q.appendUndo(pendingUndo{key: key, undoing: control.UndoOf(&turns[j], &d), undo: one})
		}
	}
	q.startTimer()
}

// addFailed notes what a queue has left behind whose commands have failed: those who waited at a barrier
// still count there, and what was to be taken back is still there. The undos are those in the queue.
func (q *undoQueue) addFailed(key gatehouse.Key, queue []control.Turn, undos []*undo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range queue {
		turn := &queue[i]
		switch {
		// An undo that failed is tried again, with its identity, as the change that does it may have been
		// made.
		case isGrantUndo(turn):
			undoing := control.UndoOf(turn, turn.Granted)
			q.appendUndo(pendingUndo{key: key, undoing: undoing, undo: *undos[0]})
			undos = undos[1:]
		case key.Kind == gatehouse.Barrier && turn.Ticket != 0 &&
			(turn.Op.Waits() || turn.Op == gatehouse.OpUndo):
			undoing := control.UndoOf(turn, nil)
			q.appendUndo(pendingUndo{key: key, undoing: undoing, undo: undo{id: rand.Uint64()}})
		}
	}
	q.startTimer()
}

func (q *undoQueue) appendUndo(u pendingUndo) {
	if len(q.pending) < maxPendingUndos {
		q.pending = append(q.pending, u)
	}
}

func (q *undoQueue) startTimer() {
	if len(q.pending) > 0 {
		q.schedule(undoInterval, q.sendPending)
	}
}

// sendPending takes back what can be, and tries the rest later, what could not be taken back last of all.
// Undos of one name that came together are put to the store together: the record says of all of them
// whether they are done, before the first one is done and may make it forget another.
func (q *undoQueue) sendPending() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pending) > 0 && !q.closed {
		n := 1
		for n < len(q.pending) && q.pending[n].goesWith(&q.pending[0]) {
			n++
		}
		// They stay in the queue meanwhile, so that PendingUndos counts them and the bound holds.
		together := slices.Clone(q.pending[:n])
		q.mu.Unlock()
		err := q.send(together[0].key, together)
		q.mu.Lock()
		clear(q.pending[:n])
		q.pending = q.pending[n:]
		if err != nil {
			// Last of all: one name that fails must not keep back the others the next time.
			q.pending = append(q.pending, together...)
			break
		}
	}
	q.timer = nil
	q.startTimer()
}

// countPending returns how many are still to be done.
func (q *undoQueue) countPending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}
