package cas

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/backoff"
)

// This file is what a joint transaction asks of the store, and how it reads the replies.

// planExchange finds out what to ask of the store. The transaction is over if that is nothing.
func (t *jointTransaction) planExchange() (over bool, err error) {
	s := t.store
	// First: to decide again on a change that was made would take twice.
	if done, err := t.resolveAttempts(); done || err != nil {
		return true, err
	}
	asks, err := t.decideChanges()
	if !asks || err != nil {
		return true, err
	}
	if t.reads {
		s.counters.reads.Add(1)
	} else {
		s.counters.swaps.Add(1)
	}
	t.sentAt = s.clock.elapsedTime()
	return false, nil
}

// decideChanges decides on what is known of the records, and sets what to ask of the store.
func (t *jointTransaction) decideChanges() (asks bool, err error) {
	now, known := t.store.clock.storeTime()
	if !known || !t.fresh && t.mustRead() {
		t.readRecords(!known)
		return true, nil
	}
	for i := range t.parts {
		k := &t.parts[i].entry.known
		if !k.current {
			k.assumeAbsent()
		}
	}
	t.decideTurns(now)
	// So that no change that is still under way can be made any more; and others wait for a claim to end.
	mustWrite, write := len(t.unresolved) > 0 || t.claimHeld, false
	for i := range t.parts {
		u := &t.parts[i].update
		u.write = u.write || mustWrite
		write = write || u.write
	}
	if !write && t.fresh {
		t.keepUnstored(true)
		return false, t.decodeStates()
	}
	return true, t.buildChanges()
}

// mustReadPart reports whether the record of a part has to be read before anything is decided, for the
// reasons that a [transaction] has.
func (t *jointTransaction) mustReadPart(p *jointPart) bool {
	k := &p.entry.known
	switch {
	case t.pending:
		return true
	case !k.current && (k.version != 0 || len(t.unresolved) > 0):
		return true
	case k.current && k.version != 0:
		return false
	}
	return t.store.traits.Fences || k.kind == gatehouse.Semaphore || k.kind == gatehouse.Lock
}

func (t *jointTransaction) mustRead() bool {
	for i := range t.parts {
		if t.mustReadPart(&t.parts[i]) {
			return true
		}
	}
	return false
}

// readRecords asks for the records that have to be read, and whether the others are still the same: after the
// reply all are known as of one instant.
func (t *jointTransaction) readRecords(all bool) {
	t.reads = true
	for i := range t.parts {
		p := &t.parts[i]
		version := p.entry.known.version
		if all || t.mustReadPart(p) || !p.entry.known.current {
			version = noVersion
		}
		t.setChange(i, RecordChange{If: version, Read: true})
	}
}

// setChange sets what is asked of the store about one record.
func (t *jointTransaction) setChange(i int, c RecordChange) {
	c.Size = len(t.parts[i].entry.known.record.encodedState)
	t.changes[i] = c
}

// decideTurns decides on what is known of the records.
func (t *jointTransaction) decideTurns(now int64) {
	t.nonce = max(1, rand.Uint64())
	for i := range t.parts {
		p := &t.parts[i]
		k := &p.entry.known
		p.in = decideInput{
			server: t.store.server, kind: k.kind, record: &k.record, state: k.state,
			endedHolds: k.endedHolds, refusals: p.entry.unstored.refusalCount,
			turns: p.turns, rest: p.line.rest, gone: t.store.absent.known(),
			now: now, nonce: t.nonce, recordFull: p.recordFull,
		}
		if p.undo.id != 0 {
			p.undo.turn, p.undos[0] = 0, &p.undo
			p.in.undos = p.undos[:]
		}
		if k.minFence != 0 {
			p.in.minFence = k.minFence + rand.Uint64N(fenceBits)
		}
	}
	decideJoint(t.parts, t.calls, t.served)
	for i := range t.parts {
		p := &t.parts[i]
		p.entry.unstored.count = p.update.unstored
		// What cannot be kept here is stored at once.
		counted := p.update.refusals.count != 0 && !p.entry.unstored.listed.Load()
		p.update.write = p.update.write || counted && !t.store.refusals.hasRoom()
	}
}

