package memory

import (
	"errors"
	"math"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A store is full in three ways: by names, by their bytes, and by holders. The last tenth of the names and of
// the memory is for semaphores and locks, so that a client that makes many limiters cannot keep others from
// their locks. Names at rest are forgotten for new ones; names that still count or hold are not.

// nameWeight is the number of bytes of a name beside its state and its text: its entry, its check, and its
// place in an index that has just grown.
const nameWeight = 64

// The divisors of the memory limit below which names at rest are forgotten early, and below which each
// command is checked for what it may keep.
const (
	lowDivisor     = 16
	carefulDivisor = 4
	carefulQueue   = 16 // commands together
)

// isHeld reports whether controllers of a kind have holders.
func isHeld(kind gatehouse.Kind) bool { return kind == gatehouse.Semaphore || kind == gatehouse.Lock }

// acquiresHold reports whether one of the turns may make a hold.
func acquiresHold(turns []control.Turn) bool {
	for i := range turns {
		if turns[i].Op == gatehouse.OpAcquire {
			return true
		}
	}
	return false
}

// namesLeft returns how many names may be added to a kind.
func (s *Store) namesLeft(kind gatehouse.Kind) int64 {
	left := s.maxNames - s.nameCount.Load()
	// Other kinds may use nine tenths, however few semaphores and locks there are.
	if !isHeld(kind) {
		left = min(left, s.maxNames-s.maxNames/10-s.unreservedCount.Load())
	}
	return left
}

// countNames adds to the number of names of a kind, and to the bytes that these take beside their states.
func (s *Store) countNames(names, bytes int, kind gatehouse.Kind) {
	s.nameCount.Add(int64(names))
	// AddKept may use the tenth that is kept for semaphores and locks, Add may not.
	if isHeld(kind) {
		s.memory.AddKept(bytes)
		return
	}
	s.unreservedCount.Add(int64(names))
	s.memory.Add(bytes)
}

// memoryLeft returns how many bytes are left for a kind.
func (s *Store) memoryLeft(kind gatehouse.Kind) int64 {
	if isHeld(kind) {
		return s.memory.LeftKept()
	}
	return s.memory.Left()
}

// roomFor returns how much a state of a kind may grow.
func (s *Store) roomFor(kind gatehouse.Kind) control.Room {
	return control.Room{
		Bytes:   int(min(s.memoryLeft(kind), math.MaxInt)),
		Holders: int(s.maxHolders - s.holderCount.Load()),
	}
}

// scarceRoom is roomFor, but nil when so many turns are sure to have the room that they need.
func (s *Store) scarceRoom(kind gatehouse.Kind, turns int) *control.Room {
	if s.hasAmpleRoom(kind, turns) {
		return nil
	}
	room := s.roomFor(kind)
	return &room
}

// hasAmpleRoom reports whether so many turns are sure to have the room that they need. Measuring each turn
// costs time, so it is done only near a bound, or for queues that may add much.
func (s *Store) hasAmpleRoom(kind gatehouse.Kind, turns int) bool {
	return turns <= carefulQueue && s.memoryLeft(kind) >= s.memory.Limit()/carefulDivisor &&
		(!isHeld(kind) || s.holderCount.Load() <= s.maxHolders/2)
}

// nameMissingRoom has the turns that found too little room say so in the words of the store.
func (s *Store) nameMissingRoom(key gatehouse.Key, turns []control.Turn) {
	for i := range turns {
		switch err := turns[i].Err; {
		case errors.Is(err, control.ErrMemory):
			turns[i].Err = s.noMemory(key)
		case errors.Is(err, control.ErrHolders):
			turns[i].Err = s.noHolders(key)
		}
	}
}

// A stateSize is how much a state takes of the bounded resources.
type stateSize struct{ bytes, holders int }

func sizeOf(state control.State) (l stateSize) {
	if state != nil {
		l.bytes, l.holders = state.Weight(), control.Holders(state)
	}
	return l
}

// countSize replaces the size of a state in the totals.
func (s *Store) countSize(kind gatehouse.Kind, before, after stateSize) {
	more := after.bytes - before.bytes
	switch {
	case more == 0:
	// Counted apart, as the last tenth of the memory is for what is held.
	case isHeld(kind):
		s.memory.AddKept(more)
	default:
		s.memory.Add(more)
	}
	if before.holders != after.holders {
		s.holderCount.Add(int64(after.holders - before.holders))
	}
}

// hasRoom reports whether there is room for a new name that is worth nothing.
func (s *Store) hasRoom(key gatehouse.Key, state control.State) bool {
	return s.namesLeft(key.Kind) > 0 &&
		s.memoryLeft(key.Kind) >= int64(state.Weight()+len(key.Name)+nameWeight)
}

// findMissingRoom returns how many bytes a new state needs, and why there is no room for it; nil if there is.
func (s *Store) findMissingRoom(key gatehouse.Key, state control.State) (bytes int, lack error) {
	l, room := sizeOf(state), s.roomFor(key.Kind)
	bytes = l.bytes + len(key.Name) + nameWeight
	switch {
	case s.namesLeft(key.Kind) <= 0:
		lack = s.noNames(key)
	case bytes > room.Bytes:
		lack = s.noMemory(key)
	case l.holders > 0 && l.holders > room.Holders:
		lack = s.noHolders(key)
	}
	return bytes, lack
}

// The errors of a store that is full.

func (s *Store) noNames(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted, "%s: all %d names of this server are in use%s",
		key, s.maxNames, keptForLocks(key.Kind, s.maxNames))
}

func (s *Store) noMemory(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted,
		"%s: all %d bytes of memory that this server has for state are in use%s",
		key, s.memory.Limit(), keptForLocks(key.Kind, s.memory.Limit()))
}

func (s *Store) noHolders(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted,
		"%s: this server has %d holders of semaphores and locks, the most there may be", key, s.maxHolders)
}

// keptForLocks returns the part of an error text which says that some room is kept for semaphores and locks,
// if that is so.
func keptForLocks(kind gatehouse.Kind, limit int64) string {
	if isHeld(kind) || limit < 10 {
		return ""
	}
	return ", or kept for semaphores and locks"
}
