package swap

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// decide serves the flight on what is known of the record, and says what to ask of the store: the change, or
// whether the record is still the same. There is nothing to ask when nothing changes and the record was read
// during this flight.
func (s *Store) decide(e *entry, f *flight, fresh bool) (*Change, error) {
	now, known := s.clock.now()
	if !known || !e.known && (e.version != 0 || fresh || len(f.open) > 0) ||
		s.traits.Fences && !fresh && (!e.known || e.version == 0) {
		return &Change{If: noVersion, Read: true}, nil
	}
	if !e.known { // most likely there is none
		e.version, e.record, e.state, e.gone = 0, record{}, nil, nil
	}
	f.serve(s, e, now)
	if !f.write {
		if fresh {
			e.restore()
			return nil, nil
		}
		return &Change{If: e.version, Read: true}, nil
	}
	return s.change(e, f)
}

// noVersion is a version that no record has, so that the record is answered.
const noVersion = 1<<64 - 1

// change makes the change of what was decided.
func (s *Store) change(e *entry, f *flight) (*Change, error) {
	change := &Change{If: e.version, Nonce: f.next.recent[0], Wake: f.wake, Begin: f.begin, End: f.end}
	if f.state == nil && len(f.next.heads) == 0 {
		if e.version == 0 {
			change.Read = true // there is none, and there is to be none
		}
		return change, nil
	}
	f.next.form = nil
	if f.state != nil {
		f.next.form = control.Encode(nil, f.state)
	}
	change.Next = f.next.encode(make([]byte, 0, len(f.next.form)+128))
	change.Keep = s.keep(f)
	if len(change.Next) > maxRecord && len(f.next.form) >= len(e.record.form) {
		e.known = false
		return nil, gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: its record would have %d bytes, want at most %d in a shared store", e.key, len(change.Next),
			maxRecord)
	}
	return change, nil
}

// keep is for how long the new record is worth something.
func (s *Store) keep(f *flight) time.Duration {
	var worth int64
	if f.state != nil {
		expiry := f.state.Expiry()
		if expiry.Sub(time.Unix(0, f.now)) >= gatehouse.MaxDuration {
			return gatehouse.Forever
		}
		worth = expiry.UnixNano() - f.now
	}
	for _, h := range f.next.heads {
		worth = max(worth, h.until-f.now)
	}
	return time.Duration(max(worth, 0)) + s.config.Linger
}

// serve makes decisions, and the record and the state that come of them.
func (f *flight) serve(s *Store, e *entry, now int64) {
	f.next = e.record.next(max(1, rand.Uint64()))
	f.now = f.next.at(now)
	f.next.asOf = f.now
	f.state = e.state
	f.write, f.wake, f.begin, f.end = false, f.wake[:0], f.begin[:0], f.end[:0]
	at := time.Unix(0, f.now)
	f.endHolds(e)
	headsChanged := f.next.endHeads(f.now)
	if f.state != nil && control.Left(f.state, f.next.gone(s.config.Server)) {
		headsChanged = true
	}
	before := f.holds(s)
	f.prepare(s, e, at)
	f.run(at, e.key.Kind)
	if f.next.line(f, s.config.Server) {
		headsChanged = true
	}
	f.note(headsChanged, s.config.Server)
	if s.traits.Leases {
		f.compare(before, f.holds(s))
	}
}

// endHolds ends the holds that the backend has ended.
func (f *flight) endHolds(e *entry) {
	semaphore, ok := f.state.(*control.Semaphore)
	if !ok {
		return
	}
	for _, h := range e.gone {
		if semaphore.End(h.Holder, h.Fence) {
			f.write = true
		}
	}
}

// prepare copies the commands, and fills in what depends on the store.
func (f *flight) prepare(s *Store, e *entry, now time.Time) {
	f.live, f.served, f.blocked = f.live[:0], f.served[:0], f.blocked[:0]
	for i := range f.turns {
		cmd := &f.commands[i]
		*cmd = *f.turns[i].Command
		cmd.MaxHolders, cmd.MinFence, cmd.Leased = s.config.Holders, e.minFence, s.traits.Leases
		since := f.now
		if !cmd.Since.IsZero() {
			since = cmd.Since.UnixNano()
		}
		until := int64(0)
		if cmd.Op.Yields() {
			until = f.next.barred(since, s.config.Server)
		}
		if until > 0 {
			cmd.Ahead++
		}
		if cmd.Again && cmd.Op != gatehouse.OpUndo && since <= f.next.deleted {
			f.turns[i].Decision = gatehouse.Decision{
				Outcome: gatehouse.Deleted, At: now, Message: "was deleted while this request waited",
			}
			continue
		}
		f.live = append(f.live, i)
		f.served = append(f.served, control.Turn{Command: cmd})
		f.blocked = append(f.blocked, until)
	}
}