// buildChanges makes the changes of what was decided. What does not change is only compared.
func (t *jointTransaction) buildChanges() error {
	t.reads = true
	claim := time.Duration(0)
	if t.retries.conflicts >= claimAfter {
		claim = t.longestClaim()
	}
	for i := range t.parts {
		c, full := t.recordChange(i)
		if full {
			// It is decided once more, with what makes this record grow refused.
			t.parts[i].recordFull = true
			if err := t.decodeStates(); err != nil {
				return err
			}
			now, _ := t.store.clock.storeTime()
			t.decideTurns(now)
			return t.buildChanges()
		}
		c.Claim, c.Server = claim, t.store.config.Server
		t.setChange(i, c)
		t.reads = t.reads && c.Read
	}
	return nil
}

// recordChange is the change of one record. full says that it is too large to be stored.
func (t *jointTransaction) recordChange(i int) (c RecordChange, full bool) {
	p := &t.parts[i]
	k, u := &p.entry.known, &p.update
	absent := u.state == nil && len(u.next.heads) == 0
	nothing := absent && k.version == 0 && len(t.unresolved) == 0 && !t.pending
	// Compared only: what changes in other records was decided on what was read of this one.
	if !u.write || nothing {
		return RecordChange{If: k.version, Read: true}, false
	}
	c = RecordChange{
		If: k.version, Nonce: t.nonce, Wake: u.wake, Begin: u.newHolds, End: u.endedHolds,
		Next: u.encode(&p.buffers),
	}
	t.store.retention.setKeep(&c, k, u)
	grows := len(u.next.encodedState) > len(k.record.encodedState)
	return c, len(c.Next) > maxRecord && !p.recordFull && grows
}

// longestClaim is for how long the records are claimed by changes that are not made.
func (t *jointTransaction) longestClaim() time.Duration {
	trip := time.Duration(0)
	for i := range t.parts {
		trip = max(trip, t.parts[i].entry.contention.roundTrip)
	}
	return min(claimTrips*trip+claimSlack, t.store.config.Timeout/claimPart, MaxClaim)
}

// keepUnstored keeps what was counted and is not stored: at all names, or at those that were only read.
func (t *jointTransaction) keepUnstored(all bool) {
	for i := range t.parts {
		p := &t.parts[i]
		if more := p.update.refusals; more.count != 0 && (all || t.changes[i].Read) {
			u := &p.entry.unstored
			u.count, u.since = u.count+more.count, more.since
			t.store.refusals.addEntry(p.entry)
		}
	}
}

// decodeStates makes the states of the records anew, when what was made of them was decided on in vain.
func (t *jointTransaction) decodeStates() error {
	for i := range t.parts {
		if err := t.parts[i].entry.known.decodeState(); err != nil {
			return err
		}
	}
	return nil
}

// readReplies works the replies of the store in, and reports whether the transaction is over.
func (t *jointTransaction) readReplies(replies []Reply, err error) (over bool, why error) {
	if err != nil {
		return t.onNoReply(err)
	}
	t.noteReplyTiming(replies)
	if allSwapped(replies) {
		return t.onConfirmed(replies)
	}
	made, claimed := false, time.Duration(0)
	for i := range t.parts {
		p, reply := &t.parts[i], &replies[i]
		k := &p.entry.known
		claimed = max(claimed, reply.Claimed)
		if reply.Swapped {
			err = k.confirm(reply) // it was not changed, and is still the one that was decided on
		} else {
			err = t.loadReply(i, reply)
		}
		if err != nil {
			return true, t.store.unreadable(p.Key, err)
		}
		sent := t.changes[i].Next != nil && !t.changes[i].Read
		made = made || sent && slices.Contains(k.record.nonces(), t.nonce)
	}
	if made {
		t.noteStored()
		return true, nil // it was made after all, as when it was sent twice on its way
	}
	return t.retryAfterConflict(claimed)
}

func allSwapped(replies []Reply) bool {
	return len(replies) > 0 && !slices.ContainsFunc(replies, func(r Reply) bool { return !r.Swapped })
}

// loadReply notes the present record of a part, which is another one than was known.
func (t *jointTransaction) loadReply(i int, reply *Reply) error {
	s, p := t.store, &t.parts[i]
	k := &p.entry.known
	if k.hasVanished(reply, &s.retention) {
		s.counters.vanished.Add(1)
		s.config.Vanished(p.Key)
	}
	// A plain read has no version to compare; it cannot conflict with another server.
	if t.changes[i].If != noVersion {
		p.entry.contention.conflicts++
	}
	return k.loadReply(reply)
}

// noteStored notes that what was counted is stored.
func (t *jointTransaction) noteStored() {
	for i := range t.parts {
		if !t.changes[i].Read {
			t.parts[i].entry.unstored.count = 0
		}
	}
}

