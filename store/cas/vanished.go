package cas

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is how a store that forgets is seen. A record that is not there may have gone as it should: its
// time was over, or that of another one that took its place. But none stays for less than retention.atLeast,
// a deleted one's included. So one that was seen more recently than that, and was to stay, was lost.

// hasVanished reports whether an answer without a record shows that the known one was lost. It leaves as much
// room as clocks may differ.
func (k *knownRecord) hasVanished(reply *Reply, r *retention) bool {
	if reply.Record != nil || k.version == 0 || k.seen == 0 {
		return false
	}
	now := reply.Now.UnixNano() + int64(maxBackwards)
	if now-k.seen >= int64(r.atLeast()) {
		return false
	}
	var state control.State
	if k.record.encodedState != nil {
		var err error
		state, err = control.Decode(k.kind, k.record.encodedState)
		if err != nil {
			return false
		}
	}
	// What this server would have asked for when it was written: a record that was to go by now has not
	// vanished.
	keep := r.keepFor(k.record.asOf, state, k.record.heads)
	return keep == gatehouse.Forever || now < k.record.asOf+int64(keep)
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
