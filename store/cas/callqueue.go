package cas

import (
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An applyCall is one queue that is to be applied.
type applyCall struct {
	queue      []control.Turn
	view       func(now time.Time, state control.State)
	err        error
	batch      []*applyCall // that this one leads
	batchOfOne [1]*applyCall

	flushing bool // it has refusals stored that were not, and has no command

	// joint is the transaction over several names of which it is the place in this queue; nil for any other
	// call. It makes a batch by itself.
	joint *jointTransaction

	pendingUndos []*undo     // one for each turn, if the call takes back what failed calls have left
	ownUndos     []undo      // of its undos, in their order, once it was in a transaction
	done         func(error) // is called with err, once
}

// A callQueue is where the calls for one key meet. While a transaction is under way, those that come wait for
// the next one, which serves them together:
//
//	idle ── the first call leads ──► busy ── others come ──► busy, some wait
//	 ▲                                │                          │
//	 └────── it ends, none waits ─────┘        it ends: the next batch begins, led by its first
type callQueue struct {
	mu      sync.Mutex
	busy    bool // a transaction is under way
	waiting []*applyCall
}

// maxTurns is the most commands in one round trip.
const maxTurns = 4096

// beginOrJoin begins a transaction for a call if none is under way, and reports that it leads. Otherwise the
// call joins the queue, and waits; one of several names does neither if it has no time left for that.
func (q *callQueue) beginOrJoin(r *applyCall) (leads, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy {
		r.batchOfOne[0] = r
		q.busy, r.batch = true, r.batchOfOne[:]
		return true, false
	}
	if r.joint != nil && !r.joint.mayWait() {
		return false, false
	}
	q.waiting = append(q.waiting, r)
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

// takeBatch ends a transaction, and returns the calls of the next one. It is over if there are none.
func (q *callQueue) takeBatch() (batch []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for turns := 0; n < len(q.waiting) && (n == 0 || turns < maxTurns); n++ {
		if q.waiting[n].joint != nil {
			n = max(n, 1) // it comes next, or goes now
			break
		}
		// The last call may pass the limit, as no call is split.
		turns += len(q.waiting[n].queue)
	}
	q.busy = n > 0
	if n > 0 {
		batch = q.waiting[:n]
		// Copied, so that nothing of the batch is kept.
		q.waiting = append([]*applyCall(nil), q.waiting[n:]...)
	}
	return batch
}

// takeAll ends a transaction that no other one is to follow, and returns all who wait.
func (q *callQueue) takeAll() (all []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting, q.busy = q.waiting, nil, false
	return all
}

// takeMatching returns the calls at the front that match, for the transaction under way.
func (q *callQueue) takeMatching(match func(*applyCall) bool) (front []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < min(len(q.waiting), maxTurns) && match(q.waiting[n]) {
		n++
	}
	if n == 0 {
		return nil
	}
	front = slices.Clone(q.waiting[:n])
	// A new slice, since the old one would keep the calls that were taken.
	q.waiting = append([]*applyCall(nil), q.waiting[n:]...)
	return front
}

// leaveQueue takes a call that waits out of the queue. It reports false if that is not in it any more.
func (q *callQueue) leaveQueue(r *applyCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// A callBatch is the calls that one transaction serves, as one queue.
type callBatch struct {
	calls      []*applyCall
	turns      []control.Turn // their commands are the callers'; a conflict leaves no trace there
	undos      []*undo        // the turns that are not to be done twice, in their order
	hasPending bool           // some of them for calls that failed
	flushing   bool           // it stores refusals that were not
}

// addCalls takes the queues of further calls over.
func (b *callBatch) addCalls(calls []*applyCall) {
	for _, r := range calls {
		b.flushing = b.flushing || r.flushing
		if r.pendingUndos != nil {
			// The undos of earlier failures keep their identities from one transaction to the next: a
			// record that names one of them has seen it done.
			for i, d := range r.pendingUndos {
				d.turn = len(b.turns) + i
			}
			b.undos, b.hasPending = append(b.undos, r.pendingUndos...), true
		} else {
			r.ownUndos = newUndos(r.queue, len(b.turns))
			for i := range r.ownUndos {
				b.undos = append(b.undos, &r.ownUndos[i])
			}
		}
		b.turns = append(b.turns, r.queue...)
	}
}

// deliverDecisions hands the decisions out, and shows the state to those who asked for it.
func (b *callBatch) deliverDecisions(u *recordUpdate, state control.State) {
	i := 0
	for _, r := range b.calls {
		for j := range r.queue {
			r.queue[j].Decision = u.decisions[i]
			i++
		}
		if r.view != nil {
			r.view(time.Unix(0, u.now), state)
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
	r *applyCall, decisions []gatehouse.Decision, err error,
) (failed *applyCall, is bool) {
	if r.view != nil || r.pendingUndos != nil || !slices.ContainsFunc(r.queue, mayPostpone) {
		return nil, false
	}
	// One call may carry both kinds. The others fail on their own, with the undos that belong to the call.
	failed = &applyCall{ownUndos: r.ownUndos}
	for i := range r.queue {
		if turn := &r.queue[i]; mayPostpone(*turn) {
			same := func(of control.Turn) bool { return of.Command == turn.Command }
			turn.Decision, turn.Postponed = decisions[slices.IndexFunc(b.turns, same)], true
		} else {
			turn.Err = err
			failed.queue = append(failed.queue, *turn)
		}
	}
	return failed, true
}
