package cas

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// decideChange serves the transaction on what is known of the record, and says what to ask of the store:
// the change, or whether the record is still the same. There is nothing to ask when nothing changes and the
// record was read during this transaction.
func (s *Store) decideChange(t *transaction) (*RecordChange, error) {
	e := t.entry
	// Another transaction has stored the counted refusals since this call was queued.
	if t.flushing && len(t.turns) == 0 && e.unstored.count == 0 {
		return nil, nil // they went with another change
	}
	now, known := s.clock.storeTime()
	if !known || !t.fresh && s.mustRead(e, t) {
		// No record has this version, so the reply always carries the record, and the time.
		return t.newChange(RecordChange{If: noVersion, Read: true}), nil
	}
	if !e.known { // most likely there is none
		// Offering a change on an absent record saves a read for new names. A record that exists makes it
		// conflict, and comes with the reply.
		e.version, e.record, e.state, e.endedHolds = 0, storedRecord{}, nil, nil
	}
	t.serveTurns(s, e, now)
	if t.awaitRoom() {
		// The first decision has changed the state in memory. It is decoded again, so that the second one
		// starts from the stored record.
		if err := e.decodeState(); err != nil {
			return nil, err
		}
		now, _ = s.clock.storeTime()
		t.serveTurns(s, e, now)
	}
	if len(t.unresolved) > 0 {
		t.write = true // so that no change that is still under way can be made any more
	}
	if t.hasClaim {
		t.write = true // others wait for the claim to end
	}
	switch {
	case t.write:
		return s.buildChange(e, t)
	case t.wantsRoom():
		return t.claimRoom(), e.decodeState()
	// Read during this transaction, and nothing changes: the decisions stand without another exchange.
	case t.fresh:
		s.keepUnstored(t)
		return nil, e.decodeState()
	// The decisions rest on a remembered record. They are given out only when the store confirms that it is
	// the present one.
	default:
		return t.newChange(RecordChange{If: e.version, Read: true}), nil
	}
}

// newChange is a change in the room that the transaction has for one.
func (t *transaction) newChange(c RecordChange) *RecordChange {
	c.Size = len(t.entry.record.encodedState)
	t.changeBuffer = c
	return &t.changeBuffer
}

// mustRead reports whether the record has to be read before anything is decided. One of holds that is not
// there is always read: the fencing token of its first hold is made of the time, which is then no earlier
// than any change of a record that was lost.
func (s *Store) mustRead(e *entry, t *transaction) bool {
	switch {
	// Whether an undo was done stands in the present record only.
	case t.hasPending:
		return true
	// A record was there, or a change of unknown outcome may have made one.
	case !e.known && (e.version != 0 || len(t.unresolved) > 0):
		return true
	case e.known && e.version != 0:
		return false
	}
	return s.traits.Fences || e.key.Kind == gatehouse.Semaphore || e.key.Kind == gatehouse.Lock
}

// noVersion is a version that no record has, so that the record is answered.
const noVersion = 1<<64 - 1

// buildChange makes the change of what was decided.
func (s *Store) buildChange(e *entry, t *transaction) (*RecordChange, error) {
	change := t.newChange(RecordChange{
		If: e.version, Nonce: t.next.recentNonces[0], Wake: t.wake, Begin: t.newHolds, End: t.endedHolds,
		Claim: t.claimDuration(), Server: s.config.Server,
	})
	if t.state == nil && e.version == 0 && len(t.next.heads) == 0 && len(t.unresolved) == 0 && !t.hasPending {
		// A write that leaves nothing, of a record that is absent, needs no write: the store only confirms
		// the absence.
		change.Read = true // there is none, and there is to be none
		return change, nil
	}
	t.next.encodedState = nil
	if t.state != nil {
		t.stateBuffer = control.Encode(t.stateBuffer[:0], t.state)
		t.next.encodedState = t.stateBuffer
	}
	change.Next = t.next.encodeRecord()
	change.Keep = s.keepFor(t.now, t.state, t.next.heads)
	shrinks := len(t.next.encodedState) < len(e.record.encodedState)
	if len(change.Next) <= maxRecord || t.recordFull || shrinks {
		return change, nil
	}
	// Too large: the queue is decided once more, with the commands that make a record grow refused. The
	// second call ends here, as recordFull is set.
	t.recordFull = true
	if err := e.decodeState(); err != nil {
		return nil, err
	}
	t.serveTurns(s, e, t.now)
	return s.buildChange(e, t)
}

