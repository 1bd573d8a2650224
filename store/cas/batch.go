package cas

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

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
			turn.Decision = decisions[b.turnOf(turn.Command)]
		} else {
			turn.Err = err
			failed.queue = append(failed.queue, *turn)
		}
	}
	return failed, true
}

// turnOf is the turn of a command of this batch.
func (b *callBatch) turnOf(cmd *gatehouse.Command) int {
	return slices.IndexFunc(b.turns, func(turn control.Turn) bool { return turn.Command == cmd })
}
