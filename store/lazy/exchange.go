package lazy

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An exchangeRequest is a queue that the store has to serve.
type exchangeRequest struct {
	queue []control.Turn
	done  bool // guarded by exchanging
	err   error
}

// maxRoundTrip is the most turns of requests in one round trip, unless one request alone has more.
const maxRoundTrip = 4096

// applyByStore applies a queue to the store, behind a report of what was granted here, and reads the state.
// Queues that come while an exchange is under way share the next one.
func (n *namedLimiter) applyByStore(queue []control.Turn) error {
	e := &exchangeRequest{queue: queue}
	n.mu.Lock()
	if n.forgotten {
		n.mu.Unlock()
		return errForgotten
	}
	n.requests = append(n.requests, e)
	n.mu.Unlock()
	n.exchangeLock <- struct{}{}
	defer func() { <-n.exchangeLock }()
	// Another caller's round trip may have served this queue already. If there are too many queues for one
	// round trip it takes several. The error is that of e.
	for !e.done {
		_ = n.makeRoundTrip()
	}
	n.mu.Lock()
	n.store.scheduleExchange(n)
	n.mu.Unlock()
	return e.err
}

// A roundTrip is one exchange with the store: a report, the queues of requests behind it, and the results.
type roundTrip struct {
	unreported unreportedUse
	requests   []*exchangeRequest
	turns      []control.Turn
	now        time.Time
	encoded    []byte // of the state; nil when there is none
}

// makeRoundTrip reports to the store what was granted here, applies requests, and reads the state. It is
// called with exchangeLock held.
func (n *namedLimiter) makeRoundTrip() error {
	n.mu.Lock()
	t := n.beginRoundTrip()
	n.mu.Unlock()
	c := control.Change{Key: n.key, Turns: t.turns, View: func(now time.Time, state control.State) {
		t.now = now
		if state != nil {
			t.encoded = control.Encode(nil, state)
		}
	}}
	err := c.ApplyTo(n.store.SharedStore)
	n.mu.Lock()
	n.endRoundTrip(t, err)
	n.mu.Unlock()
	t.copyDecisions(err)
	return err
}

// beginRoundTrip makes the turns of a round trip. It is called with the lock held.
func (n *namedLimiter) beginRoundTrip() *roundTrip {
	t := &roundTrip{unreported: n.unreported}
	// From here on grants count for the next report.
	n.unreported = unreportedUse{rule: t.unreported.rule, since: n.storeTime()}
	if report := t.unreported.reportTurn(); report != nil {
		t.turns = append(t.turns, *report)
	}
	t.turns = append(t.turns, t.unreported.undone...)
	// A request that takes something stops local grants until its result is known: what both take together
	// could exceed the limit.
	i := 0
	for ; i < len(n.requests) && (i == 0 || len(t.turns) < maxRoundTrip); i++ {
		if mayTake(n.requests[i].queue) {
			n.storeTaking = true
		}
		for j := range n.requests[i].queue {
			t.addTurn(n.requests[i].queue[j])
		}
	}
	t.requests = n.requests[:i:i]
	n.requests = n.requests[i:]
	if len(n.requests) == 0 {
		n.requests = nil
	}
	// An empty queue would not be sent, and the state would not be read.
	if len(t.turns) == 0 {
		t.addTurn(control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}})
	}
	return t
}

// reportTurn takes what was let through from a limiter that has not heard of it; nil when nothing was.
func (u *unreportedUse) reportTurn() *control.Turn {
	if u.cost == 0 && !u.changed {
		return nil
	}
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: u.rule, Cost: u.cost}
	// Callers that name no limit are let through by the one in force, and so is the report of them.
	if cmd.Rule == (gatehouse.Rule{}) {
		cmd.Size = gatehouse.InForce
	}
	return &control.Turn{Command: &cmd, Again: !u.changed, Forced: true, Requests: u.commands}
}

