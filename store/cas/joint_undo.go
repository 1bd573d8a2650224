package cas

import (
	"math/rand/v2"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is joint changes whose answers were lost: whether they were made is learnt from the nonces of their
// records, and what they may have granted to a call that failed is taken back, all parts together.

// A jointAttempt is a joint change that was sent, and not answered.
type jointAttempt struct {
	granted bool
	parts   []attempt // of the records
	changed []bool    // that it was to change
}

// newAttempt is the change under way.
func (t *jointTransaction) newAttempt() jointAttempt {
	a := jointAttempt{granted: t.granted}
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
			t.granted = a.granted
			for j := range t.parts {
				p := &t.parts[j]
				p.update.decisions = append(p.update.decisions[:0], a.parts[j].decisions...)
				p.decider.waits = p.decider.waits && !a.granted
				if a.changed[j] {
					p.entry.unstored.count = 0
				}
			}
			t.unresolved = nil
			return true, nil
		}
		learnt = learnt && known
	}
	if !learnt {
		return false, unavailable(t.keys[0], errOverrun)
	}
	return false, nil
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

// addUnresolvedJoint notes what a failed transaction may have been granted, by changes whose answers were lost.
func (q *undoQueue) addUnresolvedJoint(t *jointTransaction) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range t.unresolved {
		a := &t.unresolved[i]
		if !a.granted || !canUndoJoint(&t.parts[0].turn[0]) {
			continue
		}
		one := new(pendingJointUndo)
		for j := range t.parts {
			p, try := &t.parts[j], &a.parts[j]
			d := &try.decisions[0]
			if d.Outcome != gatehouse.Granted {
				continue // it was optional
			}
			made := &attempt{nonce: try.nonce, base: try.base}
			one.parts = append(one.parts, copyPart(p.Part, control.UndoOf(&p.turn[0], d)))
			// Tokens have no identity: they are given back only if it is certain that they were taken.
			one.undos = append(one.undos, undo{
				id: rand.Uint64(), onlyIf: made, shared: p.Key.Kind.Limiter(),
			})
		}
		q.appendUndo(pendingUndo{joint: one})
	}
	q.startTimer()
}

// addFailedJoint notes that a grant which was to be taken back is still there, as far as is known.
func (q *undoQueue) addFailedJoint(t *jointTransaction) {
	one := new(pendingJointUndo)
	one.parts = CopyUndo(t.change.Parts)
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

// CopyUndo returns the parts of a joint change that takes a grant back, as copies that keep nothing of the
// caller's.
func CopyUndo(parts []control.Part) []control.Part {
	copies := make([]control.Part, len(parts))
	for i := range parts {
		p := &parts[i]
		copies[i] = copyPart(p, control.UndoOf(&p.Turn, p.Turn.Granted))
	}
	return copies
}

// copyPart is a part with another turn that keeps nothing of the caller's.
func copyPart(p *control.Part, turn control.Turn) control.Part {
	one := control.Part{Key: p.Key, Turn: turn, Optional: p.Optional, Passive: p.Passive}
	if turn.Granted != nil {
		granted := *turn.Granted
		one.Turn.Granted = &granted
	}
	if turn.Grant == nil {
		turn.Grant = p.Turn.Grant
	}
	if turn.Grant != nil {
		grant, cmd := *turn.Grant, *turn.Grant.Command
		cmd.Want, cmd.Costs = slices.Clone(cmd.Want), slices.Clone(cmd.Costs)
		grant.Command = &cmd
		one.Turn.Grant = &grant
	}
	return one
}

// sendJointUndo takes a grant back for a call that failed.
func (s *Store) sendJointUndo(one *pendingJointUndo) error {
	done := make(chan error, 1)
	c := &control.JointChange{Parts: slices.Clone(one.parts), Done: func(err error) { done <- err }}
	t := newJointTransaction(s, c)
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
