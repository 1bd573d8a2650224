package cas

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// This file is the order among servers: each notes the first of its line in the record, its head, and the
// oldest head goes first.

// stays reports whether a command goes on waiting.
func stays(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Refused && cmd.Op.Waits() && cmd.MaxWait != 0
}

// rank finds out since when each turn counts as waiting, against those of other servers: since it came, or
// since somebody behind it in this server's line came, if that was earlier. Otherwise that one would keep
// others back, and they would keep back the one in front of it.
func (f *flight) rank() {
	f.ranks = append(f.ranks[:0], make([]int64, len(f.turns))...)
	oldest := f.rest.since()
	for i := len(f.turns) - 1; i >= 0; i-- {
		cmd := f.turns[i].Command
		f.ranks[i] = sinceOf(cmd, f.now)
		if cmd.Ticket == 0 || !cmd.Op.Waits() {
			continue
		}
		f.ranks[i] = min(f.ranks[i], oldest)
		if cmd.MaxWait != 0 {
			oldest = f.ranks[i]
		}
	}
}

// endHeads drops the heads whose servers have not looked for too long, and those from before the time was set
// back.
func (r *record) endHeads(now int64) (changed bool) {
	n := len(r.heads)
	r.heads = slices.DeleteFunc(r.heads, func(h head) bool {
		return h.until <= now || h.until > now+int64(headLease)
	})
	return len(r.heads) != n
}

// gone says of a ticket whether its server waits no more: it is not this one and has no head.
func (r *record) gone(server uint32) func(gatehouse.Ticket) bool {
	return func(t gatehouse.Ticket) bool {
		of := ServerOf(t)
		return of != server && r.head(of) < 0
	}
}

// ServerOf is the server whose ticket it is.
func ServerOf(t gatehouse.Ticket) uint32 { return uint32(t >> 32) } // #nosec G115 -- the upper half

// FirstTicket is what the tickets of a server begin with.
func FirstTicket(server uint32) gatehouse.Ticket { return gatehouse.Ticket(server) << 32 }

// barred is until when, at most, others at other servers stand before who came at since; 0 when nobody does.
func (r *record) barred(since int64, server uint32) (until int64) {
	for i := range r.heads {
		h := &r.heads[i]
		if h.server != server && h.before(since, server) {
			until = max(until, h.until)
		}
	}
	return until
}

// stand notes who of this server is the first to wait now. It reports whether that may matter to others.
func (f *flight) stand(server uint32) (changed bool) {
	i := f.next.head(server)
	first, seen := f.first(i)
	switch {
	case i < 0 && first.ticket == 0:
		return false
	case i < 0:
		f.next.heads = append(f.next.heads, f.headOf(server, first))
		f.write = true
		return false // nobody else goes because of it
	case !seen && !f.rest.known && (first.ticket == 0 || f.next.heads[i].since <= first.since):
		return false // the old one still waits, as far as is known
	case first.ticket == 0:
		f.next.heads = slices.Delete(f.next.heads, i, i+1)
		return true
	}
	old := f.next.heads[i]
	if old.ticket == first.ticket && old.until-f.now > int64(headLease)*2/3 {
		return false
	}
	f.next.heads[i] = f.headOf(server, first)
	f.write = true
	return old.ticket != first.ticket
}

func (f *flight) headOf(server uint32, w waiter) head {
	return head{server: server, ticket: w.ticket, since: w.since, until: f.now + int64(headLease)}
}

// first is the first of this server who waits after this flight, and whether the present head, if there is
// one, was looked at.
func (f *flight) first(head int) (first waiter, seen bool) {
	if f.rest.some {
		first = f.rest.first
	}
	for j := range f.turns {
		cmd := f.turns[j].Command
		if cmd.Ticket == 0 {
			continue
		}
		seen = seen || head >= 0 && cmd.Ticket == f.next.heads[head].ticket
		one := waiter{since: sinceOf(cmd, f.now), ticket: cmd.Ticket}
		if stays(cmd, &f.turns[j].Decision) && (first.ticket == 0 || one.compare(first) < 0) {
			first = one
		}
	}
	return first, seen
}
