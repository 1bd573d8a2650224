package cas

import (
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A queuedCall is a change of one name in the queue of that name.
type queuedCall struct {
	change *control.Change
	err    error   // that its Done is called with
	undos  []*undo // of its undos, in their order, once it was in a transaction

	pending  bool // it takes back what failed calls have left, and has an undo for each turn from the start
	flushing bool // it has refusals stored that were not, and has no command

	// joint is the transaction over several names of which it is the place in this queue; nil for any other
	// call. It has no change, and makes a batch by itself.
	joint *jointTransaction
}

// A callQueue is where the calls for one key meet. While a transaction is under way, those that come wait for
// the next one, which serves them together:
//
//	idle ── the first call leads ──► busy ── others come ──► busy, some wait
//	 ▲                                │                          │
//	 └────── it ends, none waits ─────┘        it ends: the next one takes those who wait by then
type callQueue struct {
	mu      sync.Mutex
	busy    bool // a transaction is under way
	waiting []queuedCall
}

// maxTurns is the most commands in one round trip.
const maxTurns = 4096

// beginOrJoin begins a transaction for a call if none is under way, and reports that it leads. Otherwise the
// call joins the queue, and waits; one of several names does neither if it has no time left for that.
func (q *callQueue) beginOrJoin(c queuedCall) (leads, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy {
		q.busy = true
		return true, false
	}
	if c.joint != nil && !c.joint.mayWait() {
		return false, false
	}
	q.waiting = append(q.waiting, c)
	return false, true
}

// tryBegin begins a transaction for a call if none is under way, and reports whether it does.
func (q *callQueue) tryBegin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	began := !q.busy
	q.busy = true
	return began
}

// endIfIdle ends a transaction, and returns how many wait for the next one, which is to take them.
func (q *callQueue) endIfIdle() (waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = len(q.waiting) > 0
	return len(q.waiting)
}

// takeBatch adds the calls of the next transaction to room: all that have come until it begins. It ends if
// no call waits any more.
func (q *callQueue) takeBatch(room []queuedCall) (batch []queuedCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for turns := 0; n < len(q.waiting) && (n == 0 || turns < maxTurns); n++ {
		if q.waiting[n].joint != nil {
			n = max(n, 1) // it comes next, or goes now
			break
		}
		// The last call may pass the limit, as no call is split.
		turns += len(q.waiting[n].change.Turns)
	}
	q.busy = n > 0
	if n == 0 {
		q.waiting = nil // at most names no call waits, so that they keep no room
	}
	return q.takeFront(room, n)
}

// takeFront takes the first n of those who wait, and adds them to others. It is called with the lock held.
func (q *callQueue) takeFront(others []queuedCall, n int) []queuedCall {
	others = append(others, q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:]) // so that nothing of those who were taken is kept
	q.waiting = q.waiting[:rest]
	return others
}

// takeAll ends a transaction that no other one is to follow, and returns all who wait.
func (q *callQueue) takeAll() (all []queuedCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting, q.busy = q.waiting, nil, false
	return all
}

// takeMatching returns the calls at the front that match, for the transaction under way.
func (q *callQueue) takeMatching(match func(*queuedCall) bool) (front []queuedCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < min(len(q.waiting), maxTurns) && match(&q.waiting[n]) {
		n++
	}
	return q.takeFront(nil, n)
}

// leaveQueue takes a transaction that waits out of the queue. It reports false if that is not in it any more.
func (q *callQueue) leaveQueue(t *jointTransaction) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, func(c queuedCall) bool { return c.joint == t })
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// A callBatch is the calls that one transaction serves, as one queue.
type callBatch struct {
	calls      []queuedCall
	turns      []control.Turn // their commands are the callers'; a conflict leaves no trace there
	undos      []*undo        // the turns that are not to be done twice, in their order
	hasPending bool           // some of them for calls that failed
	flushing   bool           // it stores refusals that were not
}

// addTurns takes the turns of further calls over.
func (b *callBatch) addTurns(calls []queuedCall) {
	for i := range calls {
		c := &calls[i]
		b.flushing, b.hasPending = b.flushing || c.flushing, b.hasPending || c.pending
		if c.pending {
			// The undos of earlier failures keep their identities from one transaction to the next: a
			// record that names one of them has seen it done.
			for j, d := range c.undos {
				d.turn = len(b.turns) + j
			}
		} else {
			c.undos = newUndos(c.change.Turns, len(b.turns))
		}
		b.undos, b.turns = append(b.undos, c.undos...), append(b.turns, c.change.Turns...)
	}
}

// deliverDecisions hands the decisions out, and shows the state to those who asked for it.
func (b *callBatch) deliverDecisions(u *recordUpdate, state control.State) {
	i := 0
	for _, c := range b.calls {
		for j := range c.change.Turns {
			c.change.Turns[j].Decision = u.decisions[i]
			i++
		}
		if c.change.View != nil {
			c.change.View(time.Unix(0, u.now), state)
		}
	}
}

// postponement is after how long those are looked at again who wait and were not served because of
// conflicts.
const postponement = 20 * time.Millisecond

// postponeWaiters makes decisions by which those go on waiting who may wait.
func (b *callBatch) postponeWaiters(now int64) []gatehouse.Decision {
	decisions := make([]gatehouse.Decision, len(b.turns))
	for i := range b.turns {
		if mayPostpone(b.turns[i]) {
			decisions[i] = gatehouse.Decision{
				Outcome: gatehouse.Refused, At: time.Unix(0, now), RetryAfter: jittered(postponement),
			}
		}
	}
	return decisions
}

// mayPostpone reports whether a turn is of somebody in line who goes on waiting when refused.
func mayPostpone(turn control.Turn) bool {
	return turn.Ticket != 0 && turn.Op.Waits() && turn.MaxWait != 0
}

// deliverPostponed answers a call of a postponed batch: those who wait go on, and the others have an error
// each. They are returned as a call of their own. It reports false, and does nothing, if none of its commands
// waits.
func (b *callBatch) deliverPostponed(
	c *queuedCall, decisions []gatehouse.Decision, err error,
) (failed queuedCall, is bool) {
	if c.change.View != nil || c.pending || !slices.ContainsFunc(c.change.Turns, mayPostpone) {
		return failed, false
	}
	// One call may carry both kinds. The others fail on their own, with the undos that belong to the call.
	failed = queuedCall{change: new(control.Change), undos: c.undos}
	for i := range c.change.Turns {
		if turn := &c.change.Turns[i]; mayPostpone(*turn) {
			same := func(of control.Turn) bool { return of.Command == turn.Command }
			turn.Decision, turn.Postponed = decisions[slices.IndexFunc(b.turns, same)], true
		} else {
			turn.Err = err
			failed.change.Turns = append(failed.change.Turns, *turn)
		}
	}
	return failed, true
}
