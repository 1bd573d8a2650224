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
	for t := l.head; t != nil && len(line.Entries) < line.From+most; t = t.next {
		if t.waits {
			line.Entries = append(line.Entries, l.entryOf(t))
		}
	}
	return line
}

// entryOf is what a list tells of a request that waits.
func (l *line) entryOf(r *Request) control.LineEntry {
	e := control.LineEntry{
		Ticket: r.number, Owner: r.Command.Owner, Cost: r.Command.Cost, Expires: r.Command.Expires,
		Since: r.since,
	}
	if came, bumped := l.bumpedSince[r.number]; bumped {
		e.Since = came
	}
	return e
}

// indexBehind is how many of those who wait a list leaves out that begins behind a ticket. If that is gone,
// it begins with the first that came after it.
func (l *line) indexBehind(after control.Ticket) int {
	index, later := 0, -1
	for t := l.head; t != nil && after != 0; t = t.next {
		switch {
		case !t.waits:
			continue
		case t.number == after:
			return index + 1
		case t.number > after && later < 0:
			later = index
		}
		index++
	}
	if later < 0 && after != 0 {
		return index
	}
	return max(later, 0)
}

// bumpTicket puts the ticket with a number in front of all others, and reports whether it waits here. One
// that the store has not seen yet goes there once it has.
func (l *line) bumpTicket(number control.Ticket) bool {
	for t := l.head; t != nil; t = t.next {
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

// moveToFront moves a seen ticket to the front. From then on it counts as if it had come before the former
// first, also against the lines of other servers: these go by the time at which the first of a line came.
func (l *line) moveToFront(t *Request) {
	t.bumped = false
	first := l.head
	if first == t {
		return
	}
	if first.isKnown() && first.since.Before(t.since) {
		if l.bumpedSince == nil {
			l.bumpedSince = make(map[control.Ticket]time.Time)
		}
		if _, before := l.bumpedSince[t.number]; !before {
			l.bumpedSince[t.number] = t.since
		}
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
	return n
}

// explainLine adds to a refusal that is explained how many wait before it.
func (r *Request) explainLine(ahead int) {
	d := r.Decision
	switch {
	case ahead == 0 || r.Err != nil:
	case d.Message == "":
		d.Message = fmt.Sprintf("has %d waiting before you", ahead)
	default:
		d.Message += fmt.Sprintf("; %d waiting before you", ahead)
	}
}
