package memory

import (
	"errors"
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A store is full in three ways: by names, by what they weigh, and by holders. The last tenth of the names
// and of the memory is for semaphores and locks, so that a client that makes many limiters cannot keep others
// from their locks. What is at rest is forgotten for something new; what still counts or holds is not.

// What a name takes beside its state: its place in a map and in the queue by which it is forgotten, and its
// text.
const nameWeight = 130

// How little memory there may be left before names at rest are forgotten early, and before each command is
// looked at for what it may keep, as parts of the limit.
const (
	lowPart      = 16
	carefulPart  = 4
	carefulQueue = 16 // commands together
)

// isHeld reports whether controllers of a kind are held by somebody.
func isHeld(kind gatehouse.Kind) bool { return kind == gatehouse.Semaphore || kind == gatehouse.Lock }

// namesFor is how many names may be added to a kind.
func (s *Store) namesFor(kind gatehouse.Kind) int64 {
	left := s.names - s.count.Load()
	if !isHeld(kind) {
		left = min(left, s.names-s.names/10-s.common.Load())
	}
	return left
}

// counts notes that there are so many names more of a kind, which take so much memory beside their states.
func (s *Store) counts(names, bytes int, kind gatehouse.Kind) {
	s.count.Add(int64(names))
	if isHeld(kind) {
		s.memory.AddKept(bytes)
		return
	}
	s.common.Add(int64(names))
	s.memory.Add(bytes)
}

// memoryFor is how much memory there is left for a kind.
func (s *Store) memoryFor(kind gatehouse.Kind) int64 {
	if isHeld(kind) {
		return s.memory.LeftKept()
	}
	return s.memory.Left()
}

// room is how much a state of a kind may grow.
func (s *Store) room(kind gatehouse.Kind) control.Room {
	return control.Room{
		Bytes:   int(min(s.memoryFor(kind), math.MaxInt)),
		Holders: int(s.mostHolders - s.holders.Load()),
	}
}

// serve serves a queue, within the room there is when that is little.
func (s *Store) serve(
	now time.Time, key gatehouse.Key, state control.State, queue []control.Turn,
) control.State {
	scarce := s.memoryFor(key.Kind) < s.memory.Limit()/carefulPart || len(queue) > carefulQueue ||
		isHeld(key.Kind) && s.holders.Load() > s.mostHolders/2
	if !scarce || state == nil { // a new one is dropped when there is no room for it
		return control.Serve(now, key.Kind, state, queue)
	}
	state = s.room(key.Kind).Serve(now, key.Kind, state, queue)
	for i := range queue {
		switch err := queue[i].Err; {
		case errors.Is(err, control.ErrMemory):
			queue[i].Err = s.noMemory(key)
		case errors.Is(err, control.ErrHolders):
			queue[i].Err = s.noHolders(key)
		}
	}
	return state
}

// A load is what a state takes of what there is.
type load struct{ bytes, holders int }

func loadOf(state control.State) (l load) {
	if state != nil {
		l.bytes, l.holders = state.Weight(), control.Holders(state)
	}
	return l
}

// weigh notes that a state takes something else than before.
func (s *Store) weigh(kind gatehouse.Kind, before, after load) {
	if !isHeld(kind) {
		s.memory.Add(after.bytes - before.bytes)
		return
	}
	s.memory.AddKept(after.bytes - before.bytes)
	if before.holders != after.holders {
		s.holders.Add(int64(after.holders - before.holders))
	}
}

// A lack is what there is too little of for a new state, and the memory that this would need.
type lack struct {
	err   error
	bytes int
}

// fits reports whether there is room for a new name that is worth nothing.
func (s *Store) fits(key gatehouse.Key, state control.State) bool {
	return s.namesFor(key.Kind) > 0 &&
		s.memoryFor(key.Kind) >= int64(state.Weight()+len(key.Name)+nameWeight)
}

// lacks says of what there is too little for a new state; nil if there is enough.
func (s *Store) lacks(key gatehouse.Key, state control.State) *lack {
	l, room := loadOf(state), s.room(key.Kind)
	bytes := l.bytes + len(key.Name) + nameWeight
	switch {
	case s.namesFor(key.Kind) <= 0:
		return &lack{s.noNames(key), bytes}
	case bytes > room.Bytes:
		return &lack{s.noMemory(key), bytes}
	case l.holders > 0 && l.holders > room.Holders:
		return &lack{s.noHolders(key), bytes}
	}
	return nil
}

// The errors of a store that is full.

func (s *Store) noNames(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted, "%s: all %d names of this server are in use%s",
		key, s.names, kept(key.Kind, s.names))
}

func (s *Store) noMemory(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted,
		"%s: all %d bytes of memory that this server has for state are in use%s",
		key, s.memory.Limit(), kept(key.Kind, s.memory.Limit()))
}

func (s *Store) noHolders(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeExhausted,
		"%s: this server has %d holders of semaphores and locks, the most there may be", key, s.mostHolders)
}

// kept says that some of so many are kept for others, if that is so.
func kept(kind gatehouse.Kind, limit int64) string {
	if isHeld(kind) || limit < 10 {
		return ""
	}
	return ", or kept for semaphores and locks"
}
