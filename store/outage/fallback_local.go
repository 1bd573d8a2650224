package outage

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A share of a limit is such that the shares of all servers together are never more than the limit: sizes
// are rounded down, and what a server's share has no room for is refused. It is counted from nothing when
// the store goes away, and the store hears nothing of it: around either change of the one for the other,
// up to twice the limit may pass in one window.

// share has the commands decided by the local store, as far as it can.
func (s *Fallback) share(
	ctx context.Context, key gatehouse.Key, queue []control.Turn, answered []bool,
) error {
	var turns []control.Turn
	var places []int
	for i := range queue {
		cmd := *queue[i].Command
		switch {
		case cmd.Op == gatehouse.OpUndo: // of what the store has granted: it comes back with time
			queue[i].Decision = gatehouse.Decision{Outcome: gatehouse.Granted}
			answered[i] = true
			continue
		case cmd.Op == gatehouse.OpCancel || cmd.Op == gatehouse.OpRefund:
		case takesInForce(&cmd) && !s.knows(ctx, key):
			continue
		case !asks(cmd.Op) || !divide(key.Kind, &cmd, int64(s.config.Servers)):
			continue
		}
		turns, places = append(turns, control.Turn{Command: &cmd}), append(places, i)
	}
	if len(turns) == 0 {
		return nil
	}
	if err := s.local.Apply(ctx, key, turns); err != nil {
		return err
	}
	for j, i := range places {
		queue[i].Decision = turns[j].Decision
		mark(&queue[i], sharedMessage)
		answered[i] = turns[j].Decision.Outcome != gatehouse.Missing // nothing is known here of such a limit
	}
	return nil
}

// knows reports whether a limit is in force here.
func (s *Fallback) knows(ctx context.Context, key gatehouse.Key) bool {
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpPeek, Size: gatehouse.InForce}}}
	return s.local.Apply(ctx, key, turns) == nil && turns[0].Decision.Outcome != gatehouse.Missing
}

// divide makes a command one for a server's share of the limit. It reports false when there is no room in
// that for what the command wants.
func divide(kind gatehouse.Kind, cmd *gatehouse.Command, servers int64) (ok bool) {
	if servers == 1 || !cmd.HasLimit() {
		return true
	}
	room := int64(gatehouse.MaxSize)
	part := func(size *int64) {
		if *size > 0 { // 0 stops the limiter, and shall
			*size /= servers
			room = min(room, *size)
		}
	}
	switch {
	case len(cmd.Limits) > 0:
		cmd.Limits = slices.Clone(cmd.Limits)
		for i := range cmd.Limits {
			part(&cmd.Limits[i].Size)
		}
	case kind == gatehouse.GCRA && cmd.Calendar == gatehouse.NoCalendar:
		// What passes at once is divided, and the rate is made exactly so much lower by a longer interval.
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

// takeOwn serves the commands that take back what was granted without the store, and puts the others to
// it: what the store has not given, it must not get back.
func (s *Fallback) takeOwn(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	var rest []control.Turn
	var places []int
	for i := range queue {
		cmd := queue[i].Command
		if !own(queue[i]) {
			rest, places = append(rest, queue[i]), append(places, i)
			continue
		}
		queue[i].Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: cmd.Granted.At}
		if cmd.Granted.Message == sharedMessage {
			if err := s.local.Apply(ctx, key, queue[i:i+1]); err != nil {
				return err
			}
		}
	}
	if len(rest) == 0 {
		return nil
	}
	if err := s.Apply(ctx, key, rest); err != nil {
		return err
	}
	for j, i := range places {
		queue[i].Decision, queue[i].Err = rest[j].Decision, rest[j].Err
	}
	return nil
}