// serveTurns makes decisions, and the record and the state that come of them.
func (t *transaction) serveTurns(s *Store, e *entry, now int64) {
	// Zero is no nonce: backends without versions take it for an absent record.
	t.next = e.record.nextRecord(max(1, rand.Uint64()))
	t.now = t.next.decisionTime(now)
	t.timeAhead = max(0, t.now-now)
	if t.now < t.next.asOf {
		// The clock was set back beyond what differs between servers. A delete in what is now the future
		// would answer every new call with "deleted".
		t.next.deletedAt = 0 // by a time that is no more
	}
	t.next.asOf = t.now
	t.state = e.state
	// Refusals that this server counted belong to the state before the queue runs, so that statistics in
	// this very queue show them.
	e.addUnstored(t.state)
	t.refusedBefore, _ = control.Refusals(t.state)
	t.write, t.wake, t.newHolds, t.endedHolds = false, t.wake[:0], t.newHolds[:0], t.endedHolds[:0]
	at := time.Unix(0, t.now)
	// First everything that has ended goes, then the queue runs: what became free is for the oldest in the
	// queue. The waiters at other servers are woken for the same reason.
	tell := t.endHolds(e)
	if t.next.dropEndedHeads(t.now) {
		tell = true
	}
	if t.state != nil && control.ForgetWaiters(t.state, t.next.waitsNoMore(s.config.Server)) {
		tell = true
	}
	// The holds before and after the queue; the difference is what the backend has to begin and end.
	before := t.backendHolds(s)
	t.prepareCommands(s, e, at)
	t.runQueue(at, e.key.Kind)
	if t.updateHead(s.config.Server) {
		tell = true
	}
	t.noteEffects(tell, e.key.Kind, s.config.Server)
	t.write = t.write || t.flushing && e.unstored.count > 0 || !t.write && s.mustStoreRefusals(t)
	if s.traits.ExpiresHolds {
		t.compareHolds(before, t.backendHolds(s))
	}
}

// endHolds ends the holds that the backend has ended.
func (t *transaction) endHolds(e *entry) (changed bool) {
	semaphore, ok := t.state.(*control.Semaphore)
	if !ok {
		return false
	}
	for _, h := range e.endedHolds {
		if semaphore.End(h.Holder, h.Fence) {
			changed = true
		}
	}
	return changed
}

// prepareCommands copies the commands, and fills in what depends on the store.
func (t *transaction) prepareCommands(s *Store, e *entry, now time.Time) {
	t.servedIndex, t.served, t.blockedUntil = t.servedIndex[:0], t.served[:0], t.blockedUntil[:0]
	least := t.leastFence(e)
	for i := range t.turns {
		cmd := &t.commands[i]
		*cmd = *t.turns[i].Command
		cmd.MaxHolders, cmd.MinFence, cmd.Leased = s.config.Holders, least, s.traits.ExpiresHolds
	}
	// Ranks need all copied commands; a command that is not served still stands in front of later ones.
	t.rankTurns()
	for i := range t.turns {
		if d, is := t.answerUnserved(e, i); is {
			d.At = now
			t.turns[i].Decision = d
			continue
		}
		cmd, until := &t.commands[i], int64(0)
		if cmd.Op.Yields() {
			until = t.next.barredUntil(t.waitsSince[i], s.config.Server)
			// A head of another server, or somebody of this server's line who is not in this transaction,
			// goes first.
			if until > 0 || cmd.Ticket == 0 && t.others.nonEmpty {
				cmd.Ahead++
			}
		}
		t.write = t.write || leavesTrace(t.state, cmd)
		t.servedIndex = append(t.servedIndex, i)
		t.served = append(t.served, control.Turn{Command: cmd})
		t.blockedUntil = append(t.blockedUntil, until)
	}
}

// leastFence is the least fencing token of a grant. With a number of the backend's it has some random bits,
// so that two grants that rest on the same number, one of which no client came to know of, are not alike.
func (t *transaction) leastFence(e *entry) uint64 {
	least := uint64(t.now) / uint64(time.Microsecond) // the present is after 1970
	if e.minFence != 0 {
		least = e.minFence + rand.Uint64N(fenceBits)
	}
	// Never below the last token of the record, even if the clock was set back.
	return max(least, t.next.fence+1)
}

// fenceBits is where the random part of a fencing token ends; a backend's numbers are twice as far apart.
const fenceBits = 1 << 15

