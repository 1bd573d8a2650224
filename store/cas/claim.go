package cas

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/backoff"
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
)

// A claimState is what a transaction has claimed.
type claimState struct {
	held    bool // the record is left to this transaction by the others
	forRoom bool // it has claimed it, or tried to, to wait for room
}

// longestClaim is for how long a change that conflicts claims the record.
func (t *transaction) longestClaim() time.Duration {
	return min(claimTrips*t.entry.contention.roundTrip+claimSlack, t.store.config.Timeout/claimPart, MaxClaim)
}

// wantsRoom reports whether a transaction that has nothing to change is to claim the record even so, and
// wait for room. What a limiter gives back is gone before a far server knows of it: that server is refused
// each time, without a conflict. So when others have changed the record before it since its own last grant,
// it claims the record shortly before there is room.
func (t *transaction) wantsRoom() bool {
	s, trip := t.store, t.entry.contention.roundTrip
	// A server that was first since the last change needs no claim: it sees room in time.
	if !s.traits.Claims || t.entry.contention.conflicts < racesForRoom || t.claim.forRoom {
		return false
	}
	if s.clock.elapsedTime()-t.entry.contention.repliedAt > int64(2*trip) {
		return false // the record was seen too long ago to tell when there is room
	}
	after, is := t.update.roomAfter(t.batch.turns)
	if !is || after > t.longestClaim()-2*trip {
		return false // it is too early
	}
	// The wait and both round trips must fit in what is left of the budget.
	deadline, limited := t.budget.Deadline()
	return !limited || time.Until(deadline) > t.longestClaim()+2*trip
}

// claimRoom is the change that does nothing but claim the record.
func (t *transaction) claimRoom() {
	t.claim.forRoom = true
	// No record has this version, so the change is certain not to be made; all that the store does is note
	// the claim.
	t.setChange(RecordChange{
		If: noVersion, Next: []byte{recordVersion}, Nonce: t.update.next.recentNonces[0],
		Claim: t.longestClaim(), Server: t.store.config.Server,
	})
}

// awaitRoom waits for room at a record that was claimed for that, and reports whether to decide again. It
// leaves time for the change to arrive before the claim ends.
func (t *transaction) awaitRoom() bool {
	if !t.claim.forRoom || !t.claim.held {
		return false
	}
	t.claim.forRoom = false
	if !t.update.write {
		// Two round trips of the claim are spent on its reply and on the change itself.
		trip := t.entry.contention.roundTrip
		after, is := t.update.roomAfter(t.batch.turns)
		most := t.longestClaim() - 2*trip
		// What comes back often comes bit by bit; it waits for some of that.
		if !is || after > most || !backoff.Sleep(t.budget, min(after+trip, most)) {
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
	inLine := func(turn control.Turn) bool { return turn.Ticket != 0 }
	more := t.entry.calls.takeMatching(func(c *queuedCall) bool {
		return c.joint == nil && !c.pending && !slices.ContainsFunc(c.change.Turns, inLine)
	})
	n := len(t.batch.calls)
	t.batch.calls = append(t.batch.calls, more...)
	t.batch.addTurns(t.batch.calls[n:])
}
