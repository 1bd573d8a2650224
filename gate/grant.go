package gate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A GrantRequest is a command over several names, and what became of it. It is the caller's, who may use it
// again, and the gate's from SubmitGrant until Decided is called. Used again it allocates nothing when it is
// decided at once.
type GrantRequest struct {
	Command gatehouse.GrantCommand

	// Checked says that Command.Check has passed, which spares SubmitGrant that.
	Checked bool

	// Decided is called exactly once for each SubmitGrant, as that of a [Request] is.
	Decided func(*GrantRequest)

	// Judge is asked about the names of a grant that is there before an operation on it takes effect; its
	// error is the answer. Nil lets all pass.
	Judge func(want []gatehouse.Member) error

	Decision gatehouse.GrantDecision
	Err      error

	grantTicket
}

// A grantTicket is what the gate keeps of a request over several names. From SubmitGrant on one goroutine at
// a time has it: the one that puts it to the store, and then the one that brings the answer. Between two
// looks at one that waits no goroutine has it, and whoever sets busy takes it.
//
//	                     answered
//	SubmitGrant ─▶ busy ───────────▶ finished
//	                │ ▲
//	        refused ▼ │ a line has moved, a timer, Cancel, Close
//	               waits
type grantTicket struct {
	gate   *Gate
	number control.Ticket // its identity in the store, and its place in all lines; 0 until it may wait
	since  time.Time      // when it came, by the store
	parts  control.GrantParts
	record *gatehouse.GrantRecord // of a grant that is there, as it was found
	step   grantStep
	tries  int // how often the record was found changed
	// resized has a bit for each member whose limit or size its first look has changed: later ones do not
	// tell so.
	resized uint32

	change   control.JointChange // with the parts, while the store has it
	handover atomic.Int32        // started, answered or left, as the state of a round
	storeErr error
	onDone   func(error) // noteAnswer, bound once

	// These are guarded by the lock of the gate's grantOrder once SubmitGrant has returned.
	places    []grantPlace // in the lines of its members; empty when it is in none
	group     *sameNames   // of those that want the same; nil when it is in no line
	wait      *grantWait   // its timers, while it is in line
	late      bool         // others may know of it: what follows is guarded
	finished  bool         // it has its decision
	abandoned bool         // it was canceled
	busy      bool         // a goroutine has it
	dirty     bool         // it is to be looked at
	leaving   bool         // it is on its way out of the lines
	expired   bool         // its MaxWait is over: the next look is the last
	seen      bool         // the store has refused or postponed it once, and it waits
	known     bool         // the store has looked at it: its parameters are in force
	counted   bool         // it is one of those that wait
	repeated  bool         // it was looked at again only because it keeps other lines than before
	unwatched bool         // the store was not asked to tell of changes before its last look
	blocked   int          // places where tickets that came before were not looked at yet
	deleted   int          // the part that was deleted while it waited; -1 for none
}

// A grantStep is what a request is at the store for.
type grantStep uint8

const (
	stepDecide grantStep = iota // its own parts
	stepPeek                    // the record of the grant that it is about
	stepUndo                    // to take back another request
)

// SubmitGrant decides a request over several names, as Submit does for one: all of it takes effect or none. A
// request that must wait stands in the lines of all its names by one number, and holds nothing. SubmitGrant
// does not block.
//
// A renew, a topup, a settle and a release look up the record of the grant first. A question about an acquire
// stands behind those who wait, as an acquire does. After an error of the store
// it is not known whether a request took effect.
func (g *Gate) SubmitGrant(r *GrantRequest) {
	r.prepareRequest(g)
	if !r.Checked {
		r.Err = r.Command.Check()
	}
	switch {
	case r.Err != nil:
		r.finishRequest(r.Err)
		return
	// Such a command has only the ID. Which names it is about is known from the record.
	case r.Command.Op != gatehouse.OpAcquire && !r.Command.IsLook():
		r.step = stepPeek
		r.parts.Peek(&r.Command)
	// At the store at once, it could take what those in the lines wait for.
	case r.findsLine():
		r.number = g.nextTicket()
		r.parts.Acquire(&r.Command)
		r.joinLines()
		return
	default:
		r.buildParts()
	}
	r.advance(false)
}

// prepareRequest makes a request ready that may have been used before.
func (r *GrantRequest) prepareRequest(g *Gate) {
	// Bound once, since each method value is an allocation.
	if r.onDone == nil {
		r.onDone = r.noteAnswer
	}
	r.gate, r.Err = g, nil
	r.number, r.since, r.record, r.step, r.tries = 0, time.Time{}, nil, stepDecide, 0
	r.places, r.wait, r.resized = r.places[:0], nil, 0
	// It begins busy: this goroutine has the request until it is answered, waits, or is left to the store.
	r.late, r.finished, r.abandoned, r.busy, r.dirty = false, false, false, true, false
	r.leaving, r.expired, r.known = false, false, false
	r.seen, r.counted, r.repeated, r.unwatched, r.blocked, r.deleted = false, false, false, true, 0, -1
}