// answerUnserved answers a turn that is not to be served.
func (t *transaction) answerUnserved(e *entry, i int) (d gatehouse.Decision, is bool) {
	cmd := &t.commands[i]
	// The waiter came before the delete: it must not make the controller again. Only an undo may pass.
	if cmd.Again && cmd.Op != gatehouse.OpUndo && sinceOf(cmd, t.now) <= t.next.deletedAt {
		return gatehouse.Decision{
			Outcome: gatehouse.Deleted, Message: "was deleted while this request waited",
		}, true
	}
	if t.recordFull && canGrow(cmd.Op) {
		return gatehouse.Decision{
			Outcome: gatehouse.Exhausted,
			Message: fmt.Sprintf("has a record of %d bytes, and a shared store takes %d",
				len(e.record.encodedState), maxRecord),
		}, true
	}
	byTurn := func(d *undo, turn int) int { return cmp.Compare(d.turn, turn) }
	// The undos are in the order of their turns.
	j, undoes := slices.BinarySearchFunc(t.undos, i, byTurn)
	if !undoes {
		return d, false
	}
	if t.undos[j].isObsolete(&e.record) {
		return gatehouse.Decision{Outcome: gatehouse.Granted}, true
	}
	// Marked in the next record: the undo and the note of it become one change.
	t.undos[j].markDone(&t.next)
	return d, false
}

// canGrow reports whether an operation can make a record much larger.
func canGrow(op gatehouse.Op) bool {
	return op.Waits() || op == gatehouse.OpReserve || op == gatehouse.OpCharge || op == gatehouse.OpSend
}

// runQueue serves the queue.
func (t *transaction) runQueue(now time.Time, kind gatehouse.Kind) {
	t.state = control.Serve(now, kind, t.state, t.served)
	for j, i := range t.servedIndex {
		d := t.served[j].Decision
		if d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
			if t.blockedUntil[j] > 0 && keepsWaiting(t.turns[i].Command, &d) {
				// Looking again before the head of the other server ends would be refused again.
				d.RetryAfter = max(d.RetryAfter, time.Duration(t.blockedUntil[j]-t.now))
			}
			// The decision was made at the record's time, which is ahead of the clock that the caller waits
			// by.
			d.RetryAfter += time.Duration(t.timeAhead)
		}
		t.turns[i].Decision = d
	}
}

// noteEffects finds out whether anything is to be stored, and whom to tell.
func (t *transaction) noteEffects(tell bool, kind gatehouse.Kind, server uint32) {
	t.write = t.write || tell
	for i := range t.turns {
		cmd, d := t.turns[i].Command, &t.turns[i].Decision
		granted := d.Outcome == gatehouse.Granted
		t.next.fence = max(t.next.fence, d.Fence)
		switch cmd.Op {
		case gatehouse.OpStats, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpValue:
		case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
			t.write = t.write || granted
		case gatehouse.OpWait: // whose last look takes it off the arrivals at a barrier
			// At a barrier the last look of a waiter removes its arrival, which is a change although it was
			// refused.
			t.write = t.write || granted || cmd.Again && cmd.MaxWait == 0 && kind == gatehouse.Barrier
			tell = tell || granted
		default:
			t.write = t.write || granted
			tell = tell || granted
		}
		if cmd.Op == gatehouse.OpDelete && granted {
			t.next.deletedAt = t.now - 1 // who comes in this transaction after it is none of those who waited
		}
	}
	// Without a head no other server waits, and with one its server is woken by name.
	if !tell {
		return
	}
	for _, h := range t.next.heads {
		if h.server != server {
			t.wake = append(t.wake, h.server)
		}
	}
}

// backendHolds are the present holds, if the backend ends them.
func (t *transaction) backendHolds(s *Store) []control.Hold {
	if semaphore, ok := t.state.(*control.Semaphore); ok && s.traits.ExpiresHolds {
		return semaphore.Holds()
	}
	return nil
}

// compareHolds finds out which holds are new or were renewed, and which are held no more.
func (t *transaction) compareHolds(before, after []control.Hold) {
	// A renewed hold keeps its token and needs a new lease, which the tokens alone do not show.
	renewed := map[string]bool{}
	for i := range t.turns {
		cmd := t.turns[i].Command
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
			t.newHolds = append(t.newHolds, h)
		}
	}
	for _, h := range before {
		if !kept[h.Fence] {
			t.endedHolds = append(t.endedHolds, h)
		}
	}
}
