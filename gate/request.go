package gate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Request is a command for the controller of a key, and what became of it. It is the caller's, who may use
// it again for another command, and the gate's from Submit until Decided is called.
type Request struct {
	Key     gatehouse.Key
	Command gatehouse.Command

	// Checked says that Command.Check has passed for this key and command, which spares Submit that.
	Checked bool

	// Decided is called exactly once for each Submit, also after a Cancel, perhaps before Submit returns, and
	// on any goroutine. It is not called under a lock, and must not block. nil calls nothing.
	Decided func(*Request)

	// Decision is set from Decided on, and its zero value if Err is not nil. A caller may bring room for it,
	// which is used if the request is decided before Submit returns: a request that waits needs none.
	Decision *gatehouse.Decision
	Err      error

	ticket
}

// A ticket is what the gate keeps of a request. It is guarded by the lock of its line, and Command is too,
// except while the store has the request: then nothing changes that. state alone guards a request that is
// in no line.
//
//	joinLine           fillBatch             refused
//	─────────▶ unseen ───────────▶ offered ───────────▶ seen, waiting
//	enterLook    │                 ▲ │    ▲                │    │
//	─────────────│─────────────────┘ │    └────────────────┘    │ cancel
//	             │ cancel     others │        fillBatch         ▼
//	             ▼                   ▼                         removed, and an undo joins the line
//	          removed ◀────────── decided
//
// A ticket that is canceled while it is offered is marked abandoned. Its decision is then undone.
type ticket struct {
	number control.Ticket      // its identity in the store; 0 until it may wait or joins a line
	since  time.Time           // when it came, by the store; the zero time if it has not been there
	undoes *gatehouse.Decision // for an undo of a grant; otherwise nil

	line       *line // nil if it has never been in one
	prev, next *Request
	timeout    *timeout     // ends the wait; nil when MaxWait is Forever or 0
	state      atomic.Int32 // of a request that is in no line
	recheckAt  int32        // its place in line.recheck, counted from 1; 0 when it is not there

	atOnce    bool // it was decided before Submit returned, in no line
	keptBack  bool // a grant has kept the line in front of it at the last offer
	waits     bool // the command may wait; any other only passes through the line
	unchecked bool // there was no look yet whether there is room for it in line
	seen      bool // the store has refused or postponed it once, and it waits
	known     bool // the store has looked at it: its parameters are in force
	offered   bool // the store has it at present
	expired   bool // its MaxWait is over: the next offer is the last
	abandoned bool // it was canceled
	removed   bool // it is out of the line
	bumped    bool // it goes to the front; of a bump, that there was such a waiter
	resized   bool // its first look has changed the limit or size, and later ones do not tell so
}

// The states of a request that is in no line.
const (
	undecided = iota
	decided
	canceled
)

// errCanceled is the error of a request that was canceled before its decision.
var errCanceled = gatehouse.Errorf(gatehouse.CodeTimeout, "the request was canceled: %w", context.Canceled)

// mayWait reports whether a command waits in line when it is refused.
func mayWait(cmd *gatehouse.Command) bool { return cmd.MaxWait != 0 && cmd.Op.Waits() }

// setDecision fills in what the store has decided in an answeredTurn.
func (r *Request) setDecision(turn *control.Turn) {
	if turn.Err != nil {
		r.setError(turn.Err)
		return
	}
	if r.Decision == nil {
		r.Decision = new(gatehouse.Decision)
	}
	// A copy, because the round with the turn goes back to the pool.
	*r.Decision = turn.Decision
	// A later look finds the new limit in force already.
	r.Decision.Resized = r.Decision.Resized || r.resized
}

// setError answers a request without a decision.
func (r *Request) setError(err error) {
	if r.Decision == nil {
		r.Decision = new(gatehouse.Decision)
	}
	*r.Decision, r.Err = gatehouse.Decision{}, err
}

// cost returns how much the request takes from those behind it.
func (r *Request) cost() int64 {
	if r.Command.Op != gatehouse.OpAcquire {
		return 0
	}
	return r.Command.Cost
}

// needsUndo reports whether a decision gave the request something that can be undone.
func (r *Request) needsUndo(d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Granted && (r.Command.Op.Waits() || r.Command.Op == gatehouse.OpReserve)
}

