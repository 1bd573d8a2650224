package cas

import (
	"math/rand/v2"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is joint changes whose answers were lost: whether they were made is learnt from the nonces of
// their records, and what they may have granted to a call that failed is taken back, all parts together.

// A jointAttempt is a joint change that was sent, and not answered.
type jointAttempt struct {
	granted []bool    // by call
	parts   []attempt // of the records
	changed []bool    // that it was to change
}

// newAttempt is the change under way.
func (t *jointTransaction) newAttempt() jointAttempt {
	a := jointAttempt{}
	for i := range t.calls {
		a.granted = append(a.granted, t.calls[i].granted)
	}
	for i := range t.parts {
		p := &t.parts[i]
		one := attempt{nonce: t.nonce, decisions: slices.Clone(p.update.decisions)}
		if nonces := p.entry.known.record.nonces(); len(nonces) > 0 {
			one.base = nonces[0]
		}
		a.parts, a.changed = append(a.parts, one), append(a.changed, !t.changes[i].Read)
	}
	return a
}

// resolveAttempts looks whether a change whose answer was lost has been made after all, now that the records
// were read. It is an error if that cannot be told any more.
func (t *jointTransaction) resolveAttempts() (done bool, err error) {
	if len(t.unresolved) == 0 || !t.fresh {
		return false, nil
	}
	learnt := true
	for i := range t.unresolved {
		a := &t.unresolved[i]
		made, known := t.madeBy(a)
		if made {
			t.adoptAttempt(a)
			return true, nil
		}
		learnt = learnt && known
	}
	// To decide again is safe only if none of them can have been made.
	if !learnt {
		return false, t.store.unavailable(t.keys[0], errOverrun)
	}
	return false, nil
}

// adoptAttempt takes over the decisions under which a change was made.
func (t *jointTransaction) adoptAttempt(a *jointAttempt) {
	for i := range t.calls {
		t.calls[i].granted = a.granted[i]
	}
	for i := range t.parts {
		p := &t.parts[i]
		p.update.decisions = append(p.update.decisions[:0], a.parts[i].decisions...)
		p.decider.waits = p.decider.waits && !a.granted[0] // one that waits is served alone
		if a.changed[i] {
			p.entry.unstored.count = 0
		}
	}
	t.unresolved = nil
}

// madeBy tells whether an attempt was made: as it changed all of its records or none, any of them tells.
func (t *jointTransaction) madeBy(a *jointAttempt) (made, known bool) {
	for i := range t.parts {
		if !a.changed[i] {
			continue
		}
		one, learnt := t.parts[i].entry.known.record.madeBy(&a.parts[i])
		made, known = made || one, known || learnt
	}
	return made, known
}

// A pendingJointUndo takes a grant back, under all of its names.
type pendingJointUndo struct {
	parts []control.Part
	undos []undo // one for each
}

// addUnresolvedJoint notes what a failed transaction may have been granted, by changes whose answers were
// lost.
func (q *undoQueue) addUnresolvedJoint(t *jointTransaction) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range t.unresolved {
		for j := range t.calls {
			if t.unresolved[i].granted[j] && canUndoJoint(&t.calls[j].change.Parts[0].Turn) {
				q.appendUndo(pendingUndo{joint: t.undoCall(j, &t.unresolved[i])})
			}
		}
	}
	q.startTimer()
}

// undoCall is what takes back what a call was granted by a change that may have been made.
func (t *jointTransaction) undoCall(number int, a *jointAttempt) *pendingJointUndo {
	one, call := new(pendingJointUndo), &t.calls[number]
	for i := range call.change.Parts {
		at, turn := call.placeOf(i, number)
		p, try := &t.parts[at], &a.parts[at]
		d := &try.decisions[turn]
		if d.Outcome != gatehouse.Granted {
			continue // it was optional
		}
		made := &attempt{nonce: try.nonce, base: try.base}
		one.parts = append(one.parts, undoOf(&call.change.Parts[i], &p.turns[turn], d))
		// Tokens have no identity: they are given back only if it is certain that they were taken.
		one.undos = append(one.undos, undo{
			id: rand.Uint64(), onlyIf: made, shared: p.Key.Kind.Limiter(),
		})
	}
	return one
}

// undoOf is what takes back what a part was granted in a turn, as that came.
func undoOf(p *control.Part, turn *control.Turn, d *gatehouse.Decision) control.Part {
	part := control.Part{Key: p.Key, Turn: *turn, Optional: p.Optional, NonBlocking: p.NonBlocking}
	part.Turn.Granted = d
	return control.CopyUndo([]control.Part{part})[0]
}

// addFailedJoint notes that a grant which was to be taken back is still there, as far as is known.
func (q *undoQueue) addFailedJoint(t *jointTransaction) {
	one := new(pendingJointUndo)
	one.parts = control.CopyUndo(t.calls[0].change.Parts)
	for i := range t.parts {
		one.undos = append(one.undos, t.parts[i].undo)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.appendUndo(pendingUndo{joint: one})
	q.startTimer()
}

// canUndoJoint reports whether a grant can be taken back: an acquire, or what was added to one.
func canUndoJoint(turn *control.Turn) bool {
	return turn.Grant != nil &&
		(turn.Grant.Command.Op == gatehouse.OpAcquire || turn.Grant.Command.Op == gatehouse.OpTopUp)
}

// sendJointUndo takes a grant back for a call that failed.
func (s *Store) sendJointUndo(one *pendingJointUndo) error {
	done := make(chan error, 1)
	c := &control.JointChange{Parts: slices.Clone(one.parts), Done: func(err error) { done <- err }}
	t := s.beginJoint(c)
	t.pending = true
	for i := range t.parts {
		t.parts[i].undo = one.undos[i]
	}
	t.enterQueues()
	err := <-done
	if err == nil {
		s.counters.undone.Add(1)
		return nil
	}
	// What is known of whether they were done goes on to the next try.
	for i := range t.parts {
		one.undos[i] = t.parts[i].undo
	}
	return err
}
