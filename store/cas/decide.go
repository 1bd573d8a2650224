package cas

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// decide serves the flight on what is known of the record, and says what to ask of the store: the change, or
// whether the record is still the same. There is nothing to ask when nothing changes and the record was read
// during this flight.
func (s *Store) decide(f *flight) (*Change, error) {
	e := f.entry
	if f.telling && len(f.turns) == 0 && e.untold.count == 0 {
		return nil, nil // they went with another change
	}
	now, known := s.clock.now()
	if !known || !f.fresh && s.mustRead(e, f) {
		return f.with(Change{If: noVersion, Read: true}), nil
	}
	if !e.known { // most likely there is none
		e.version, e.record, e.state, e.gone = 0, record{}, nil, nil
	}
	f.serve(s, e, now)
	if f.awaitRoom() {
		if err := e.decode(); err != nil {
			return nil, err
		}
		now, _ = s.clock.now()
		f.serve(s, e, now)
	}
	if len(f.open) > 0 {
		f.write = true // so that no change that is still under way can be made any more
	}
	if f.claims {
		f.write = true // others wait for the claim to end
	}
	switch {
	case f.write:
		return s.change(e, f)
	case f.wantsRoom():
		return f.claimRoom(), e.decode()
	case f.fresh:
		s.keepUntold(f)
		return nil, e.decode()
	default:
		return f.with(Change{If: e.version, Read: true}), nil
	}
}

// with is a change in the room that the flight has for one.
func (f *flight) with(c Change) *Change {
	c.Size = len(f.entry.record.form)
	f.room = c
	return &f.room
}

// mustRead reports whether the record has to be read before anything is decided. One of holds that is not
// there is always read: the fencing token of its first hold is made of the time, which is then no earlier
// than any change of a record that was lost.
func (s *Store) mustRead(e *entry, f *flight) bool {
	switch {
	case f.late:
		return true
	case !e.known && (e.version != 0 || len(f.open) > 0):
		return true
	case e.known && e.version != 0:
		return false
	}
	return s.traits.Fences || e.key.Kind == gatehouse.Semaphore || e.key.Kind == gatehouse.Lock
}

// noVersion is a version that no record has, so that the record is answered.
const noVersion = 1<<64 - 1

// change makes the change of what was decided.
func (s *Store) change(e *entry, f *flight) (*Change, error) {
	change := f.with(Change{
		If: e.version, Nonce: f.next.recent[0], Wake: f.wake, Begin: f.begin, End: f.end,
		Claim: f.claim(), Server: s.config.Server,
	})
	if f.state == nil && e.version == 0 && len(f.next.heads) == 0 && len(f.open) == 0 && !f.late {
		change.Read = true // there is none, and there is to be none
		return change, nil
	}
	f.next.form = nil
	if f.state != nil {
		f.form = control.Encode(f.form[:0], f.state)
		f.next.form = f.form
	}
	change.Next = f.next.encode()
	change.Keep = s.keep(f.now, f.state, f.next.heads)
	if len(change.Next) <= maxRecord || f.full || len(f.next.form) < len(e.record.form) {
		return change, nil
	}
	f.full = true
	if err := e.decode(); err != nil {
		return nil, err
	}
	f.serve(s, e, f.now)
	return s.change(e, f)
}

// grave is how long the record of a controller that was deleted stays. Those of other servers who wait hear
// of it by that; and a change that has been under way since before the delete finds it in its way.
const grave = time.Minute

// keep is for how long a record that was made at an instant is worth something.
func (s *Store) keep(now int64, state control.State, heads []head) time.Duration {
	worth := int64(grave)
	if state != nil {
		expiry := state.Expiry()
		if semaphore, ok := state.(*control.Semaphore); ok && s.traits.Leases {
			expiry = lastEnd(now, semaphore)
		}
		if expiry.Sub(time.Unix(0, now)) >= gatehouse.MaxDuration {
			return gatehouse.Forever
		}
		linger := int64(s.config.Linger)
		switch {
		case control.Absent(state):
			linger = max(linger, int64(grave))
		case control.HasLimit(state):
			linger = int64(s.limits)
		}
		worth = max(expiry.UnixNano()-now, 0) + linger
		if created := control.Created(state); !created.IsZero() {
			worth = max(worth, created.UnixNano()-now+int64(s.config.Keep))
		}
	}
	for _, h := range heads {
		worth = max(worth, h.until-now)
	}
	return time.Duration(worth)
}

// lastEnd is when the last of the holds that the backend ends will have ended if none is renewed.
func lastEnd(now int64, s *control.Semaphore) time.Time {
	longest := time.Duration(0)
	for _, h := range s.Holds() {
		if h.Expires == 0 {
			return time.Unix(0, math.MaxInt64)
		}
		longest = max(longest, h.Expires)
	}
	return time.Unix(0, now).Add(longest)
}

// serve makes decisions, and the record and the state that come of them.
func (f *flight) serve(s *Store, e *entry, now int64) {
	f.next = e.record.next(max(1, rand.Uint64()))
	f.now = f.next.at(now)
	f.still = max(0, f.now-now)
	if f.now < f.next.asOf {
		f.next.deleted = 0 // by a time that is no more
	}
	f.next.asOf = f.now
	f.state = e.state
	e.countUntold(f.state)
	f.refused, _ = control.Refusals(f.state)
	f.write, f.wake, f.begin, f.end = false, f.wake[:0], f.begin[:0], f.end[:0]
	at := time.Unix(0, f.now)
	tell := f.endHolds(e)
	if f.next.endHeads(f.now) {
		tell = true
	}
	if f.state != nil && control.ForgetWaiters(f.state, f.next.gone(s.config.Server)) {
		tell = true
	}
	before := f.holds(s)
	f.prepare(s, e, at)
	f.run(at, e.key.Kind)
	if f.stand(s.config.Server) {
		tell = true
	}
	f.note(tell, e.key.Kind, s.config.Server)
	f.write = f.write || f.telling && e.untold.count > 0 || !f.write && s.mustTell(f)
	if s.traits.Leases {
		f.compare(before, f.holds(s))
	}
}

