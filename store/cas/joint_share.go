package cas

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has joint changes over the same names served together. They meet in the queue of the first name,
// behind the transaction that is under way there. The next one takes all of them that stand at the front of
// the queue, serves one after the other on the same records, and exchanges these with the store once.
//
//	queue of a:  [under way: a, b]   a, b   a, b, grant 1   a, b, grant 2   a, c
//	                                 └─ the next one: 3 calls, 4 records ─┘
//
// So if many clients want the same names at once, such as the limits of one organization, each waits for a
// few round trips and not for those of all others.

// The most that one transaction serves. etcd takes 128 operations in one change: up to 4 for a record, and
// one for a hold.
const (
	maxJointCalls   = 256
	maxJointRecords = 24 // of names and of grants
	maxJointHolds   = 32 // turns of semaphores and locks
)

// takeRiders takes the calls over that wait behind this one for the same names, if it leads all of its
// queues.
func (t *jointTransaction) takeRiders() {
	if t.timed || !t.mayShare() {
		return // a timer may be looking at the parts
	}
	room := riderRoom{calls: maxJointCalls, records: maxJointRecords - t.names, holds: maxJointHolds}
	room.take(t)
	front := t.parts[0].entry.calls.takeMatching(func(c *queuedCall) bool {
		other := c.joint
		if other == nil || !other.mayShare() || !t.hasSameNames(other) || !room.fits(other) {
			return false
		}
		// The record of its grant is asked for by nothing else: its number is new, or it is led here.
		if own := other.recordPart(); own != nil && !own.entry.calls.tryBegin() {
			return false
		}
		room.take(other)
		return true
	})
	for _, c := range front {
		t.addRider(c.joint)
	}
	if len(front) > 0 {
		t.orderRecords()
		t.makeRoom()
	}
}

// mayShare reports whether the call of a transaction can be served with others: it does not wait in line,
// takes nothing back, and is about names.
func (t *jointTransaction) mayShare() bool {
	turn := &t.parts[0].turns[0]
	return t.names > 0 && !t.pending && turn.Ticket == 0 && turn.Op != gatehouse.OpUndo
}

// hasSameNames reports whether another transaction is about the same names.
func (t *jointTransaction) hasSameNames(other *jointTransaction) bool {
	same := func(a, b jointPart) bool { return a.Key == b.Key }
	return slices.EqualFunc(t.parts[:t.names], other.parts[:other.names], same)
}

// recordPart is the part of the grant's record of a transaction that serves one call; nil if it has none.
func (t *jointTransaction) recordPart() *jointPart {
	if t.names == len(t.parts) {
		return nil
	}
	return &t.parts[t.names]
}

// A riderRoom is how much more fits into a transaction.
type riderRoom struct{ calls, records, holds int }

// needs is what a transaction of one call takes of the room.
func (t *jointTransaction) needs() (room riderRoom) {
	room = riderRoom{calls: 1, records: len(t.parts) - t.names}
	for i := range t.parts[:t.names] {
		if !t.parts[i].Key.Kind.Limiter() {
			room.holds++
		}
	}
	return room
}

func (r *riderRoom) fits(t *jointTransaction) bool {
	needs := t.needs()
	return needs.calls <= r.calls && needs.records <= r.records && needs.holds <= r.holds
}

func (r *riderRoom) take(t *jointTransaction) {
	needs := t.needs()
	r.calls, r.records, r.holds = r.calls-needs.calls, r.records-needs.records, r.holds-needs.holds
}

// addRider takes over the call of a transaction that has left the queue of the first name. Nothing but the
// call remains of that.
func (t *jointTransaction) addRider(other *jointTransaction) {
	other.timed = other.timer != nil && !other.timer.Stop()
	call := other.calls[0]
	for i := range t.parts[:t.names] {
		p := &t.parts[i]
		p.turns = append(p.turns, other.parts[i].turns[0])
	}
	if own := other.recordPart(); own != nil {
		// Each part keeps the room that it has.
		n := len(t.parts)
		t.parts = slices.Grow(t.parts, 1)[:n+1]
		p := &t.parts[n]
		p.Part, p.entry, p.turns = own.Part, own.entry, append(p.turns[:0], own.turns[0])
		call.record = n
	}
	t.calls, t.riders = append(t.calls, call), append(t.riders, other)
}

// orderRecords puts the records of the grants in the order of their keys, in which a backend takes them.
func (t *jointTransaction) orderRecords() {
	records := t.parts[t.names:]
	slices.SortFunc(records, func(a, b jointPart) int { return control.ComparePartKeys(a.Key, b.Key) })
	for i := range t.calls {
		c := &t.calls[i]
		if c.record < 0 {
			continue
		}
		last := c.change.Parts[len(c.change.Parts)-1].Key
		c.record = t.names + slices.IndexFunc(records, func(p jointPart) bool { return p.Key == last })
	}
}