// onConfirmed goes on when the changes were made, or the records are still those that were decided on.
func (t *jointTransaction) onConfirmed(replies []Reply) (over bool, err error) {
	ended := false
	for i := range t.parts {
		p := &t.parts[i]
		k := &p.entry.known
		if !t.changes[i].Read {
			k.adoptUpdate(&p.update, &replies[i])
			continue
		}
		if err := k.confirm(&replies[i]); err != nil {
			return true, t.store.unreadable(p.Key, err)
		}
		ended = ended || len(k.endedHolds) > 0
	}
	t.noteStored()
	// The backend has ended holds since. What was refused is decided again, unless something was granted and
	// stored with it; what was granted does not rest on records that were only read.
	granted := slices.ContainsFunc(t.calls, func(c servedChange) bool { return c.granted })
	refused := slices.ContainsFunc(t.calls, func(c servedChange) bool { return !c.granted })
	if ended && refused && (!granted || t.reads) {
		t.fresh = true
		return false, nil
	}
	if granted {
		for i := range t.parts {
			t.parts[i].entry.contention.conflicts = 0
		}
	}
	t.keepUnstored(false)
	return true, nil
}

// noteReplyTiming notes what any answer tells: that the store is there, its time, and how far away it is.
func (t *jointTransaction) noteReplyTiming(replies []Reply) {
	s := t.store
	received := s.clock.elapsedTime()
	s.lastReply.Store(received)
	if step := s.clock.noteReply(replies[0].Now, t.sentAt, received); step != 0 {
		s.counters.clockSteps.Add(1)
		s.config.ClockSet(step)
	}
	t.replied = true
	for i := range t.parts {
		c := &t.parts[i].entry.contention
		c.roundTrip, c.repliedAt = time.Duration(received-t.sentAt), received
	}
}

// retryAfterConflict counts a conflict, and sees that there is time for another try.
func (t *jointTransaction) retryAfterConflict(claimed time.Duration) (over bool, why error) {
	// All replies are of one instant: the retry decides on them.
	t.fresh = true
	t.retries.lost++
	if !t.reads {
		t.retries.conflicts++
		t.store.counters.conflicts.Add(1)
		t.claimHeld = t.changes[0].Claim > 0 && claimed == 0
	}
	inTime := t.budget.Err() == nil
	if claimed > 0 && inTime {
		inTime = backoff.Sleep(t.budget, t.retries.nextClaimPoll(claimed))
	}
	if !inTime || t.retries.conflicts > 0 && !t.canBeAnswered() {
		return true, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s and others: %w, %d times within %s",
			t.keys[0], ErrConflict, t.retries.lost, t.store.config.Timeout)
	}
	return false, nil
}

// canBeAnswered reports whether there is time for the answer to another try.
func (t *jointTransaction) canBeAnswered() bool {
	deadline, ok := t.budget.Deadline()
	trip := t.parts[0].entry.contention.roundTrip
	return !ok || time.Until(deadline) > min(trip, t.store.config.Timeout/10)
}

// onNoReply notes what is not known of changes that the store has not answered, and waits for a while before
// it is asked again.
func (t *jointTransaction) onNoReply(err error) (over bool, why error) {
	if !t.reads && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		t.unresolved = append(t.unresolved, t.newAttempt())
		for i := range t.parts {
			if p := &t.parts[i]; p.undo.id != 0 {
				p.undo.noteSent(&p.entry.known.record)
			}
		}
	}
	for i := range t.parts {
		// The change itself may have made them out of date.
		t.parts[i].entry.known.current = false
	}
	t.fresh = false
	if errors.Is(err, ErrRefused) || !backoff.Sleep(t.budget, t.retries.nextPause()) {
		t.unanswered = !t.replied
		return true, t.store.unavailable(t.refusingKey(err), err)
	}
	return false, nil
}

// refusingKey is the name because of which the store refused all: of several records the first that is none,
// which reading them one by one tells.
func (t *jointTransaction) refusingKey(err error) gatehouse.Key {
	if errors.Is(err, ErrNoRecord) {
		for _, key := range t.keys {
			read := RecordChange{If: noVersion, Read: true}
			if _, err := t.store.backend.Swap(t.budget, key, &read); errors.Is(err, ErrNoRecord) {
				return key
			}
		}
	}
	return t.keys[0]
}

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }
