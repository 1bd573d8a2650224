package cas

import (
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is what keeps a server from a conflict each time with one that is nearer to the store. What it
// has read is old when its change arrives, again and again; so after some losses its change, should it lose
// once more, claims the record in the same step: no other server's change is made then until its next one,
// or until the claim ends by the store's time.

const (
	// claimAfter is how many changes of a transaction another server was faster than before the next one
	// claims the record. The others pause for a round trip of this server in each 2 + claimAfter.
	claimAfter = 1

	// racesForRoom is after how many changes of others that came before this server's, since its own last
	// grant, it claims a record to wait for room. So others get room at least as often.
	racesForRoom = 1

	// A claim lasts for claimTrips round trips and claimSlack, which a busy machine may need, but no longer
	// than a part of the time budget, as others wait as long for a server that dies with it.
	claimTrips = 4
	claimSlack = 20 * time.Millisecond
	claimPart  = 4

	// firstPoll is how long a server waits at first before it tries again to change a record that another
	// has claimed. It doubles, up to lastPoll.
	firstPoll = 500 * time.Microsecond
	lastPoll  = 4 * time.Millisecond

	// postponement is after how long those are looked at again who wait and were not served because of
	// conflicts.
	postponement = 20 * time.Millisecond
)

// claimDuration is for how long the change that is made now claims the record if it conflicts.
func (t *transaction) claimDuration() time.Duration {
	if t.conflicts < claimAfter {
		return 0
	}
	return t.longestClaim()
}

func (t *transaction) longestClaim() time.Duration {
	return min(claimTrips*t.entry.contention.roundTrip+claimSlack, t.store.config.Timeout/claimPart)
}

// wantsRoom reports whether a transaction that has nothing to change is to claim the record even so, and
// wait for room. What a limiter gives back is gone before a far server knows of it: that server is refused
// each time, without a conflict. So when others have changed the record before it since its own last grant,
// it claims the record shortly before there is room.
func (t *transaction) wantsRoom() bool {
	s, trip := t.store, t.entry.contention.roundTrip
	// A server that was first since the last change needs no claim: it sees room in time.
	if !s.traits.Claims || t.entry.contention.conflicts < racesForRoom || t.claimedForRoom {
		return false
	}
	if s.clock.elapsedTime()-t.entry.contention.repliedAt > int64(2*trip) {
		return false // the record was seen too long ago to tell when there is room
	}
	after, is := t.update.roomAfter(t.turns)
	if !is || after > t.longestClaim()-2*trip {
		return false // it is too early
	}
	// The wait and both round trips must fit in what is left of the budget.
	deadline, limited := t.budget.Deadline()
	return !limited || time.Until(deadline) > t.longestClaim()+2*trip
}

// claimRoom is the change that does nothing but claim the record.
func (t *transaction) claimRoom() *RecordChange {
	t.claimedForRoom = true
	// No record has this version, so the change is certain not to be made; all that the store does is note
	// the claim.
	return t.newChange(RecordChange{
		If: noVersion, Next: []byte{recordVersion}, Nonce: t.update.next.recentNonces[0],
		Claim: t.longestClaim(), Server: t.store.config.Server,
	})
}

// awaitRoom waits for room at a record that was claimed for that, and reports whether to decide again. It
// leaves time for the change to arrive before the claim ends.
func (t *transaction) awaitRoom() bool {
	if !t.claimedForRoom || !t.hasClaim {
		return false
	}
	t.claimedForRoom = false
	if !t.update.write {
		// Two round trips of the claim are spent on its reply and on the change itself.
		trip := t.entry.contention.roundTrip
		after, is := t.update.roomAfter(t.turns)
		most := t.longestClaim() - 2*trip
		// What comes back often comes bit by bit; it waits for some of that.
		if !is || after > most || !sleepFor(t.budget, min(after+trip, most)) {
			return false
		}
	}
	t.takeWaiting()
	return true
}

// takeWaiting takes over those who came meanwhile: there may be room for all of them, and the record is
// claimed now. It leaves those that stand in line, who have been looked at before.
func (t *transaction) takeWaiting() {
	if len(t.unresolved) > 0 {
		return // what is not known of them is about the present turns
	}
	// Only calls without a place in line: those in line were refused in this order and must not overtake
	// each other. Undos go by themselves.
	inLine := func(turn control.Turn) bool { return turn.Command.Ticket != 0 }
	more := t.entry.calls.takeMatching(func(r *applyCall) bool {
		return r.pendingUndos == nil && !slices.ContainsFunc(r.queue, inLine)
	})
	t.batch = slices.Concat(t.batch, more)
	t.addCalls(more)
}

// awaitClaim waits until it is time to try again. It reports false if time is up before.
func (t *transaction) awaitClaim(claimed time.Duration) (inTime bool) {
	pause := min(claimed, t.claimPoll)
	t.claimPoll = min(2*t.claimPoll, lastPoll)
	return sleepFor(t.budget, jittered(pause))
}

// postponeWaiters has those go on waiting who may wait, when a transaction has only met conflicts and so
// has changed nothing. It reports whether that is so.
func (t *transaction) postponeWaiters(err error) bool {
	now, known := t.store.clock.storeTime()
	// Only conflicts: a change of unknown outcome may have granted something, and then a waiter must not go
	// on as if refused.
	if !errors.Is(err, ErrConflict) || len(t.unresolved) > 0 || !known {
		return false
	}
	decisions := append(t.update.decisions[:0], make([]gatehouse.Decision, len(t.turns))...)
	for i := range t.turns {
		if cmd := t.turns[i].Command; cmd.Ticket != 0 && cmd.Op.Waits() && cmd.MaxWait != 0 {
			decisions[i] = gatehouse.Decision{
				Outcome: gatehouse.Refused, At: time.Unix(0, now), RetryAfter: jittered(postponement),
			}
		}
	}
	t.update.decisions = decisions
	return true
}

// deliverPostponed answers a request of a postponed transaction: those who wait go on, and the others have
// an error each. It reports false, and does nothing, if none of its commands waits.
func (t *transaction) deliverPostponed(r *applyCall, err error) bool {
	waits := func(turn control.Turn) bool {
		return turn.Command.Ticket != 0 && turn.Command.Op.Waits() && turn.Command.MaxWait != 0
	}
	if r.view != nil || r.pendingUndos != nil || !slices.ContainsFunc(r.queue, waits) {
		return false
	}
	// One call may carry both kinds. The others fail on their own, with the undos that belong to the call.
	failed := applyCall{ownUndos: r.ownUndos}
	for i := range r.queue {
		if turn := &r.queue[i]; waits(*turn) {
			turn.Decision = t.decisionOf(turn.Command)
		} else {
			turn.Err = err
			failed.queue = append(failed.queue, *turn)
		}
	}
	if len(failed.queue) > 0 {
		t.store.failCalls(t.entry.key, []*applyCall{&failed}, err)
	}
	return true
}

// decisionOf is the decision about a command of this transaction.
func (t *transaction) decisionOf(cmd *gatehouse.Command) gatehouse.Decision {
	i := slices.IndexFunc(t.turns, func(turn control.Turn) bool { return turn.Command == cmd })
	return t.update.decisions[i]
}
