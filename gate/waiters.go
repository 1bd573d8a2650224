package gate

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is what people see of a line, and how they change it.

// Ticket returns the number in the public id of a request that may wait (see [gatehouse.WaiterID]). It must
// not be called before Submit has returned.
func (r *Request) Ticket() control.Ticket { return r.number }

// describeLine is what a list of waiters, or a bump, is told of the line that it passes through. It is called
// with the line's lock held; a request in no line is told nothing.
func (r *Request) describeLine() *control.Line {
	l := r.line
	switch {
	case l == nil || l.waiting == 0:
		return nil
	// A bump is told nothing but that the waiter was found: the gate itself has moved it.
	case r.Command.Op == gatehouse.OpBump && r.bumped:
		return new(control.Line)
	case r.Command.Op == gatehouse.OpBump:
		return nil
	}
	line := &control.Line{Total: l.waiting, From: l.indexBehind(control.Ticket(r.Command.Fence))}
	most := gatehouse.DefaultListed
	if n := r.Command.Amount; n > 0 && n <= gatehouse.MaxListed {
		most = int(n) // at most MaxListed
	}
	l.eachWaiting(func(e control.LineEntry) bool {
		line.Entries = append(line.Entries, e)
		return len(line.Entries) < line.From+most
	})
	return line
}

// eachWaiting visits all that wait in the line, in the order in which they stand, until visit returns false.
// It is called with the line's lock held.
func (l *line) eachWaiting(visit func(control.LineEntry) bool) {
	grants := l.grants
	more := true
	// Tickets and grants are two lists, each in the order in which they stand, and are merged here.
	visitGrants := func(before control.Ticket) {
		for more && len(grants) > 0 && grants[0].grant.number < before {
			if entry, waits := l.entryOfGrant(grants[0]); waits {
				more = visit(entry)
			}
			grants = grants[1:]
		}
	}
	for t := l.head; t != nil && more; t = t.next {
		if !t.waits {
			continue
		}
		visitGrants(l.orderOf(t))
		if more {
			more = visit(l.entryOf(t))
		}
	}
	visitGrants(maxTicket)
}

// entryOf is what a list tells of a request that waits.
func (l *line) entryOf(r *Request) control.LineEntry {
	e := control.LineEntry{
		Ticket: r.number, Owner: r.Command.Owner, Cost: r.Command.Cost, Expires: r.Command.Expires,
		Since: r.since,
	}
	// moveToFront has given it an earlier time. People are told when it has really come.
	if bumped, was := l.bumps[r.number]; was {
		e.Since = bumped.since
	}
	return e
}

// entryOfGrant is what a list tells of a grant that stands in the line.
func (l *line) entryOfGrant(p *grantPlace) (entry control.LineEntry, waits bool) {
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	// It is at the store for the first time, and may be granted.
	if !p.counted {
		return entry, false
	}
	cmd := &p.grant.Command
	entry = control.LineEntry{
		Ticket: p.grant.number, Owner: cmd.Owner, Grant: cmd.ID, Cost: 1, Expires: cmd.Expires,
		Since: p.grant.since,
	}
	for i := range cmd.Want {
		if cmd.Want[i].Key == l.key {
			entry.Cost = cmd.Want[i].Cost
		}
	}
	return entry, true
}

// indexBehind is how many waiting requests come before the start of a list that begins after a ticket. If
// that ticket is gone, the list begins with the first that came after it.
func (l *line) indexBehind(after control.Ticket) int {
	if after == 0 {
		return 0
	}
	// A bump may have moved a later ticket in front of an earlier one, so the numbers are in no order.
	index, later, found := 0, -1, false
	l.eachWaiting(func(e control.LineEntry) bool {
		if e.Ticket > after && later < 0 {
			later = index
		}
		index++
		found = e.Ticket == after
		return !found
	})
	if found || later < 0 {
		return index
	}
	return later
}

