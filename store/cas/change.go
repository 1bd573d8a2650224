package cas

import (
	"math/rand/v2"

	"github.com/gatehousehq/gatehouse"
)

// This file is what a transaction asks of the store: it decides on what is known of the record, and makes a
// change of that.

// decideChange serves the transaction on what is known of the record, and sets what to ask of the store: the
// change, or whether the record is still the same. There is nothing to ask when nothing changes and the
// record was read during this transaction.
func (t *transaction) decideChange() (asks bool, err error) {
	s, e := t.store, t.entry
	k := &e.known
	// Another transaction has stored the counted refusals since this call was queued.
	if t.batch.flushing && len(t.batch.turns) == 0 && e.unstored.count == 0 {
		return false, nil // they went with another change
	}
	now, known := s.clock.storeTime()
	if !known || !t.fresh && (t.mustRead() || t.isOutdated()) {
		// No record has this version, so the reply always carries the record, and the time.
		t.setChange(RecordChange{If: noVersion, Read: true})
		return true, nil
	}
	if !k.current {
		// Offering a change on an absent record saves a read for new names. A record that exists makes it
		// conflict, and comes with the reply.
		k.assumeAbsent()
	}
	decide(t.fillInput(now), &t.buffers, &t.update)
	t.noteDecision()
	if t.awaitRoom() {
		// The first decision has changed the state in memory. It is decoded again, so that the second one
		// starts from the stored record.
		if err := k.decodeState(); err != nil {
			return false, err
		}
		now, _ = s.clock.storeTime()
		decide(t.fillInput(now), &t.buffers, &t.update)
		t.noteDecision()
	}
	if len(t.unresolved) > 0 {
		t.update.write = true // so that no change that is still under way can be made any more
	}
	if t.claim.held {
		t.update.write = true // others wait for the claim to end
	}
	switch {
	case t.update.write:
		return true, t.buildChange()
	case t.wantsRoom():
		t.claimRoom()
		return true, k.decodeState()
	// Read during this transaction, and nothing changes: the decisions stand without another exchange.
	case t.fresh:
		t.keepUnstored()
		return false, k.decodeState()
	// The decisions rest on a remembered record. They are given out only when the store confirms that it is
	// the present one.
	default:
		t.setChange(RecordChange{If: k.version, Read: true})
		return true, nil
	}
}

// fillInput fills in, and returns, what is known of the record, and what is wanted of it.
func (t *transaction) fillInput(now int64) *decideInput {
	s, e := t.store, t.entry
	k := &e.known
	t.in = decideInput{
		server: s.server, kind: k.kind,
		record: &k.record, state: k.state, endedHolds: k.endedHolds, refusals: e.unstored.refusalCount,
		turns: t.batch.turns, undos: t.batch.undos, rest: t.line.rest, gone: s.absent.known(),
		// Zero is no nonce: backends without versions take it for an absent record.
		now: now, nonce: max(1, rand.Uint64()), recordFull: t.recordFull,
	}
	// With a number of the backend's a token has some random bits, so that two grants that rest on the same
	// number, one of which no client came to know of, are not alike.
	if k.minFence != 0 {
		t.in.minFence = k.minFence + rand.Uint64N(fenceBits)
	}
	return &t.in
}

// noteDecision finds out whether what was decided is to be stored.
func (t *transaction) noteDecision() {
	u := &t.update
	t.entry.unstored.count = u.unstored
	u.write = u.write || t.batch.flushing && u.unstored > 0 || t.mustStoreRefusals()
}

// fenceBits is where the random part of a fencing token ends; a backend's numbers are twice as far apart.
const fenceBits = 1 << 15

// setChange sets what is asked of the store next.
func (t *transaction) setChange(c RecordChange) {
	c.Size = len(t.entry.known.record.encodedState)
	t.change = c
}

// mustRead reports whether the record has to be read before anything is decided. One of holds that is not
// there is always read: the fencing token of its first hold is made of the time, which is then no earlier
// than any change of a record that was lost.
func (t *transaction) mustRead() bool {
	k := &t.entry.known
	switch {
	// Whether an undo was done stands in the present record only.
	case t.batch.hasPending:
		return true
	// A record was there, or a change of unknown outcome may have made one.
	case !k.current && (k.version != 0 || len(t.unresolved) > 0):
		return true
	case k.current && k.version != 0:
		return false
	}
	return t.store.traits.Fences || k.kind == gatehouse.Semaphore || k.kind == gatehouse.Lock
}

// noVersion is a version that no record has, so that the record is answered.
const noVersion = 1<<64 - 1

// buildChange makes the change of what was decided.
func (t *transaction) buildChange() error {
	s, k, u := t.store, &t.entry.known, &t.update
	t.setChange(RecordChange{
		If: k.version, Nonce: u.next.recentNonces[0], Wake: u.wake, Begin: u.newHolds, End: u.endedHolds,
		Server: s.config.Server,
	})
	if t.retries.conflicts >= claimAfter {
		t.change.Claim = t.longestClaim()
	}
	absent := u.state == nil && len(u.next.heads) == 0
	if absent && k.version == 0 && len(t.unresolved) == 0 && !t.batch.hasPending {
		// A write that leaves nothing, of a record that is absent, needs no write: the store only confirms
		// the absence.
		t.change.Read = true // there is none, and there is to be none
		return nil
	}
	t.change.Next = u.encode(&t.buffers)
	s.retention.setKeep(&t.change, k, u)
	// What leaves the state as long as it is, such as a repeat of an acquire, is stored even so.
	grows := len(u.next.encodedState) > len(k.record.encodedState)
	if len(t.change.Next) <= maxRecord || t.recordFull || !grows {
		return nil
	}
	// Too large: the queue is decided once more, with the commands that make a record grow refused. The
	// second call ends here, as recordFull is set.
	t.recordFull = true
	if err := k.decodeState(); err != nil {
		return err
	}
	decide(t.fillInput(u.now), &t.buffers, u)
	t.noteDecision()
	return t.buildChange()
}

// keepUnstored keeps what a transaction has counted and not stored.
func (t *transaction) keepUnstored() {
	more := t.update.refusals
	if more.count == 0 {
		return
	}
	u := &t.entry.unstored
	u.count, u.since = u.count+more.count, more.since
	t.store.refusals.addEntry(t.entry)
}

// mustStoreRefusals reports whether what a transaction has counted is to be stored at once, because it
// cannot be kept here.
func (t *transaction) mustStoreRefusals() bool {
	counted := t.update.refusals.count != 0
	return counted && !t.entry.unstored.listed.Load() && !t.store.refusals.hasRoom()
}
