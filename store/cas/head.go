package cas

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// This file is the order among servers: each notes the first of its line in the record, its head, and the
// oldest head goes first.

// keepsWaiting reports whether a command goes on waiting.
func keepsWaiting(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Refused && cmd.Op.Waits() && cmd.MaxWait != 0
}

// rankTurns finds out since when each turn counts as waiting, against those of other servers: since it
// came, or since somebody behind it in this server's line came, if that was earlier. Otherwise that one
// would keep others back, and they would keep back the one in front of it.
func (t *transaction) rankTurns() {
	t.waitsSince = append(t.waitsSince[:0], make([]int64, len(t.turns))...)
	oldest := t.others.firstSince()
	// From the back, so that each turn knows the oldest behind it.
	for i := len(t.turns) - 1; i >= 0; i-- {
		cmd := t.turns[i].Command
		t.waitsSince[i] = sinceOf(cmd, t.now)
		if cmd.Ticket == 0 || !cmd.Op.Waits() {
			continue
		}
		t.waitsSince[i] = min(t.waitsSince[i], oldest)
		if cmd.MaxWait != 0 {
			oldest = t.waitsSince[i]
		}
	}
}

// dropEndedHeads drops the heads whose servers have not looked for too long, and those from before the time
// was set back.
func (r *storedRecord) dropEndedHeads(now int64) (changed bool) {
	n := len(r.heads)
	r.heads = slices.DeleteFunc(r.heads, func(h lineHead) bool {
		return h.until <= now || h.until > now+int64(headLifetime)
	})
	return len(r.heads) != n
}

// waitsNoMore says of a ticket whether its server waits no more: it is not this one and has no head.
func (r *storedRecord) waitsNoMore(server uint32) func(gatehouse.Ticket) bool {
	return func(t gatehouse.Ticket) bool {
		of := ServerOf(t)
		return of != server && r.headIndex(of) < 0
	}
}

// ServerOf is the server whose ticket it is.
func ServerOf(t gatehouse.Ticket) uint32 { return uint32(t >> 32) } // the upper half

// FirstTicket is what the tickets of a server begin with.
func FirstTicket(server uint32) gatehouse.Ticket { return gatehouse.Ticket(server) << 32 }

// barredUntil is until when, at most, others at other servers stand before who came at since; 0 when nobody
// does.
func (r *storedRecord) barredUntil(since int64, server uint32) (until int64) {
	for i := range r.heads {
		h := &r.heads[i]
		if h.server != server && h.cameBefore(since, server) {
			until = max(until, h.until)
		}
	}
	return until
}

// updateHead notes who of this server is the first to wait now. It reports whether that may matter to others.
func (t *transaction) updateHead(server uint32) (changed bool) {
	i := t.next.headIndex(server)
	first, seen := t.firstWaiting(i)
	switch {
	case i < 0 && first.ticket == 0:
		return false
	case i < 0:
		t.next.heads = append(t.next.heads, t.newHead(server, first))
		t.write = true
		return false // no other waiter goes because of it
	case !seen && !t.others.known && (first.ticket == 0 || t.next.heads[i].since <= first.since):
		return false // the old one still waits, as far as is known
	case first.ticket == 0:
		t.next.heads = slices.Delete(t.next.heads, i, i+1)
		return true
	}
	old := t.next.heads[i]
	// A head that still names the first waiter is renewed once a third of its time is over, so that most
	// looks write nothing.
	if old.ticket == first.ticket && old.until-t.now > int64(headLifetime)*2/3 {
		return false
	}
	t.next.heads[i] = t.newHead(server, first)
	t.write = true
	return old.ticket != first.ticket
}

func (t *transaction) newHead(server uint32, w waiter) lineHead {
	return lineHead{server: server, ticket: w.ticket, since: w.since, until: t.now + int64(headLifetime)}
}

// firstWaiting is the first of this server who waits after this transaction, and whether the present head,
// if there is one, was looked at.
func (t *transaction) firstWaiting(head int) (first waiter, seen bool) {
	if t.others.nonEmpty {
		first = t.others.first
	}
	for j := range t.turns {
		cmd := t.turns[j].Command
		if cmd.Ticket == 0 {
			continue
		}
		// The present head is in this transaction: what became of it is known, so the head may be replaced
		// or dropped.
		seen = seen || head >= 0 && cmd.Ticket == t.next.heads[head].ticket
		one := waiter{since: sinceOf(cmd, t.now), ticket: cmd.Ticket}
		if keepsWaiting(cmd, &t.turns[j].Decision) && (first.ticket == 0 || one.compare(first) < 0) {
			first = one
		}
	}
	return first, seen
}
