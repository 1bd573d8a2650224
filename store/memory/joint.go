package memory

import (
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A jointWork is what a store keeps of a joint change while it serves it. A store pools them.
type jointWork struct {
	parts  []control.JointPart
	places []jointPlace // one for each part
	shards []uint32     // the indexes of those of the parts, in order
	rooms  [2]control.Room
	states []JointState
}

// A jointPlace is where the state of one part is.
type jointPlace struct {
	shard  *shard
	hash   uint64
	entry  *nameEntry    // nil if the name is not known
	old    control.State // nil if there is none
	before stateSize
}

// ApplyJoint serves a joint change at one instant, with the shards of all its parts locked. Without a journal
// it calls Done before it returns.
func (s *Store) ApplyJoint(c *control.JointChange) {
	for i := range c.Parts {
		kind := c.Parts[i].Key.Kind
		// Before the shards of the parts are locked, as it may take the locks of others.
		s.reclaimScarce(kind, isHeld(kind) && c.Parts[i].Turn.Op == gatehouse.OpAcquire)
	}
	w := s.joints.Get().(*jointWork)
	for tries := 0; ; tries++ {
		pending, shortage := s.tryJoint(c, w)
		if shortage.err == nil {
			w.clearParts()
			s.joints.Put(w)
			if !pending {
				c.Done(nil)
			}
			return
		}
		// As in Apply: nothing took effect, and room may be found.
		if tries == maxTries || !s.reclaimRoom(shortage.kind, shortage.bytes) {
			w.clearParts()
			s.joints.Put(w)
			c.Done(shortage.err)
			return
		}
	}
}

// A roomShortage says which room was missing for a joint change.
type roomShortage struct {
	err   error
	kind  gatehouse.Kind
	bytes int64
}

// tryJoint serves a joint change if there is room for the names that it may make.
func (s *Store) tryJoint(c *control.JointChange, w *jointWork) (pending bool, shortage roomShortage) {
	s.lockParts(c, w)
	defer s.unlockParts(w)
	now := s.now()
	s.readStates(c, w)
	shortage = s.giveRooms(c, w)
	if shortage.err != nil {
		return false, shortage
	}
	c.Granted = control.ServeJoint(now, w.parts)
	for i := range w.parts {
		if s.nameJointRoom(&c.Parts[i]) && !c.Granted {
			key := c.Parts[i].Key
			shortage = roomShortage{err: c.Parts[i].Turn.Err, kind: key.Kind, bytes: reclaimForJoint}
		}
	}
	s.keepParts(w, now)
	if shortage.err != nil {
		return false, shortage // it took nothing, and its trial has left no more than a refusal leaves
	}
	if s.journal != nil {
		pending = s.journalJoint(c, w)
	}
	return pending, roomShortage{}
}

// lockParts locks the shards of all parts. In the order of their index, so that no two joint changes wait for
// each other.
func (s *Store) lockParts(c *control.JointChange, w *jointWork) {
	w.shards = w.shards[:0]
	w.places = slices.Grow(w.places[:0], len(c.Parts))[:len(c.Parts)]
	for i := range c.Parts {
		hash := s.hashOf(c.Parts[i].Key)
		w.places[i] = jointPlace{shard: s.shardAt(hash), hash: hash}
		w.shards = append(w.shards, 0)
		n, at := uint32(hash%shards), i
		// Sorted as they come, since a change has few parts.
		for at > 0 && w.shards[at-1] > n {
			w.shards[at] = w.shards[at-1]
			at--
		}
		w.shards[at] = n
	}
	for i, n := range w.shards {
		// Two names may be in one shard, which is locked once.
		if i == 0 || w.shards[i-1] != n {
			s.shards[n].mu.Lock()
		}
	}
}

func (s *Store) unlockParts(w *jointWork) {
	for i, n := range w.shards {
		if i == 0 || w.shards[i-1] != n {
			s.shards[n].mu.Unlock()
		}
	}
}

// readStates looks up the states of all parts.
func (s *Store) readStates(c *control.JointChange, w *jointWork) {
	w.parts = slices.Grow(w.parts[:0], len(c.Parts))[:len(c.Parts)]
	for i := range c.Parts {
		place := &w.places[i]
		place.entry = place.shard.find(c.Parts[i].Key, place.hash)
		if place.entry != nil {
			place.old = place.entry.state
			// Measured now, as most states change in place.
			place.before = sizeOf(place.old)
		}
		w.parts[i] = control.JointPart{Part: &c.Parts[i], State: place.old}
	}
}

// giveRooms looks whether there is room for new names, and bounds what states may grow by when it is scarce.
func (s *Store) giveRooms(c *control.JointChange, w *jointWork) roomShortage {
	scarce, names, text := false, [2]int64{}, [2]int{}
	for i := range c.Parts {
		kind := c.Parts[i].Key.Kind
		scarce = scarce || s.scarceRoom(kind, 1) != nil
		if w.places[i].entry != nil || !mayMakeName(c.Parts[i].Turn.Op) {
			continue
		}
		class := roomClass(kind)
		names[class]++
		text[class] += len(c.Parts[i].Key.Name) + nameWeight
		// Unlike in Apply, what is new cannot be dropped again afterwards: others went with it.
		if s.namesLeft(kind) < names[class] {
			return roomShortage{err: s.noNames(c.Parts[i].Key), kind: kind, bytes: int64(text[class])}
		}
	}
	if !scarce {
		return roomShortage{}
	}
	for i := range w.parts {
		key := c.Parts[i].Key
		class := roomClass(key.Kind)
		room := s.roomFor(key.Kind)
		room.Bytes -= text[class]
		if names[class] > 0 && room.Bytes <= 0 {
			return roomShortage{err: s.noMemory(key), kind: key.Kind, bytes: int64(text[class])}
		}
		// Parts of one class share this room: control.ServeJoint promises none of it twice.
		w.rooms[class] = room
		w.parts[i].Room = &w.rooms[class]
	}
	return roomShortage{}
}

// mayMakeName reports whether an operation may make a name. A release may too, for a debt at a limiter that
// was deleted; it is never refused for want of a name.
func mayMakeName(op gatehouse.Op) bool { return op == gatehouse.OpAcquire || op == gatehouse.OpSettle }

// roomClass says which room the states of a kind share: semaphores and locks have more.
func roomClass(kind gatehouse.Kind) int {
	if isHeld(kind) {
		return 1
	}
	return 0
}

// reclaimForJoint is how many bytes are made free for a joint change that found too little.
const reclaimForJoint = 16 << 10

// nameJointRoom has a turn that found too little room say so in the words of the store, and reports whether
// it did.
func (s *Store) nameJointRoom(p *control.Part) (lacks bool) {
	switch err := p.Turn.Err; {
	case err == nil:
		return false
	case errors.Is(err, control.ErrMemory):
		p.Turn.Err = s.noMemory(p.Key)
	case errors.Is(err, control.ErrHolders):
		p.Turn.Err = s.noHolders(p.Key)
	}
	return true
}

// keepParts puts what became of the parts' states in their places. Those of known names come first: for a new
// name a known one may be forgotten, and the new one has its entry then.
func (s *Store) keepParts(w *jointWork, now time.Time) {
	for _, known := range [...]bool{true, false} {
		for i := range w.parts {
			if (w.places[i].entry != nil) == known {
				s.keepPart(w, i, now)
			}
		}
	}
}

// keepPart puts what became of a part's state in its place.
func (s *Store) keepPart(w *jointWork, i int, now time.Time) {
	place, p := &w.places[i], &w.parts[i]
	state := p.State
	switch {
	case place.entry != nil:
		if state != place.old {
			place.entry.state = state
		}
	case state == nil:
		return
	default:
		n := newName{p.Key, place.hash, state}
		// As in keepNew: what is worth nothing is kept for its refusals only.
		if !isWorthKeeping(state, now) && place.shard.pins[p.Key] == 0 {
			state = s.keepRefused(place.shard, n, now)
		} else {
			s.addName(place.shard, n, now)
		}
	}
	s.countSize(p.Key.Kind, place.before, sizeOf(state))
}

// journalJoint reports a joint change to the journal.
func (s *Store) journalJoint(c *control.JointChange, w *jointWork) (pending bool) {
	w.states = w.states[:0]
	for i := range w.parts {
		place, p := &w.places[i], &w.parts[i]
		state := s.stateOf(place.shard, p.Key)
		if place.entry != nil || state != nil {
			w.states = append(w.states, JointState{Key: p.Key, State: state, Fresh: state != place.old})
		}
	}
	// The change may be the journal's once OnJoint has it.
	pending = s.journal.OnJoint(c, w.states)
	if pending {
		return true
	}
	for i := range w.states {
		s.addDirty(s.shardOf(w.states[i].Key), w.states[i].Key)
	}
	return false
}

// clearParts forgets what a change referred to.
func (w *jointWork) clearParts() {
	clear(w.parts)
	clear(w.places)
	clear(w.states)
}