// findsLine reports whether there is a line at one of the names that an acquire wants.
func (r *GrantRequest) findsLine() bool {
	// Without any line, which is common, no name is looked up.
	if r.gate.lines.Load() == 0 {
		return false
	}
	for i := range r.Command.Want {
		if r.gate.lineOf(r.Command.Want[i].Key) != nil {
			return true
		}
	}
	return false
}

// mayWait reports whether the request waits in line when it is refused.
func (r *GrantRequest) mayWait() bool {
	op := r.Command.Op
	return r.Command.MaxWait != 0 && (op == gatehouse.OpAcquire || op == gatehouse.OpTopUp)
}

// DoGrant is Do for a command over several names. What it is given must not be changed before it returns.
func (g *Gate) DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	return g.DoGrantInto(ctx, &cmd, nil)
}

// DoGrantInto is DoGrant for callers that bring room for the decisions on the members: they are put there as
// far as its capacity goes, and nothing is allocated. After an error the room must not be used again, as the
// gate may still have it.
func (g *Gate) DoGrantInto(
	ctx context.Context, cmd *gatehouse.GrantCommand, room []gatehouse.MemberDecision,
) (gatehouse.GrantDecision, error) {
	if err := ctx.Err(); err != nil {
		failed := *cmd // so that others stay off the heap
		return gatehouse.GrantDecision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", &failed, err)
	}
	c := g.grantCalls.Get().(*grantCall)
	r := &c.request
	r.Command, r.Decision.Want = *cmd, room
	c.state.Store(callAsked)
	g.SubmitGrant(r)
	if !c.awaitDecision(ctx) {
		// The call does not go back to the pool: the gate has it until Decided is called.
		g.CancelGrant(r)
		failed := *cmd
		return gatehouse.GrantDecision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %s: %w",
			&failed, cmd.Op, ctx.Err())
	}
	d, err := r.Decision, r.Err
	// What the caller has been given, or gave, is not used again.
	r.Decision, r.Command = gatehouse.GrantDecision{}, gatehouse.GrantCommand{}
	g.grantCalls.Put(c)
	return d, err
}

// A grantCall is a GrantRequest whose caller waits. Gates pool them.
type grantCall struct {
	request GrantRequest
	state   atomic.Int32  // callAsked until it is decided or its caller waits
	decided chan struct{} // tells a caller that waits; has room for that
}

// The states of a grantCall.
const (
	callAsked = iota
	callDecided
	callWaits
)

// awaitDecision waits until the request is decided, and reports false if ctx ends first.
func (c *grantCall) awaitDecision(ctx context.Context) bool {
	// Most are decided at once, and need no channel.
	if c.state.Load() == callDecided || !c.state.CompareAndSwap(callAsked, callWaits) {
		return true
	}
	select {
	case <-c.decided:
		return true
	case <-ctx.Done():
		return false
	}
}

func newGrantCall() *grantCall {
	c := &grantCall{decided: make(chan struct{}, 1)}
	c.request.Decided = func(*GrantRequest) {
		if !c.state.CompareAndSwap(callAsked, callDecided) {
			c.decided <- struct{}{}
		}
	}
	return c
}

// CancelGrant takes a request out of its lines, and has its Decided called with an error, if it is not
// decided yet. If it was granted already, the grant is taken back; an answer about a grant that was there
// already is only forgotten. What was said of [Gate.Cancel] holds here too. Renews, settles and releases
// stay.
func (g *Gate) CancelGrant(r *GrantRequest) {
	o := &g.grants
	o.mu.Lock()
	first, finished, waits := !r.abandoned, r.finished, !r.busy && !r.finished
	r.abandoned = true
	if first && waits {
		// Taken as by one that looks at it, so that no look begins while it leaves its lines.
		r.busy = true
	}
	o.mu.Unlock()
	switch {
	case !first:
	case finished:
		r.undoDecision()
	case waits:
		r.giveUp(errCanceled)
	}
	// While the store has it, whoever brings the answer sees that it was abandoned.
}

// undoDecision takes back what a request was granted. It may be used again before the undo is applied.
func (r *GrantRequest) undoDecision() {
	op := r.Command.Op
	if r.Err != nil || r.Decision.Outcome != gatehouse.Granted ||
		op != gatehouse.OpAcquire && op != gatehouse.OpTopUp {
		return
	}
	r.submitUndo(true)
}