// addTurn adds a turn without its ticket: a command that waits here is served here, and must not take a place
// in the store's own order.
func (t *roundTrip) addTurn(turn control.Turn) {
	turn.Ticket = 0
	t.turns = append(t.turns, turn)
}

// endRoundTrip processes the result of a round trip. It is called with the lock held.
func (n *namedLimiter) endRoundTrip(t *roundTrip, err error) {
	n.storeTaking = false
	if err != nil {
		// It is not known whether the report arrived. It is sent again, since counting too much is better
		// than counting too little.
		u := &n.unreported
		u.cost = min(u.cost+t.unreported.cost, gatehouse.MaxSize)
		u.commands += t.unreported.commands
		u.changed = u.changed || t.unreported.changed
		n.failure = err
		return
	}
	if t.now.After(n.now) || n.now.Sub(t.now) > maxBackwards {
		n.now = t.now
	}
	now := n.storeTime()
	n.failure, n.learnedAt, n.state = nil, now, nil
	if t.encoded != nil {
		n.state, _ = control.Decode(n.key.Kind, t.encoded) // if it cannot be, the store says so when asked
	}
	t.learnLimits(&n.unreported)
	if n.state != nil {
		n.replayUnreported(now)
	}
}

// learnLimits notes the limits of the requests, which the store knows now.
func (t *roundTrip) learnLimits(u *unreportedUse) {
	for _, e := range t.requests {
		for i := range e.queue {
			turn := &e.queue[i]
			if turn.Op == gatehouse.OpAcquire && !turn.Again && turn.HasLimit() && !u.changed {
				u.rule = turn.Rule
			}
		}
	}
}

// replayUnreported counts what was granted here during the exchange on top of the state that was read by it.
func (n *namedLimiter) replayUnreported(now time.Time) {
	u := &n.unreported
	if report := u.reportTurn(); report != nil {
		n.state.Step(now, report)
	}
	for i := range u.undone {
		n.state.Undo(now, &u.undone[i])
	}
}

// copyDecisions copies the decisions to the requests, and ends them.
func (t *roundTrip) copyDecisions(err error) {
	// The turns of the requests are the last ones, behind the report.
	at := len(t.turns)
	for _, e := range t.requests {
		at -= len(e.queue)
	}
	for _, e := range t.requests {
		for i := range e.queue {
			e.queue[i].Decision = t.turns[at].Decision
			at++
		}
		e.done, e.err = true, err
	}
}

// exchangeOnce reports to the store what was granted here, and reads what others have taken. A name that was
// not used since the last time is forgotten instead: reading it each interval would cost more round trips
// than it saves.
func (n *namedLimiter) exchangeOnce() {
	n.exchangeLock <- struct{}{}
	defer func() { <-n.exchangeLock }()
	n.mu.Lock()
	// Cleared before the round trip: a grant during it must be able to schedule the next one.
	n.scheduled = false
	idle := !n.used && n.unreported.isEmpty() && len(n.requests) == 0 && n.chunk == nil &&
		n.toReturn.validUntil.IsZero()
	n.used = false
	if idle {
		n.store.forgetLimiter(n)
	}
	n.mu.Unlock()
	if idle {
		return
	}
	if n.rule.Chunk > 0 {
		n.returnUnused()
	} else {
		_ = n.makeRoundTrip() // n.failure keeps the error for later commands
	}
	n.mu.Lock()
	n.store.scheduleExchange(n)
	n.mu.Unlock()
}

// exchangeLast makes the last exchange of a name, and forgets it.
func (n *namedLimiter) exchangeLast() {
	n.exchangeLock <- struct{}{}
	defer func() { <-n.exchangeLock }()
	n.mu.Lock()
	nothing := n.unreported.isEmpty()
	n.mu.Unlock()
	// A chunk is returned even if nothing was granted from it, so that other servers need not wait until its
	// end.
	// No caller is left who could be told of an error.
	if n.rule.Chunk > 0 {
		_ = n.returnChunk()
	} else if !nothing {
		_ = n.makeRoundTrip()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store.forgetLimiter(n)
}
