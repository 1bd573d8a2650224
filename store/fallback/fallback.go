// Package fallback stands between a gate and a store that may become unreachable. While it is, commands of
// limiters are answered by rule.
package fallback

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A RemoteStore is a gate.Store that may become unreachable.
type RemoteStore interface {
	Apply(c *control.Change)
	ApplyJoint(c *control.JointChange)
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error
}

// A Config says by which rules commands are answered. The zero value refuses all.
type Config struct {
	// Rule says how commands for a key are answered while the store cannot be reached; it is asked for
	// limiters alone, because what is held must never be granted twice. nil means Refuse for all.
	Rule func(key gatehouse.Key) Answer

	// Latest is the time of the store or somewhat later, as far as is known while it is away; the zero
	// time means that it is not known. nil means that it is this machine's.
	Latest func() time.Time

	// Servers is how many share the store, for LocalShare; 0 means 1.
	Servers int

	// Names is the most names that LocalShare counts for at once; 0 means memory.DefaultNames.
	Names int

	// Count is called when a rule has answered commands, with how many there are: each once, when it gets its
	// response, even if it waited and was looked at many times. Undos and reports are not counted. It must be
	// quick, and safe to be called from several goroutines. A nil Count is not called.
	Count func(rule Answer, commands int)
}

// A Store is a gate.Store that answers by rule while the store behind it is unreachable. Make one with New.
// Its ApplyJoint is that of the store behind, and fails with CodeUnavailable while that is unreachable,
// whatever the rules say: a rule would grant some of the names, and a grant is all or nothing.
type Store struct {
	RemoteStore
	config Config
	local  *memory.Store // counts for LocalShare
}

// New returns a store in front of remote, which the caller still has to close. It needs no closing.
func New(remote RemoteStore, config Config) *Store {
	config.Servers = max(config.Servers, 1)
	local := memory.New(memory.Config{Names: config.Names})
	return &Store{RemoteStore: remote, config: config, local: local}
}

// Apply applies the change to the store, or answers it by rule if that is unreachable.
func (s *Store) Apply(c *control.Change) {
	// The store has not granted these, and must not give them back.
	if c.Key.Kind.Limiter() && slices.ContainsFunc(c.Turns, isOwnUndo) {
		s.applyOwnUndos(c)
		return
	}
	done := c.Done
	c.Done = func(err error) {
		away := err != nil && gatehouse.CodeOf(err) == gatehouse.CodeUnavailable
		// A store that only let other servers go first is not unreachable.
		if away && !errors.Is(err, cas.ErrConflict) {
			err = s.applyRule(c.Key, c.Turns, err)
		}
		done(err)
	}
	s.RemoteStore.Apply(c)
}

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

// countCommands reports how many commands of a queue a rule answered. err is that of all of them.
func (s *Store) countCommands(rule Answer, queue []control.Turn, err error) {
	if s.config.Count == nil {
		return
	}
	commands := 0
	for i := range queue {
		turn := &queue[i]
		// A command that goes on waiting is looked at again, and counts when that has ended.
		waits := err == nil && turn.Err == nil && control.KeepsWaiting(turn.Command, &turn.Decision)
		if isClients(turn.Op) && !waits {
			commands++
		}
	}
	if commands > 0 {
		s.config.Count(rule, commands)
	}
}

// isClients reports whether commands with this operation are those of clients. A server itself undoes grants,
// and looks at names all the time: for the page, for quotas, for a line that is followed.
func isClients(op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpUndo, gatehouse.OpStats, gatehouse.OpHolders, gatehouse.OpWaiters:
		return false
	}
	return true
}

// applyRule answers a queue that the store has not answered, by the rule of its key, or returns the store's
// error.
func (s *Store) applyRule(key gatehouse.Key, queue []control.Turn, err error) error {
	rule := Refuse
	// A hold that two servers grant is worse than an error, so other kinds always refuse.
	if key.Kind.Limiter() && s.config.Rule != nil {
		rule = s.config.Rule(key)
	}
	err = s.answerByRule(rule, key, queue, err)
	// Not before: it is the answer that tells who goes on waiting.
	s.countCommands(rule, queue, err)
	return err
}

// answerByRule answers a queue by a rule. It returns the store's error if that answers all of the queue.
func (s *Store) answerByRule(rule Answer, key gatehouse.Key, queue []control.Turn, err error) error {
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
		queue[i].Postponed = true // its limit comes into force when the store is back
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
func canAnswer(op gatehouse.Op) bool { return op.Yields() && op != gatehouse.OpWait }

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
	// A list replaces the single limit.
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
	var places []int
	for i := range c.Turns {
		turn := &c.Turns[i]
		if !isOwnUndo(*turn) {
			places = append(places, i)
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
	if len(places) == 0 {
		c.Done(nil)
		return
	}
	s.Apply(c.Part(places))
}
