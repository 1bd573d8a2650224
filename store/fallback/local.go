package fallback

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A share of a limit is such that the shares of all servers together are never more than the limit: sizes
// are rounded down, and a command that its server's share has no room for is left to the store's error.
// Counting starts from zero when the store becomes unreachable, and is not sent to the store later: around
// each of the two changes up to twice the limit may pass in one window.

// decideLocally decides commands by the local store, each by this server's share of its limit. answered says
// afterwards which commands were decided.
func (s *Store) decideLocally(key gatehouse.Key, queue []control.Turn, answered []bool) error {
	var turns []control.Turn
	var places []int
	for i := range queue {
		// The command is copied, because the caller's must keep the whole limit for the store.
		cmd := *queue[i].Command
		switch {
		case cmd.Op == gatehouse.OpUndo:
			// It undoes what the store has granted, which comes back with time.
			queue[i].Decision = gatehouse.Decision{Outcome: gatehouse.Granted}
			answered[i] = true
			continue
		case cmd.Op == gatehouse.OpCancel || cmd.Op == gatehouse.OpRefund:
			// It may be about something that was granted here, and has no limit to divide.
		case takesInForce(&cmd) && !s.knowsLimit(key):
			continue
		case !canAnswer(cmd.Op) || !divideLimit(key.Kind, &cmd, int64(s.config.Servers)):
			continue
		}
		turn := queue[i]
		turn.Command = &cmd
		turns, places = append(turns, turn), append(places, i)
	}
	if len(turns) == 0 {
		return nil
	}
	// One change, as it would have been in the store.
	if err := s.applyLocally(key, turns); err != nil {
		return err
	}
	// A limit that was never used here is Missing, and leaves the turn to the store's error.
	for j, i := range places {
		queue[i].Decision = turns[j].Decision
		markGrant(&queue[i], sharedMessage)
		answered[i] = turns[j].Decision.Outcome != gatehouse.Missing
	}
	return nil
}

// applyLocally applies a queue to the local store, which has no journal and so answers at once.
func (s *Store) applyLocally(key gatehouse.Key, queue []control.Turn) error {
	return (&control.Change{Key: key, Turns: queue}).ApplyTo(s.local)
}

// knowsLimit reports whether a limit is in force in the local store.
func (s *Store) knowsLimit(key gatehouse.Key) bool {
	turns := []control.Turn{{Command: &gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce},
	}}}
	return s.applyLocally(key, turns) == nil && turns[0].Decision.Outcome != gatehouse.Missing
}

// divideLimit replaces the limit of a command by one server's share of it. It reports false if the share is
// too small for what the command wants.
func divideLimit(kind gatehouse.Kind, cmd *gatehouse.Command, servers int64) (ok bool) {
	if servers == 1 || !cmd.HasLimit() {
		return true
	}
	room := int64(gatehouse.MaxSize)
	part := func(size *int64) {
		if *size > 0 { // a size of 0 stops the limiter, and must stay 0
			*size /= servers
			room = min(room, *size)
		}
	}
	switch {
	case cmd.Limits.Len() > 0:
		parts := make([]gatehouse.Limit, cmd.Limits.Len())
		for i := range parts {
			parts[i] = cmd.Limits.At(i)
			part(&parts[i].Size)
		}
		cmd.Limits = gatehouse.NewLimitList(parts...)
	case kind == gatehouse.GCRA && cmd.Calendar == gatehouse.NoCalendar:
		// The burst is divided, and a longer interval divides the rate exactly.
		if cmd.Interval > gatehouse.MaxDuration/time.Duration(servers) {
			return false
		}
		burst := cmd.Burst + 1
		part(&burst)
		cmd.Burst, cmd.Interval = burst-1, cmd.Interval*time.Duration(servers)
	default:
		part(&cmd.Size)
	}
	return room > 0 && cmd.Cost <= room
}

// applyOwnUndos serves a queue with undos of what was granted without the store. Those are served here, the
// others are applied to the store: an undo of what it has not granted would give back too much.
func (s *Store) applyOwnUndos(c *control.Change) {
	var rest []control.Turn
	var places []int
	for i := range c.Turns {
		turn := &c.Turns[i]
		if !isOwnUndo(*turn) {
			rest, places = append(rest, *turn), append(places, i)
			continue
		}
		// What Allow has granted was counted nowhere, so that there is nothing to undo.
		turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: turn.Granted.At}
		if turn.Granted.Message == sharedMessage {
			if err := s.applyLocally(c.Key, c.Turns[i:i+1]); err != nil {
				c.Done(err)
				return
			}
		}
	}
	if len(rest) == 0 {
		c.Done(nil)
		return
	}
	s.Apply(&control.Change{Key: c.Key, Turns: rest, Done: func(err error) {
		for j, i := range places {
			c.Turns[i].Decision, c.Turns[i].Err = rest[j].Decision, rest[j].Err
		}
		c.Done(err)
	}})
}