// A bumpedPlace is where a ticket stands that was bumped.
type bumpedPlace struct {
	since time.Time      // when it came
	order control.Ticket // the number of which it has the place now
}

// orderOf is the number by which a ticket stands among grants, which have no other place among the tickets.
func (l *line) orderOf(t *Request) control.Ticket {
	if place, bumped := l.bumps[t.number]; bumped {
		return place.order
	}
	return t.number
}

// bumpTicket puts the ticket with a number in front of all others, and reports whether it waits here. One
// that the store has not seen yet goes there once it has.
func (l *line) bumpTicket(number control.Ticket) bool {
	for t := l.head; t != nil; t = t.next {
		// A release or an undo passes through the line by itself, and has no place that could be changed.
		if t.number != number || !t.waits {
			continue
		}
		t.bumped = true
		if t.seen {
			l.moveToFront(t)
		}
		return true
	}
	return false
}

// moveToFront moves a seen ticket to the front, before all grants too. From then on it counts as if it had
// come before the former first, also against the lines of other servers: these go by the time at which the
// first of a line came.
func (l *line) moveToFront(t *Request) {
	t.bumped = false
	first := l.head
	place := bumpedPlace{since: t.since, order: l.orderOf(first)}
	if before, was := l.bumps[t.number]; was {
		place.since = before.since
	}
	if len(l.grants) > 0 {
		place.order = min(place.order, l.grants[0].grant.number)
	}
	if first == t && place.order == l.orderOf(t) {
		return // nobody stands before it
	}
	place.order = max(place.order, 1) - 1 // no grant has the number 0
	if l.bumps == nil {
		l.bumps = make(map[control.Ticket]bumpedPlace)
	}
	l.bumps[t.number] = place
	if first == t {
		return
	}
	if !first.since.IsZero() && first.since.Before(t.since) {
		t.since = first.since.Add(-time.Nanosecond)
	}
	// It is not the first, so that there is one before it. A seen ticket is never firstUnseen.
	t.prev.next = t.next
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, first
	first.prev, l.head = t, t
}

// waitingBefore is how many wait in front of a ticket.
func (l *line) waitingBefore(ticket *Request) (n int) {
	for t := l.head; t != nil && t != ticket; t = t.next {
		if t.waits && !t.removed {
			n++
		}
	}
	for _, p := range l.grants {
		if p.grant.number < l.orderOf(ticket) {
			n++
		}
	}
	return n
}

// explainLines adds to the message of each name that refuses a grant how many requests wait there before it.
func (r *GrantRequest) explainLines() {
	for i := range r.places {
		p := &r.places[i]
		member := r.parts.Parts[p.part].Turn.Grant.Member
		// The part of the record is no member.
		if member < 0 || member >= len(r.Decision.Want) {
			continue
		}
		if m := &r.Decision.Want[member]; m.Outcome == gatehouse.Refused {
			explainAhead(&m.Decision, p.waitingBefore())
		}
	}
}

// waitingBefore is how many wait in front of a grant at this name.
func (p *grantPlace) waitingBefore() (n int) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eachWaiting(func(e control.LineEntry) bool {
		if e.Ticket == p.grant.number {
			return false
		}
		// A grant that does not wait itself is in no list, and ends where it would stand.
		bumped, was := l.bumps[e.Ticket]
		if e.Ticket > p.grant.number && (!was || bumped.order > p.grant.number) {
			return false
		}
		n++
		return true
	})
	return n
}

// explainLine adds to a refusal that is explained how many wait before it.
func (r *Request) explainLine(ahead int) {
	if r.Err == nil {
		explainAhead(r.Decision, ahead)
	}
}

// explainAhead adds to a refusal how many wait before it.
func explainAhead(d *gatehouse.Decision, ahead int) {
	switch {
	case ahead == 0:
	case d.Message == "":
		d.Message = fmt.Sprintf("has %d waiting before you", ahead)
	default:
		d.Message += fmt.Sprintf("; %d waiting before you", ahead)
	}
}
