package outage

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A FallbackRule says what becomes of a limiter's commands while the store cannot be reached.
type FallbackRule uint8

const (
	// Refuse fails them with CodeUnavailable.
	Refuse FallbackRule = iota
	// Allow answers as a limiter would that nobody has used, which grants whatever can be granted at all.
	Allow
	// LocalShare has this server count by itself, with its share of the limit.
	LocalShare

	answers
)

var answerNames = [answers]string{"refuse", "allow", "local-share"}

// String returns the answer as configuration files spell it.
func (a FallbackRule) String() string {
	if a >= answers {
		return "none"
	}
	return answerNames[a]
}

// ParseFallbackRule returns the answer with this name; ok is false when there is none.
func ParseFallbackRule(name string) (a FallbackRule, ok bool) {
	i := slices.Index(answerNames[:], name)
	return FallbackRule(max(i, 0)), i >= 0 // #nosec G115 -- an index of three names
}

// What grants say that were made without the store, in Decision.Message. An undo is known by it.
const (
	allowedMessage = "allowed without the store, which does not answer"
	sharedMessage  = "counted by this server alone, because the store does not answer"
)

// answer answers a queue that the store has not, or returns why not.
func (s *Fallback) answer(ctx context.Context, key gatehouse.Key, queue []control.Turn, err error) error {
	rule := Refuse
	if key.Kind.Limiter() && s.config.Rule != nil {
		rule = s.config.Rule(key)
	}
	s.count(rule, queue)
	if rule == Refuse {
		return err
	}
	answered := make([]bool, len(queue))
	if rule == Allow {
		allow(key, queue, answered)
	} else if err := s.share(ctx, key, queue, answered); err != nil {
		return err
	}
	if !slices.Contains(answered, true) {
		return err
	}
	for i := range queue {
		if !answered[i] {
			queue[i].Decision, queue[i].Err = gatehouse.Decision{}, err
		}
		s.date(&queue[i])
	}
	return nil
}

// date gives a refusal the time of the store. Who waits is told of deletes since then once the store is back,
// and would be told of an earlier one if the store's clock is ahead of this machine's. A grant keeps the time
// by which it can be taken back here.
func (s *Fallback) date(turn *control.Turn) {
	if s.config.Latest == nil || turn.Decision.Outcome != gatehouse.Refused {
		return
	}
	if latest := s.config.Latest(); !latest.IsZero() {
		turn.Decision.At = latest
	}
}

// asks reports whether an operation can be answered without knowing what others have taken. A charge cannot:
// it is to be booked, and nobody is kept from going on by booking it later.
func asks(op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve:
		return true
	}
	return false
}

// allow answers each command as if it were the first at its name: a size of 0, which stops a limiter,
// still does.
func allow(key gatehouse.Key, queue []control.Turn, answered []bool) {
	now := time.Now()
	for i := range queue {
		turn := &queue[i]
		switch op := turn.Command.Op; {
		case asks(op):
			cmd := *turn.Command
			cmd.Ahead, cmd.Again = 0, false
			if takesInForce(&cmd) {
				turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
			} else {
				turn.Decision = control.New(key.Kind).Step(now, &cmd)
			}
			answered[i] = turn.Decision.Outcome != gatehouse.Missing
			mark(turn, allowedMessage)
		case op == gatehouse.OpUndo: // nobody waits for the answer; what was taken comes back with time
			turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
			answered[i] = true
		}
	}
}

// takesInForce reports whether a command takes something under the limit in force, which only the store
// knows.
func takesInForce(cmd *gatehouse.Command) bool {
	return !cmd.HasLimit() && (cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpReserve)
}

// mark notes on a grant that the store knows nothing of it.
func mark(turn *control.Turn, message string) {
	if asks(turn.Command.Op) && turn.Decision.Outcome == gatehouse.Granted {
		turn.Decision.Message = message
	}
}

// own reports whether a command takes back what was granted without the store.
func own(turn control.Turn) bool {
	cmd := turn.Command
	return cmd.Op == gatehouse.OpUndo && cmd.Granted != nil &&
		(cmd.Granted.Message == sharedMessage || cmd.Granted.Message == allowedMessage)
}
