package cas

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is how a store that forgets is seen. A record that is not there may have gone as it should: its
// time was over, or that of another one that took its place. But none stays for less than keepAtLeast, a
// deleted one's included. So one that was seen more recently than that, and was to stay, was lost.

// keepAtLeast is how long each record stays in the store after it was written.
func (s *Store) keepAtLeast() time.Duration { return min(tombstoneLife, s.config.Linger) }

// hasVanished reports whether an answer without a record shows that the known one was lost. It leaves as much
// room as clocks may differ.
func (s *Store) hasVanished(e *entry, reply *Reply) bool {
	if reply.Record != nil || e.version == 0 || e.seen == 0 {
		return false
	}
	now := reply.Now.UnixNano() + int64(maxBackwards)
	if now-e.seen >= int64(s.keepAtLeast()) {
		return false
	}
	var state control.State
	if e.record.encodedState != nil {
		var err error
		state, err = control.Decode(e.key.Kind, e.record.encodedState)
		if err != nil {
			return false
		}
	}
	// What this server would have asked for when it was written: a record that was to go by now has not
	// vanished.
	keep := s.keepFor(e.record.asOf, state, e.record.heads)
	return keep == gatehouse.Forever || now < e.record.asOf+int64(keep)
}

// noteVanished counts a record that was lost.
func (s *Store) noteVanished(key gatehouse.Key) {
	s.counters.vanished.Add(1)
	if s.config.Vanished != nil {
		s.config.Vanished(key)
	}
}

// noteClockStep counts a step of the store's clock.
func (s *Store) noteClockStep(by time.Duration) {
	s.counters.clockSteps.Add(1)
	if s.config.ClockSet != nil {
		s.config.ClockSet(by)
	}
}
