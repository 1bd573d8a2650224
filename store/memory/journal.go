package memory

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Journal writes down what a store keeps, so that another store can be filled with it later. Its methods
// are called under the lock of one part of the names, and must not call the store.
type Journal interface {
	// OnServed is called after a change was served, with the state that it left, nil if there is none any
	// more. fresh means that state replaces the one before instead of continuing it. If OnServed returns
	// true, the journal calls the Done of the change once that is written, without a lock. If it returns
	// false, the name becomes dirty.
	OnServed(c *control.Change, state control.State, fresh bool) (pending bool)

	// OnJoint is OnServed for a joint change, which is written as a whole. If it returns false, all names
	// become dirty. states must not be kept.
	OnJoint(c *control.JointChange, states []JointState) (pending bool)

	// OnDirty is called when a part without dirty names gets one.
	OnDirty()
}

// A JointState is what a joint change has left of one name.
type JointState struct {
	Key   gatehouse.Key
	State control.State // nil if there is none any more
	Fresh bool          // it replaces the one before instead of continuing it
}

// Parts is the number of parts into which the names are divided, each with a lock.
const Parts = shards

// notifyJournal reports a served change to the journal. old is the state before.
func (s *Store) notifyJournal(sh *shard, old control.State, c *control.Change) (pending bool) {
	key := c.Key // the change is the journal's once OnServed has it
	state := sh.tables[key.Kind].states[key.Name]
	pending = s.journal.OnServed(c, state, state != old)
	// A change that no caller waits for is written with the next flush.
	if !pending {
		s.addDirty(sh, key)
	}
	return pending
}

// addDirty notes a name whose state is to be written down later. It is called with the lock held.
func (s *Store) addDirty(sh *shard, key gatehouse.Key) {
	if s.journal == nil {
		return
	}
	if sh.dirty == nil {
		sh.dirty = make(map[gatehouse.Key]struct{})
	}
	// Only the first dirty name is reported: the journal then visits all of them together.
	if len(sh.dirty) == 0 {
		s.journal.OnDirty()
	}
	sh.dirty[key] = struct{}{}
}

// VisitDirty visits the dirty names of one part, under its lock: names that were forgotten, and names that
// were used without a Pending. The state is nil if there is none. A name stays dirty if visit returns true,
// and OnDirty is not called for it again.
func (s *Store) VisitDirty(part int, visit func(gatehouse.Key, control.State) (keep bool)) {
	sh := &s.shards[part]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key := range sh.dirty {
		if !visit(key, sh.tables[key.Kind].states[key.Name]) {
			delete(sh.dirty, key)
		}
	}
	// A map keeps its size after deletes, and there may have been many dirty names.
	if len(sh.dirty) == 0 {
		sh.dirty = nil
	}
}

// Has reports whether a name is known.
func (s *Store) Has(key gatehouse.Key) bool {
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.tables[key.Kind].states[key.Name] != nil
}

// MarkDirty makes a name dirty.
func (s *Store) MarkDirty(key gatehouse.Key) {
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.addDirty(sh, key)
}

// Put sets the state of a name without a call of the journal, and the name is no longer dirty. A nil state
// means that there is none. Put ignores the bounds of the store.
func (s *Store) Put(key gatehouse.Key, state control.State) {
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The state comes from the file, so that it need not be written there.
	delete(sh.dirty, key)
	t := &sh.tables[key.Kind]
	old, known := t.states[key.Name]
	// A nil state of a known name stays in the map: its entry in the checks drops it later.
	if known {
		t.states[key.Name] = state
	} else if state != nil {
		s.addName(sh, key, state, s.now())
	}
	s.countSize(key.Kind, sizeOf(old), sizeOf(state))
}

// addName sets the state of a new name, and schedules its first check.
func (s *Store) addName(sh *shard, key gatehouse.Key, state control.State, now time.Time) {
	s.putState(sh, key, state)
	d := nameCheck{at: s.nextCheckAt(key.Kind, state, now), name: key.Name}
	sh.tables[key.Kind].checks.Push(d)
	s.armTimer(sh, d.at, now)
}

// putState sets the state of a new name. The caller adds the entry by which the name is forgotten, and counts
// the size of the state.
func (s *Store) putState(sh *shard, key gatehouse.Key, state control.State) {
	t := &sh.tables[key.Kind]
	if t.states == nil {
		t.states = make(map[string]control.State)
	}
	t.states[key.Name] = state
	s.countNames(1, len(key.Name)+nameWeight, key.Kind)
}

// dropName forgets a name whose entry was removed.
func (s *Store) dropName(sh *shard, key gatehouse.Key) {
	states := sh.tables[key.Kind].states
	s.countSize(key.Kind, sizeOf(states[key.Name]), stateSize{})
	delete(states, key.Name)
	delete(sh.stoppedRefusals, key)
	s.countNames(-1, -len(key.Name)-nameWeight, key.Kind)
	s.addDirty(sh, key)
}