// run serves the queue.
func (f *flight) run(now time.Time, kind gatehouse.Kind) {
	f.state = control.Serve(now, kind, f.state, f.served)
	for j, i := range f.live {
		d := f.served[j].Decision
		if f.blocked[j] > 0 && stays(f.turns[i].Command, &d) && d.RetryAfter != gatehouse.Forever {
			d.RetryAfter = max(d.RetryAfter, time.Duration(f.blocked[j]-f.now))
		}
		f.turns[i].Decision = d
	}
}

// stays reports whether a command goes on waiting.
func stays(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Refused && cmd.Op.Waits() && cmd.MaxWait != 0
}

// note finds out whether anything is to be stored, and whom to tell.
func (f *flight) note(headsChanged bool, server uint32) {
	tell := headsChanged
	f.write = f.write || headsChanged
	for i := range f.turns {
		cmd, d := f.turns[i].Command, &f.turns[i].Decision
		granted := d.Outcome == gatehouse.Granted
		switch cmd.Op {
		case gatehouse.OpStats, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpValue:
		case gatehouse.OpAcquire, gatehouse.OpReserve:
			f.write = f.write || granted || !cmd.Again
		case gatehouse.OpWait:
			f.write = f.write || granted || !cmd.Again
			tell = tell || granted
		default:
			f.write = f.write || granted
			tell = tell || granted
		}
		if cmd.Op == gatehouse.OpDelete && granted {
			f.next.deleted = f.now
		}
	}
	if f.next.deleted != 0 && !f.next.owes(server) {
		f.next.deleted = 0
	}
	if !tell {
		return
	}
	for _, h := range f.next.heads {
		if h.server != server {
			f.wake = append(f.wake, h.server)
		}
	}
}

// owes reports whether somebody at another server has not heard of the last delete.
func (r *record) owes(server uint32) bool {
	return slices.ContainsFunc(r.heads, func(h head) bool {
		return h.server != server && h.since <= r.deleted
	})
}

// endHeads drops the heads whose servers have not looked for too long.
func (r *record) endHeads(now int64) (changed bool) {
	n := len(r.heads)
	r.heads = slices.DeleteFunc(r.heads, func(h head) bool { return h.until <= now })
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

// line notes who of this server is the first to wait now. It reports whether that changes anything for
// others, or the lease of the old one has to be prolonged.
func (r *record) line(f *flight, server uint32) (changed bool) {
	i := r.head(server)
	var first head
	seen := false // the old head was in the queue
	for j := range f.turns {
		cmd := f.turns[j].Command
		if cmd.Ticket == 0 {
			continue
		}
		seen = seen || i >= 0 && cmd.Ticket == r.heads[i].ticket
		if !stays(cmd, &f.turns[j].Decision) {
			continue
		}
		since := f.now
		if !cmd.Since.IsZero() {
			since = cmd.Since.UnixNano()
		}
		if first.server == 0 || since < first.since {
			first = head{server: server, ticket: cmd.Ticket, since: since, until: f.now + int64(headLease)}
		}
	}
	switch {
	case i < 0 && first.server == 0:
		return false
	case i < 0:
		r.heads = append(r.heads, first)
		f.write = true
		return false // nobody else goes because of it
	case first.server == 0 && !seen:
		return false
	case first.server == 0:
		r.heads = slices.Delete(r.heads, i, i+1)
		return true
	case !seen && r.heads[i].since <= first.since:
		return false // the old one still waits
	}
	old := r.heads[i]
	if old.ticket == first.ticket {
		if old.until-f.now > int64(headLease)*2/3 {
			return false
		}
		f.write = true
	}
	r.heads[i] = first
	return old.ticket != first.ticket
}

// holds are the present holds, if the backend ends them.
func (f *flight) holds(s *Store) []control.Hold {
	if semaphore, ok := f.state.(*control.Semaphore); ok && s.traits.Leases {
		return semaphore.Holds()
	}
	return nil
}

// compare finds out which holds are new or were renewed, and which are held no more.
func (f *flight) compare(before, after []control.Hold) {
	renewed := map[string]bool{}
	for i := range f.turns {
		if f.turns[i].Command.Op == gatehouse.OpRenew {
			renewed[f.turns[i].Command.Holder] = true
		}
	}
	old := make(map[uint64]bool, len(before))
	for _, h := range before {
		old[h.Fence] = true
	}
	kept := make(map[uint64]bool, len(after))
	for _, h := range after {
		kept[h.Fence] = true
		if !old[h.Fence] || renewed[h.Holder] {
			f.begin = append(f.begin, h)
		}
	}
	for _, h := range before {
		if !kept[h.Fence] {
			f.end = append(f.end, h)
		}
	}
}
