package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Turn is a command in a queue, with what the gate and the store add to it, and its decision once the queue
// was served. The command is the caller's and stays as it is.
type Turn struct {
	*gatehouse.Command

	// Ticket is the command's identity while it waits; 0 when it does not wait.
	Ticket Ticket

	// Again says that the command was looked at before: its parameters are in force already.
	Again bool

	// Since is the store's time when the command came: of its first look, or of when that was postponed.
	Since time.Time

	// Ahead is how many tokens or slots are wanted by requests that wait in front of this command but are not
	// in its queue. More than 0 means that it must not take any.
	Ahead int64

	// Granted is, for an undo, the decision to take back; nil when the command was still waiting.
	Granted *gatehouse.Decision

	// Chunk says that a server takes from a limiter to let through by itself, or, for an undo, that it gives
	// back what is left; nil for all others.
	Chunk *Chunk

	// Grant is set if the turn is a part of a joint change; nil otherwise.
	Grant *GrantTurn

	// Line is, for an OpWaiters, what waits at this server, nil when nothing does; for an OpBump, not nil if
	// the waiter was there.
	Line *Line

	// Forced takes from a limiter even if there is no room, as it was given out elsewhere already, to as
	// many requests as Requests says. With a Cost of 0 it only puts the limits in force.
	Forced   bool
	Requests int64

	// MinFence is the least fencing token that a grant may carry, and the least number of a reservation; 0
	// means the store's time in µs. A number is not below the store's time in ns either.
	MinFence uint64

	// MaxHolders is the most holds under one name; 0 means as many as a store in one process allows.
	MaxHolders int

	// Leased says that the store ends holds, and tells so: their length is kept, but no instant.
	Leased bool

	// Postponed is set if the store itself did not look at a command that waits. The decision says when it
	// came and after how long it is to be looked at.
	Postponed bool

	Decision gatehouse.Decision

	// Err is set by a store that could not serve this turn, though it served others of the queue. Then
	// there is no decision, and the command did nothing.
	Err error
}

// A Ticket is the identity of a command that may wait. It is unique within a server; 0 means that
// the command has none, because it does not stay.
type Ticket uint64

// A Chunk is what a server has taken from a limiter to let it through by itself.
type Chunk struct {
	// Holder is whose it is, a random number other than 0. A holder has one chunk of a limiter.
	Holder uint64
	// Left is what the holder had left of it when it took more.
	Left int64
	// Commands is how many commands the holder has let through since it said so last.
	Commands int64
}

// UndoOf returns the turn that takes back what a turn was granted or, if granted is nil, what it has left
// behind while it waited. The command is a copy.
func UndoOf(turn *Turn, granted *gatehouse.Decision) Turn {
	cmd := *turn.Command
	cmd.Op, cmd.MaxWait = gatehouse.OpUndo, 0
	return Turn{Command: &cmd, Ticket: turn.Ticket, Again: turn.Again, Since: turn.Since, Granted: granted}
}

// reuseFor makes a turn that was served before the turn of another command. It keeps the old decision, which
// is overwritten when the turn is served; after an error of the store it is still the old one.
func (t *Turn) reuseFor(cmd *gatehouse.Command, grant *GrantTurn) {
	t.Command, t.Grant = cmd, grant
	t.Ticket, t.Again, t.Since, t.Ahead = 0, false, time.Time{}, 0
	t.Granted, t.Chunk, t.Line = nil, nil, nil
	t.Forced, t.Requests = false, 0
	t.MinFence, t.MaxHolders, t.Leased, t.Postponed, t.Err = 0, 0, false, false, nil
}

// KeepsWaiting reports whether a command that was answered so was refused but goes on waiting.
func KeepsWaiting(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Refused && cmd.Op.Waits() && cmd.MaxWait != 0
}

// isTrial reports whether the turn is only tried.
func (t *Turn) isTrial() bool { return t.Grant != nil && t.Grant.Trial }

// beginDecision clears the decision for a step, which fills it in. It keeps what a trial at this instant has
// written: the step that takes effect writes all of it again but Resized, as limits and sizes are in force by
// then.
func (t *Turn) beginDecision(now time.Time) {
	if t.Grant == nil || !t.Grant.tried {
		t.Decision = gatehouse.Decision{At: now}
	}
}

// failWith answers the turn with an outcome that is neither a grant nor a refusal, and says why. All else in
// the decision but its time is still zero.
func (t *Turn) failWith(outcome gatehouse.Outcome, why string) {
	t.Decision.Outcome, t.Decision.Message = outcome, why
}

func (t *Turn) keepsWaiting() bool { return KeepsWaiting(t.Command, &t.Decision) }

// A Visit is shown a controller, and returns false when it wants to see no more. It must be quick, and must
// not change or keep the state.
type Visit = func(gatehouse.Key, State) bool

// A Change is a queue of turns for one controller, which a store serves by [Serve] as one atomic change. From
// Apply on it belongs to the store, with its turns, until Done is called.
type Change struct {
	Key   gatehouse.Key
	Turns []Turn

	// View is shown the state as it is after the queue, nil when there is none, and the store's time. It must
	// be quick, and must not change or keep the state. It is not called when there is an error. nil views
	// nothing. Only stores that servers share call it.
	View func(now time.Time, state State)

	// Done is called exactly once, perhaps before Apply returns, without any lock of the store's. It must not
	// block. Either err is nil, and every turn has its decision or an error of its own; or it is not known
	// what took effect. A store in front of another one may put its own function here before it passes the
	// change on.
	Done func(err error)
}

// ApplyTo applies a change to a store, and returns when it is done. It is for callers that have a goroutine
// to spare, and sets Done.
func (c *Change) ApplyTo(store interface{ Apply(c *Change) }) error {
	done := make(chan error, 1)
	c.Done = func(err error) { done <- err }
	store.Apply(c)
	return <-done
}

// Part returns a change of the turns of c at some places. What is answered to it is copied to them, and its
// Done is that of c.
func (c *Change) Part(places []int) *Change {
	part := &Change{Key: c.Key, Turns: make([]Turn, len(places))}
	for i, place := range places {
		part.Turns[i] = c.Turns[place]
	}
	part.Done = func(err error) {
		for i, place := range places {
			from, to := &part.Turns[i], &c.Turns[place]
			to.Decision, to.Postponed, to.Err = from.Decision, from.Postponed, from.Err
		}
		c.Done(err)
	}
	return part
}

// noLimit is why a command with NeedLimit is refused.
const noLimit = "is new, and the default limit is beyond what this user may begin; want a limit in the " +
	"request"

// anotherLimit is why a command with KeepLimit is refused.
const anotherLimit = "has another limit in force, which may only be changed with the right to manage or to " +
	"resize it; leave the limit out, or state the one in force"
