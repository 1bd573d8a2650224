package cas

import (
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is the order among servers: each notes the first of its line in the record, its head, and the
// oldest head goes first.

// rankTurns finds out since when each turn counts as waiting, against those of other servers: since it came,
// or since a request behind it in this server's line came, if that was earlier. Otherwise that request would
// hold up other servers, and they would hold up the turn in front of it.
func (d *decider) rankTurns() {
	oldest := int64(math.MaxInt64)
	if d.in.rest.nonEmpty {
		oldest = d.in.rest.first.since
	}
	// From the back, so that each turn knows the oldest behind it.
	for i := len(d.in.turns) - 1; i >= 0; i-- {
		turn := &d.in.turns[i]
		d.buffers.waitsSince[i] = sinceOf(turn, d.out.now)
		if turn.Ticket == 0 || !turn.Op.Waits() {
			continue
		}
		// A joint change is looked at by itself: the rest of the line may stand in front of it.
		if d.in.joint && d.in.rest.first.ticket < turn.Ticket {
			continue
		}
		d.buffers.waitsSince[i] = min(d.buffers.waitsSince[i], oldest)
		if turn.MaxWait != 0 {
			oldest = d.buffers.waitsSince[i]
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
func (r *storedRecord) waitsNoMore(server uint32) func(control.Ticket) bool {
	return func(t control.Ticket) bool {
		of := serverOf(t)
		return of != server && r.headIndex(of) < 0
	}
}

// serverOf is the server whose ticket it is.
func serverOf(t control.Ticket) uint32 { return uint32(t >> 32) } // the upper half

// FirstTicket is what the tickets of a server begin with.
func FirstTicket(server uint32) control.Ticket { return control.Ticket(server) << 32 }

// barredUntil is until when, at most, requests at other servers go before a request that came at since; 0 if
// there are none. Those of servers that have gone do not.
func (r *storedRecord) barredUntil(since int64, server uint32, gone absences) (until int64) {
	for i := range r.heads {
		h := &r.heads[i]
		if h.server != server && !h.nonBlocking && h.cameBefore(since, server) && !gone.left(h) {
			until = max(until, h.until)
		}
	}
	return until
}

// updateHead notes who of this server is the first to wait now. It reports whether that may matter to others.
func (d *decider) updateHead() (changed bool) {
	out, server := d.out, d.in.server.number
	i := out.next.headIndex(server)
	first, waiting, seen := d.firstWaiting(i)
	switch {
	case i < 0 && first.ticket == 0:
		return false
	case i < 0:
		out.next.heads = append(out.next.heads, d.newHead(first, waiting))
		out.write = true
		return false // no other waiter goes because of it
	case !seen && !d.in.rest.known && (first.ticket == 0 || !first.headsBefore(out.next.heads[i].waiter())):
		return false // the old one still waits, as far as is known
	case first.ticket == 0:
		out.next.heads = slices.Delete(out.next.heads, i, i+1)
		return true
	}
	old := out.next.heads[i]
	// A head that still names the first waiter is renewed once a third of its time is over, so that most
	// looks write nothing.
	// Another number of waiters is told after half a second, so that a list elsewhere is a second old at
	// most.
	renewedAt := int64(headLifetime) * 2 / 3
	head := d.newHead(first, waiting)
	if head.waiting != old.waiting {
		renewedAt = int64(headLifetime) * 5 / 6
	}
	same := old.ticket == first.ticket && old.nonBlocking == first.nonBlocking
	if same && old.until-out.now > renewedAt {
		return false
	}
	out.next.heads[i] = head
	out.write = true
	return old.ticket != first.ticket || first.nonBlocking && !old.nonBlocking
}

func (d *decider) newHead(w waiter, waiting int) lineHead {
	return lineHead{
		server: d.in.server.number, ticket: w.ticket, since: w.since, nonBlocking: w.nonBlocking,
		until: d.out.now + int64(headLifetime), waiting: int32(min(waiting, maxTold)), // far below 2 billion
	}
}

// firstWaiting is the first request of this server that waits after this queue, how many do, and whether the
// present head, if there is one, was looked at.
func (d *decider) firstWaiting(head int) (first waiter, waiting int, seen bool) {
	first, waiting = d.in.rest.firstNonBlocking, d.in.rest.count
	if d.in.rest.nonEmpty {
		first = d.in.rest.first
	}
	for j := range d.in.turns {
		turn := &d.in.turns[j]
		if turn.Ticket == 0 {
			continue
		}
		// The present head is in this queue: what became of it is known, so the head may be replaced or
		// dropped.
		seen = seen || head >= 0 && turn.Ticket == d.out.next.heads[head].ticket
		one := waiter{since: sinceOf(turn, d.out.now), ticket: turn.Ticket, nonBlocking: d.in.nonBlocking}
		waits := d.waits || !d.in.joint && control.KeepsWaiting(turn.Command, &d.out.decisions[j])
		if waits {
			waiting++
		}
		if waits && (first.ticket == 0 || one.headsBefore(first)) {
			first = one
		}
	}
	return first, waiting, seen
}

// otherLines are the heads of other servers, for a list of waiters. A head is renewed about once a second,
// and says which request of its line is the first and how many there are.
func (r *storedRecord) otherLines(server uint32, now int64) (lines []gatehouse.OtherLine) {
	for i := range r.heads {
		h := &r.heads[i]
		if h.server == server || h.until <= now {
			continue
		}
		// A head lasts for headLifetime from when it was written.
		lines = append(lines, gatehouse.OtherLine{
			Server: h.server, Waiting: int(h.waiting), WaitingFor: max(0, time.Duration(now-h.since)),
			Seen: max(0, headLifetime-time.Duration(h.until-now)),
		})
	}
	return lines
}
