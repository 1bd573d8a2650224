package disk

import (
	"errors"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// flushBatch is how many dirty names are written together. A command that waits for the disk meanwhile waits
// for one such transaction.
const flushBatch = 1024

// flushDirty writes the dirty names: limiters, names that were forgotten, and statistics. last is set by the
// flush before the store closes.
func (s *Store) flushDirty(last bool) error {
	began := s.now()
	defer func() { s.counters.setFlushTime(s.now().Sub(began)) }()
	// Names that become dirty from here on arm the timer again, also those of parts not yet visited.
	s.flushArmed.Store(false)
	limiters := make(map[gatehouse.Key]*nameChange)
	others := 0
	for part := range memory.Parts {
		s.memory.VisitDirty(part, func(key gatehouse.Key, state control.State) (keep bool) {
			if state != nil && control.OnlyRefused(state) && !state.Expiry().After(s.now()) {
				state = nil // it is not worth a write, and would not be loaded
			}
			// Other kinds join the next batch, which may have an older change of the same name: written apart
			// from it, the two could reach the file in the wrong order.
			if !key.Kind.Limiter() {
				s.mu.Lock()
				s.next.addState(key, state, false)
				s.mu.Unlock()
				others++
				return false
			}
			// A limiter that will be worth nothing stays dirty, and the timer looks at it again. At the end
			// of the store there is no later time.
			if !last && s.expiresSoon(state) {
				memoryJournal{s}.OnDirty()
				return true
			}
			c := new(nameChange)
			c.recordState(key, state, false)
			limiters[key] = c
			return false
		})
		// Parts are joined up to a batch, because every transaction waits for the disk. The last part writes
		// what is left.
		if len(limiters)+others < flushBatch && part < memory.Parts-1 {
			continue
		}
		if err := s.flushLimiters(limiters); err != nil {
			return err
		}
		clear(limiters)
		others = 0
		// Between two parts, so that a waiting command is not delayed until all parts are written.
		if err := s.writeNext(); err != nil {
			return err
		}
	}
	return nil
}

// expiresSoon reports whether a limiter will be worth nothing before it would be written again. Then it is
// not written now either.
func (s *Store) expiresSoon(state control.State) bool {
	if state == nil {
		return false
	}
	left := state.Expiry().Sub(s.now())
	return left > 0 && left < s.config.Flush
}

// flushLimiters writes what limiters counted. While the disk is full only what frees room is written.
func (s *Store) flushLimiters(changes map[gatehouse.Key]*nameChange) error {
	// A nil state removes a record and so frees room. The others remain dirty for a later flush.
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
	// Limiters are not rolled back on a full disk: their callers never waited for the file.
	for key := range changes {
		s.memory.MarkDirty(key)
	}
	return nil
}
