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

// notifyJournal reports a served change to the journal, and the state that it has left.
func (s *Store) notifyJournal(sh *shard, c *control.Change, state control.State, fresh bool) (pending bool) {
	key := c.Key // the change is the journal's once OnServed has it
	pending = s.journal.OnServed(c, state, fresh)
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
		if !visit(key, s.stateOf(sh, key)) {
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
	return s.stateOf(sh, key) != nil
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
	hash := s.hashOf(key)
	sh := s.shardAt(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The state comes from the file, so that it need not be written there.
	delete(sh.dirty, key)
	e, before := sh.find(key, hash), stateSize{}
	switch {
	// A nil state of a known name stays in the table: its check drops it later.
	case e != nil:
		before = sizeOf(e.state)
		e.state = state
	case state != nil:
		s.addName(sh, newName{key, hash, state}, s.now())
	}
	s.countSize(key.Kind, before, sizeOf(state))
}

// addName adds a new name, and schedules its first check.
func (s *Store) addName(sh *shard, n newName, now time.Time) {
	number := s.putName(sh, n)
	at := s.nextCheckAt(n.Kind, n.state, now)
	sh.tables[n.Kind].checks.Push(newCheck(at, number))
	s.armTimer(sh, at, now)
}

// putName adds a new name. The caller adds the check by which the name is forgotten, and counts the size of
// the state.
func (s *Store) putName(sh *shard, n newName) (number uint32) {
	t := sh.tables[n.Kind]
	if t == nil {
		t = new(nameTable)
		sh.tables[n.Kind] = t
	}
	number = t.add(n.hash, n.Name, s.hashIn(n.Kind))
	t.entry(number).state = n.state
	s.countNames(1, len(n.Name)+nameWeight, n.Kind)
	return number
}

// hashIn returns hashOf for the names of one kind.
func (s *Store) hashIn(kind gatehouse.Kind) func(name string) uint64 {
	return func(name string) uint64 { return s.hashOf(gatehouse.Key{Kind: kind, Name: name}) }
}

// dropName forgets a name whose check was removed.
func (s *Store) dropName(sh *shard, key gatehouse.Key, number uint32) {
	t := sh.tables[key.Kind]
	s.countSize(key.Kind, sizeOf(t.entry(number).state), stateSize{})
	t.drop(s.hashOf(key), number, s.hashIn(key.Kind))
	delete(sh.stoppedRefusals, key)
	s.countNames(-1, -len(key.Name)-nameWeight, key.Kind)
	s.addDirty(sh, key)
}