// endHolds ends the holds that the backend has ended.
func (f *flight) endHolds(e *entry) (changed bool) {
	semaphore, ok := f.state.(*control.Semaphore)
	if !ok {
		return false
	}
	for _, h := range e.gone {
		if semaphore.End(h.Holder, h.Fence) {
			changed = true
		}
	}
	return changed
}

// prepare copies the commands, and fills in what depends on the store.
func (f *flight) prepare(s *Store, e *entry, now time.Time) {
	f.live, f.served, f.blocked = f.live[:0], f.served[:0], f.blocked[:0]
	least := f.leastFence(e)
	for i := range f.turns {
		cmd := &f.commands[i]
		*cmd = *f.turns[i].Command
		cmd.MaxHolders, cmd.MinFence, cmd.Leased = s.config.Holders, least, s.traits.Leases
	}
	f.rank()
	for i := range f.turns {
		if d, is := f.without(e, i); is {
			d.At = now
			f.turns[i].Decision = d
			continue
		}
		cmd, until := &f.commands[i], int64(0)
		if cmd.Op.Yields() {
			until = f.next.barred(f.ranks[i], s.config.Server)
			if until > 0 || cmd.Ticket == 0 && f.rest.some {
				cmd.Ahead++
			}
		}
		f.write = f.write || alters(f.state, cmd)
		f.live = append(f.live, i)
		f.served = append(f.served, control.Turn{Command: cmd})
		f.blocked = append(f.blocked, until)
	}
}

// leastFence is the least fencing token of a grant. With a number of the backend's it has some random bits,
// so that two grants that rest on the same number, one of which nobody came to know of, are not alike.
func (f *flight) leastFence(e *entry) uint64 {
	least := uint64(f.now) / uint64(time.Microsecond) // #nosec G115 -- the present is after 1970
	if e.minFence != 0 {
		least = e.minFence + rand.Uint64N(fenceBits)
	}
	return max(least, f.next.fence+1)
}

// fenceBits is where the random part of a fencing token ends; a backend's numbers are twice as far apart.
const fenceBits = 1 << 15

// without answers a turn that is not to be served.
func (f *flight) without(e *entry, i int) (d gatehouse.Decision, is bool) {
	cmd := &f.commands[i]
	if cmd.Again && cmd.Op != gatehouse.OpUndo && sinceOf(cmd, f.now) <= f.next.deleted {
		return gatehouse.Decision{
			Outcome: gatehouse.Deleted, Message: "was deleted while this request waited",
		}, true
	}
	if f.full && grows(cmd.Op) {
		return gatehouse.Decision{
			Outcome: gatehouse.Exhausted,
			Message: fmt.Sprintf("has a record of %d bytes, and a shared store takes %d",
				len(e.record.form), maxRecord),
		}, true
	}
	byTurn := func(d *debt, turn int) int { return cmp.Compare(d.turn, turn) }
	j, undoes := slices.BinarySearchFunc(f.owed, i, byTurn)
	if !undoes {
		return d, false
	}
	if f.owed[j].paid(&e.record) {
		return gatehouse.Decision{Outcome: gatehouse.Granted}, true
	}
	f.owed[j].pay(&f.next)
	return d, false
}

// grows reports whether an operation can make a record much larger.
func grows(op gatehouse.Op) bool {
	return op.Waits() || op == gatehouse.OpReserve || op == gatehouse.OpCharge || op == gatehouse.OpSend
}

// run serves the queue.
func (f *flight) run(now time.Time, kind gatehouse.Kind) {
	f.state = control.Serve(now, kind, f.state, f.served)
	for j, i := range f.live {
		d := f.served[j].Decision
		if d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
			if f.blocked[j] > 0 && stays(f.turns[i].Command, &d) {
				d.RetryAfter = max(d.RetryAfter, time.Duration(f.blocked[j]-f.now))
			}
			d.RetryAfter += time.Duration(f.still)
		}
		f.turns[i].Decision = d
	}
}

// note finds out whether anything is to be stored, and whom to tell.
func (f *flight) note(tell bool, kind gatehouse.Kind, server uint32) {
	f.write = f.write || tell
	for i := range f.turns {
		cmd, d := f.turns[i].Command, &f.turns[i].Decision
		granted := d.Outcome == gatehouse.Granted
		f.next.fence = max(f.next.fence, d.Fence)
		switch cmd.Op {
		case gatehouse.OpStats, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpValue:
		case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
			f.write = f.write || granted
		case gatehouse.OpWait: // whose last look takes it off the arrivals at a barrier
			f.write = f.write || granted || cmd.Again && cmd.MaxWait == 0 && kind == gatehouse.Barrier
			tell = tell || granted
		default:
			f.write = f.write || granted
			tell = tell || granted
		}
		if cmd.Op == gatehouse.OpDelete && granted {
			f.next.deleted = f.now - 1 // who comes in this flight after it is none of those who waited
		}
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
		cmd := f.turns[i].Command
		if cmd.Op == gatehouse.OpRenew || cmd.Op == gatehouse.OpAcquire && cmd.Extend {
			renewed[cmd.Holder] = true
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
