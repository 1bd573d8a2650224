package fallback

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An Answer says how a limiter's commands are answered while the store cannot be reached.
type Answer uint8

const (
	// Refuse fails them with CodeUnavailable.
	Refuse Answer = iota
	// Allow answers as an unused limiter would, which grants whatever can be granted at all.
	Allow
	// LocalShare makes this server count by itself, with its share of the limit.
	LocalShare

	numAnswers
)

var answerNames = [numAnswers]string{"refuse", "allow", "local-share"}

// String returns the answer as configuration files spell it.
func (a Answer) String() string {
	if a >= numAnswers {
		return "none"
	}
	return answerNames[a]
}

// ParseAnswer returns the answer with this name; ok is false if there is none.
func ParseAnswer(name string) (a Answer, ok bool) {
	i := slices.Index(answerNames[:], name)
	return Answer(max(i, 0)), i >= 0 // an index of three names
}

// The messages of grants that were made without the store. They also tell which undos are not for the store.
const (
	allowedMessage = "allowed without the store, which does not answer"
	sharedMessage  = "counted by this server alone, because the store does not answer"
)

// countCommands reports how many commands of a queue are answered so. Undos are not commands of a client.
func (s *Store) countCommands(rule Answer, queue []control.Turn) {
	if s.config.Count == nil {
		return
	}
	commands := 0
	for i := range queue {
		if queue[i].Op != gatehouse.OpUndo {
			commands++
		}
	}
	s.config.Count(rule, commands)
}

// applyRule answers a queue that the store has not answered, by the rule of its key, or returns the store's
// error.
func (s *Store) applyRule(key gatehouse.Key, queue []control.Turn, err error) error {
	rule := Refuse
	// A hold that two servers grant is worse than an error, so other kinds always refuse.
	if key.Kind.Limiter() && s.config.Rule != nil {
		rule = s.config.Rule(key)
	}
	s.countCommands(rule, queue)
	if rule == Refuse {
		return err
	}
	answered := make([]bool, len(queue))
	if rule == Allow {
		allowQueue(key, queue, answered)
	} else if err := s.decideLocally(key, queue, answered); err != nil {
		return err
	}
	// Either the call fails as a whole or each turn has its own result, so that a queue of several callers
	// does not fail because of one of them.
	if !slices.Contains(answered, true) {
		return err
	}
	for i := range queue {
		if !answered[i] {
			queue[i].Decision, queue[i].Err = gatehouse.Decision{}, err
		}
		s.setStoreTime(&queue[i])
	}
	return nil
}

// setStoreTime gives a refusal the time of the store. A command that waits is answered Deleted once the store
// is back if its name was deleted since the refusal; by this machine's time, which may be behind the store's,
// that would be so for an earlier delete too. A grant keeps the local time, by which it can be undone here.
func (s *Store) setStoreTime(turn *control.Turn) {
	if s.config.Latest == nil || turn.Decision.Outcome != gatehouse.Refused {
		return
	}
	if latest := s.config.Latest(); !latest.IsZero() {
		turn.Decision.At = latest
	}
}

// canAnswer reports whether an operation can be answered without knowing what other servers have granted. A
// charge cannot: it must be counted by the store, and the client can go on and charge later.
func canAnswer(op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve:
		return true
	}
	return false
}

// allowQueue answers each command as if it were the first of its name. A size of 0 still refuses everything.
func allowQueue(key gatehouse.Key, queue []control.Turn, answered []bool) {
	now := time.Now()
	for i := range queue {
		turn := &queue[i]
		switch op := turn.Op; {
		case canAnswer(op):
			if takesInForce(turn.Command) {
				turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
			} else {
				// A new limiter knows of no first look, and of nobody ahead.
				fresh := *turn
				fresh.Ahead, fresh.Again = 0, false
				control.New(key.Kind).Step(now, &fresh)
				turn.Decision = fresh.Decision
			}
			answered[i] = turn.Decision.Outcome != gatehouse.Missing
			markGrant(turn, allowedMessage)
		case op == gatehouse.OpUndo:
			// No client waits for the answer, and what was taken comes back with time.
			turn.Decision = gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
			answered[i] = true
		}
	}
}

// takesInForce reports whether a command takes something under the limit in force, which the store knows.
func takesInForce(cmd *gatehouse.Command) bool {
	return !cmd.HasLimit() && (cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpReserve)
}

// markGrant marks a grant that the store knows nothing of.
func markGrant(turn *control.Turn, message string) {
	if canAnswer(turn.Op) && turn.Decision.Outcome == gatehouse.Granted {
		turn.Decision.Message = message
	}
}

// isOwnUndo reports whether a command undoes what was granted without the store.
func isOwnUndo(turn control.Turn) bool {
	return turn.Op == gatehouse.OpUndo && turn.Granted != nil &&
		(turn.Granted.Message == sharedMessage || turn.Granted.Message == allowedMessage)
}
