package disk

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// ApplyJoint serves a joint change at one instant, and calls Done when nothing of it can be lost any more.
// All parts of a grant with a record are written by one transaction, limiters too, so that whatever is read
// back is all of it or nothing. An error means that it did not take effect, but what limiters counted is not
// taken back.
func (s *Store) ApplyJoint(c *control.JointChange) {
	t := s.trouble.Load()
	if t != nil && (!t.full || jointNeedsRoom(c)) {
		if t.full {
			s.lookForRoom(t)
		}
		c.Done(t.err)
		return
	}
	s.memory.ApplyJoint(c)
}

// jointNeedsRoom reports whether a joint change may make the file larger by more than what is kept free: a
// new grant with a record does.
func jointNeedsRoom(c *control.JointChange) bool {
	record := recordOf(c)
	return record != nil && record.Turn.Op == gatehouse.OpAcquire
}

// recordOf is the part of the grant's record; nil if it has none.
func recordOf(c *control.JointChange) *control.Part {
	if last := &c.Parts[len(c.Parts)-1]; last.Key.Kind == gatehouse.Grant {
		return last
	}
	return nil
}

// jointNeedsCommit reports whether what a joint change has decided must outlast the process.
func jointNeedsCommit(c *control.JointChange, states []memory.JointState) bool {
	turn := &recordOf(c).Turn
	switch {
	case turn.Op == gatehouse.OpUndo && turn.Granted != nil, turn.Op != gatehouse.OpUndo &&
		turn.Op != gatehouse.OpPeek && c.Granted:
		return true
	}
	// As in OnServed: what is left of a semaphore's former life must go.
	for _, st := range states {
		if st.Fresh && (st.State == nil || st.Key.Kind == gatehouse.Semaphore) {
			return true
		}
	}
	return false
}

// OnJoint implements [memory.Journal]. A grant without a record is of limiters only, which are written later.
func (j memoryJournal) OnJoint(c *control.JointChange, states []memory.JointState) (pending bool) {
	if recordOf(c) == nil {
		return false
	}
	lasting := jointNeedsCommit(c, states)
	s := j.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order of the cases counts, as in OnServed.
	var batch *writeBatch
	switch {
	case s.refused != nil:
		for _, st := range states {
			s.refused.changes[st.Key] = nil
		}
		go c.Done(s.refused.err)
		return true
	case lasting:
		s.next.addJoint(states)
		s.wakeWriter()
		batch = s.next
	case s.next.hasAny(states):
		batch = s.next
	case s.current != nil && s.current.hasAny(states):
		batch = s.current
	default:
		return false
	}
	batch.waiting = append(batch.waiting, c.Done)
	return true
}

// addJoint adds the states of a joint change to the batch. They are written together.
func (b *writeBatch) addJoint(states []memory.JointState) {
	keys := make([]gatehouse.Key, len(states))
	for i, st := range states {
		keys[i] = st.Key
		b.addState(st.Key, st.State, st.Fresh)
		b.changes[st.Key].with = append(b.changes[st.Key].with, keys)
	}
}

// hasAny reports whether a decision about some names rests on a change in the batch. What rests on limiters
// alone need not outlast the process.
func (b *writeBatch) hasAny(states []memory.JointState) bool {
	for _, st := range states {
		if !st.Key.Kind.Limiter() && b.changes[st.Key] != nil {
			return true
		}
	}
	return false
}

// moveTogether moves the change of a name from one set to another, with all that must be written with it.
func moveTogether(to, from map[gatehouse.Key]*nameChange, key gatehouse.Key) {
	for todo := []gatehouse.Key{key}; len(todo) > 0; {
		key, todo = todo[len(todo)-1], todo[:len(todo)-1]
		c := from[key]
		if c == nil {
			continue // it is there already
		}
		delete(from, key)
		to[key] = c
		for _, keys := range c.with {
			todo = append(todo, keys...)
		}
	}
}
