package disk

import (
	"errors"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// flushBatch is how many of what is marked are written together. Who waits for the disk meanwhile waits for
// one such transaction.
const flushBatch = 1024

// flush writes down what is marked: what limiters counted, what was forgotten, and figures.
func (s *Store) flush(last bool) error {
	began := s.now()
	defer func() { s.counters.flushed(s.now().Sub(began)) }()
	s.flushing.Store(false) // what is marked from now on is for the next time
	limiters := make(map[gatehouse.Key]*change)
	others := 0
	for part := range memory.Parts {
		s.memory.VisitDirty(part, func(key gatehouse.Key, state control.State) (keep bool) {
			if state != nil && control.OnlyRefused(state) && !state.Expiry().After(s.now()) {
				state = nil // it is not worth a write, and would not be loaded
			}
			if !key.Kind.Limiter() {
				s.mu.Lock()
				s.next.add(key, state, false)
				s.mu.Unlock()
				others++
				return false
			}
			if !last && s.fades(state) {
				journal{s}.OnDirty()
				return true
			}
			c := new(change)
			c.note(key, state, false)
			limiters[key] = c
			return false
		})
		if len(limiters)+others < flushBatch && part < memory.Parts-1 {
			continue
		}
		if err := s.flushLimiters(limiters); err != nil {
			return err
		}
		clear(limiters)
		others = 0
		if err := s.writeNext(); err != nil {
			return err
		}
	}
	return nil
}

// fades reports whether a limiter will have nothing to remember before it is written again: then it is not
// worth it.
func (s *Store) fades(state control.State) bool {
	if state == nil {
		return false
	}
	left := state.Expiry().Sub(s.now())
	return left > 0 && left < s.config.Flush
}

// flushLimiters writes what limiters counted. While the disk is full only what frees room is written.
func (s *Store) flushLimiters(changes map[gatehouse.Key]*change) error {
	if t := s.trouble.Load(); t != nil {
		for key, c := range changes {
			if c.state != nil {
				s.memory.MarkDirty(key)
				delete(changes, key)
			}
		}
	}
	err := s.writeChanges(changes)
	if !errors.Is(err, errFull) {
		return err
	}
	for key := range changes {
		s.memory.MarkDirty(key)
	}
	return nil
}
