package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Serve applies a queue of commands, in order of arrival, to one controller at one instant, as one
// change, and writes every decision into its turn. s is nil when there is no such controller yet;
// what Serve returns is nil when there is none any more.
//
// This is the fairness rule. No command that may wait overtakes one that must: behind a refusal, commands
// that take something see in their Ahead that they must not. A command that needs no room, such as
// a release, is applied where it stands; if it changed anything, those refused before it are looked
// at again, in order. Parameters are applied once, at a command's first look.
//
// A queue that holds a delete must hold every waiting command: these are answered that the controller was
// deleted, and a command after the delete starts again.
func Serve(now time.Time, kind gatehouse.Kind, s State, queue []Turn) State {
	// Most turns are alone: there are no others to overtake or to change anything for.
	if len(queue) == 1 && s != nil && alwaysSteps(queue[0].Op) {
		s.Step(now, &queue[0])
		return s
	}
	var plenty *Room
	return plenty.Serve(now, kind, s, queue)
}

// Serve is [Serve] for a state that may grow only as much as there is room; a nil Room is as much as may be
// wanted. Commands that might make the state grow by more get ErrMemory or ErrHolders in their turns. What
// makes no state grow, such as what a limiter decides under the limits in force, or a release, is served
// however little room there is.
func (r *Room) Serve(now time.Time, kind gatehouse.Kind, s State, queue []Turn) State {
	v := queueServer{now: now, kind: kind, room: r}
	if r != nil && s != nil {
		v.weight, v.holders = s.Weight(), Holders(s)
	}
	standing, ahead, changed := 0, int64(0), false
	for i := range queue {
		turn := &queue[i]
		if turn.Op == gatehouse.OpDelete && changed {
			v.recheckWaiting(s, queue[:i]) // what came before the delete counts
		}
		// Every command sees in ahead what those refused before it want, and so cannot overtake them.
		before := ahead
		if !turn.Op.Yields() {
			before = 0
		}
		s = v.serveTurn(turn, s, before)
		switch {
		case turn.Op == gatehouse.OpDelete:
			answerDeleted(v.now, queue[:i])
			// Nobody waits any more, and what follows starts with a new controller.
			standing, ahead, changed = 0, 0, false
		case turn.keepsWaiting():
			// Its parameters may have changed things for those in front.
			changed = changed || standing > 0 && !turn.Again
			standing++
			ahead = min(ahead+turn.Cost, gatehouse.MaxSize) // it never overflows
		default:
			changed = changed || standing > 0
		}
	}
	if changed {
		v.recheckWaiting(s, queue)
	}
	return s
}

// A queueServer is one queue being served.
type queueServer struct {
	now     time.Time
	kind    gatehouse.Kind
	deleted State // what the queue has deleted, until another takes its place; nil when there is none

	room    *Room // nil when there is as much as may be wanted
	weight  int   // of the state before
	holders int   // that it had
}

// serveTurn serves a turn, which sees ahead more, if there is room for what it keeps. It returns the state
// that is left.
func (v *queueServer) serveTurn(t *Turn, s State, ahead int64) (next State) {
	next, answered := v.beginTurn(t, s)
	if answered {
		return next
	}
	// A store gives it only while room is scarce.
	if v.room != nil {
		if err := v.checkRoom(next, t); err != nil {
			t.Decision, t.Err = failedWith(v.now, gatehouse.Exhausted, ""), err
			return next
		}
	}
	// More is ahead for this look only: a store may serve the same turns again after a conflict.
	t.Ahead += ahead
	next.Step(v.now, t)
	t.Ahead -= ahead
	return next
}

// beginTurn returns the state that a turn's command finds, or answers a turn for which no state is stepped.
func (v *queueServer) beginTurn(t *Turn, s State) (next State, answered bool) {
	now := v.now
	switch t.Op {
	case gatehouse.OpDelete, gatehouse.OpStats:
		// Statistics and a delete do not make a controller, as other commands do.
		if Absent(s) {
			t.Decision = failedWith(now, gatehouse.Missing, "")
			return s, true
		}
		if t.Op == gatehouse.OpDelete {
			t.Decision, v.deleted = grantedAt(now), s
			return stateAfterDelete(now, v.kind, s), true
		}
	case gatehouse.OpHolders, gatehouse.OpWaiters:
		// Neither makes a controller, or is a use of one.
		t.Decision = report(now, s, t)
		return s, true
	case gatehouse.OpBump:
		// The gate has done it, if there is such a waiter: it has given the turn a line then.
		t.Decision = grantedAt(now)
		if t.Line == nil {
			t.Decision = failedWith(now, gatehouse.Conflict, "has no waiter with this id at this server")
		}
		return s, true
	case gatehouse.OpUndo:
		if s != nil {
			s.Undo(now, t)
		}
		t.Decision = grantedAt(now)
		return s, true
	}
	// The first use of a name makes its controller.
	if s == nil {
		s = New(v.kind)
	}
	if v.deleted != nil {
		v.followDeleted(s)
	}
	return s, false
}

// alwaysSteps reports whether a command steps the state that it finds, in any case: beginTurn answers none of
// these.
func alwaysSteps(op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpDelete, gatehouse.OpStats, gatehouse.OpHolders, gatehouse.OpWaiters, gatehouse.OpBump,
		gatehouse.OpUndo:
		return false
	}
	return true
}

// followDeleted tells a new state what it must not repeat of one that was deleted at the same instant, as
// fencing tokens and numbers of reservations are made of the time.
func (v *queueServer) followDeleted(s State) {
	switch before := v.deleted.(type) {
	case *Semaphore:
		s.(*Semaphore).fence = before.fence
	case interface{ limiterBase() *limiterCore }:
		s.(interface{ limiterBase() *limiterCore }).limiterBase().followDeleted(before.limiterBase())
	}
	v.deleted = nil
}

func answerDeleted(now time.Time, queue []Turn) {
	for i := range queue {
		// Those that have their decision already keep it.
		if queue[i].keepsWaiting() {
			queue[i].Decision = failedWith(now, gatehouse.Deleted, "was deleted while this request waited")
		}
	}
}

// recheckWaiting offers the state to all who stay, until none of them goes any more.
func (v *queueServer) recheckWaiting(s State, queue []Turn) {
	for v.recheckOnce(s, queue) {
	}
}

// recheckOnce offers the state to all who stay, in order, and reports whether one of them has gone.
func (v *queueServer) recheckOnce(s State, queue []Turn) (changed bool) {
	ahead := int64(0)
	for i := range queue {
		turn := &queue[i]
		if !turn.keepsWaiting() {
			continue
		}
		// The parameters were applied at the first look, which may have been in this queue.
		again := turn.Again
		turn.Again = true
		v.serveTurn(turn, s, ahead) // what waits has a state, which stays
		turn.Again = again
		if turn.keepsWaiting() {
			// Those behind must not overtake this one either.
			ahead = min(ahead+turn.Cost, gatehouse.MaxSize)
		} else {
			// What it left behind may let one in front of it go, so that there is another round.
			changed = true
		}
	}
	return changed
}
