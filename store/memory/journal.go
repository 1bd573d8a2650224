package memory

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Journal writes down what a store keeps, so that another store can be filled with it later. Its methods
// are called under the lock of a part of the names, and must not call the store.
type Journal interface {
	// OnServed is told that a queue was served, and the state it left, nil when there is none any more;
	// fresh means that it is not the one that was there before. When what it returns is not nil, Apply
	// returns what Wait does, after the lock is released. Otherwise the name is marked.
	OnServed(key gatehouse.Key, state control.State, fresh bool, queue []control.Turn) Pending

	// OnDirty is told that there are marked names where there were none.
	OnDirty()
}

// A Pending is a change that is still to be written down.
type Pending interface {
	// Wait returns when it was, or could not be.
	Wait() error
}

// Parts is into how many parts the names are divided, each of which has a lock.
const Parts = shards

// tell tells the journal of a queue that was served in place of the state that was there before.
func (s *Store) tell(sh *shard, key gatehouse.Key, old control.State, queue []control.Turn) Pending {
	state := sh.tables[key.Kind].states[key.Name]
	pending := s.journal.OnServed(key, state, state != old, queue)
	if pending == nil {
		s.mark(sh, key)
	}
	return pending
}

// mark notes a name whose state is to be written down some time.
func (s *Store) mark(sh *shard, key gatehouse.Key) {
	if s.journal == nil {
		return
	}
	if sh.marked == nil {
		sh.marked = make(map[gatehouse.Key]struct{})
	}
	if len(sh.marked) == 0 {
		s.journal.OnDirty()
	}
	sh.marked[key] = struct{}{}
}

// VisitDirty visits the marked names of one part, under its lock: those that were forgotten, or used without the
// journal asking to be waited for. The state is nil when there is none. A name keeps its mark if visit says
// so, and the journal is not told of it again.
func (s *Store) VisitDirty(part int, visit func(gatehouse.Key, control.State) (keep bool)) {
	sh := &s.shards[part]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key := range sh.marked {
		if !visit(key, sh.tables[key.Kind].states[key.Name]) {
			delete(sh.marked, key)
		}
	}
	if len(sh.marked) == 0 {
		sh.marked = nil
	}
}

// Has reports whether a name is known.
func (s *Store) Has(key gatehouse.Key) bool {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.tables[key.Kind].states[key.Name] != nil
}

// MarkDirty marks a name.
func (s *Store) MarkDirty(key gatehouse.Key) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.mark(sh, key)
}

// Put sets a state without telling the journal, and takes its mark away. nil means that there is none. It
// may be one more than the most names.
func (s *Store) Put(key gatehouse.Key, state control.State) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.marked, key)
	t := &sh.tables[key.Kind]
	old, known := t.states[key.Name]
	if known {
		t.states[key.Name] = state
	} else if state != nil {
		s.add(sh, key, state, s.now())
	}
	s.weigh(key.Kind, loadOf(old), loadOf(state))
}

// add notes the state of a name that is new.
func (s *Store) add(sh *shard, key gatehouse.Key, state control.State, now time.Time) {
	s.put(sh, key, state)
	d := due{at: s.dueAt(key.Kind, state, now), name: key.Name}
	sh.tables[key.Kind].queue.Push(d)
	s.arm(sh, d.at, now)
}

// put sets the state of a name that is new. The caller gives the name an entry by which it is forgotten, and
// adds what the state weighs.
func (s *Store) put(sh *shard, key gatehouse.Key, state control.State) {
	t := &sh.tables[key.Kind]
	if t.states == nil {
		t.states = make(map[string]control.State)
	}
	t.states[key.Name] = state
	s.counts(1, len(key.Name)+nameWeight, key.Kind)
}

// drop forgets a name whose entry was taken away.
func (s *Store) drop(sh *shard, key gatehouse.Key) {
	states := sh.tables[key.Kind].states
	s.weigh(key.Kind, loadOf(states[key.Name]), load{})
	delete(states, key.Name)
	delete(sh.stopped, key)
	s.counts(-1, -len(key.Name)-nameWeight, key.Kind)
	s.mark(sh, key)
}