// fillTurn makes turn the one in which the request is offered to the store. Its other fields are zero.
func (r *Request) fillTurn(turn *control.Turn, ahead int64) {
	turn.Command, turn.Ticket, turn.Ahead = &r.Command, r.number, ahead
	turn.Again, turn.Since, turn.Granted = r.known, r.since, r.undoes
	turn.Postponed, turn.Err = false, nil
	// To describe the line is a walk through it, and only these two ask for it.
	if r.Command.Op == gatehouse.OpWaiters || r.Command.Op == gatehouse.OpBump {
		turn.Line = r.describeLine()
	}
}

// newUndo returns a request that undoes what r was granted, or what the store remembers of it as waiting if
// granted is nil.
func newUndo(r *Request, granted *gatehouse.Decision) *Request {
	undo := &Request{Key: r.Key, Command: r.Command}
	undo.Command.Op, undo.Command.MaxWait = gatehouse.OpUndo, 0
	undo.number, undo.since, undo.known = r.number, r.since, r.known
	// A copy, because r may be used again before the undo is applied.
	if granted != nil {
		d := *granted
		undo.undoes = &d
	}
	return undo
}

// deliver calls Decided of requests for one name. They are their callers' from then on.
func (g *Gate) deliver(requests []*Request) {
	if g.config.Observer != nil {
		g.observeRequests(requests)
	}
	for _, r := range requests {
		if r.Decided != nil {
			r.Decided(r)
		}
	}
}

// addWaiting adds the number of waiting commands to the statistics in a decision. The store does not know it.
func (g *Gate) addWaiting(r *Request, d *gatehouse.Decision) {
	if r.Command.Op != gatehouse.OpStats || d.Outcome != gatehouse.Granted || r.Err != nil {
		return
	}
	d.Stats = append(d.Stats, gatehouse.Stat{Name: "waiting", Value: int64(g.waitingAt(r.Key))})
}

// Cancel takes a request out of its line, and has its Decided called with an error, if it is not decided yet.
// If it was granted already, the grant is taken back: call Cancel when the answer could not be delivered, and
// before the request is used again. Cancel must not be called before Submit has returned, except from
// Decided. It does not block, and a second call does nothing.
func (g *Gate) Cancel(r *Request) {
	switch {
	case r.line != nil:
		r.line.cancelTicket(r)
	case r.state.CompareAndSwap(undecided, canceled):
		// While the store has the request, what it is granted is taken back by whoever brings the answer.
		if r.atOnce {
			g.undoGrant(r)
		}
	case r.state.CompareAndSwap(decided, canceled):
		g.undoGrant(r)
	}
}

// undoGrant takes back what a request was granted.
func (g *Gate) undoGrant(r *Request) {
	if r.Err == nil && r.needsUndo(r.Decision) {
		g.submitUndo(newUndo(r, r.Decision))
	}
}

// submitUndo applies an undo, through the line if there is one. No caller is left who could be told of an
// error: a hold that was not undone ends when it expires.
func (g *Gate) submitUndo(undo *Request) {
	rd := g.newRound()
	if g.begin([]*Request{undo}, rd) {
		rd.release()
	}
}

// A timeout ends the wait of a request. It is apart from the request, which may be used again before a timer
// that has fired is heard of.
type timeout struct {
	line    *line
	request *Request // nil once it is out of the line; guarded by the line's lock
	timer   *time.Timer
	maxWait time.Duration // of the command as it came
}

// startTimeout has a request that waits in line looked at for the last time after its MaxWait. It is called
// with the line's lock held.
func (l *line) startTimeout(r *Request) {
	if !r.waits || r.Command.MaxWait <= 0 {
		return
	}
	t := &timeout{line: l, request: r, maxWait: r.Command.MaxWait}
	t.timer = time.AfterFunc(r.Command.MaxWait, t.onTimeout)
	r.timeout = t
}

// onTimeout is called when the request's MaxWait is over.
func (t *timeout) onTimeout() {
	l := t.line
	l.mu.Lock()
	r := t.request
	if r == nil {
		l.mu.Unlock()
		return
	}
	// Only the store refuses: one more offer, without MaxWait, brings a grant or the final refusal.
	r.expired = true
	l.recheckTicket(r)
	l.mu.Unlock()
	l.serveLine()
}
