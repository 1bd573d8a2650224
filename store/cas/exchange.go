package cas

import (
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/backoff"
)

// This file is the exchanges of a transaction with the store: what is asked, how the reply is read, and when
// the transaction retries.

// run asks the store for what comes next, without keeping its caller if the backend can. Otherwise it goes on
// until the change is made, or is found to be none, or time is up.
func (t *transaction) run() {
	for {
		if over, err := t.planExchange(); over {
			t.store.finishTransaction(t, err)
			return
		}
		// onReply goes on from there, and calls this again if there is more to ask.
		if async := t.store.async; async != nil {
			async.Start(t.budget, t.entry.key, &t.change, t.replyCallback)
			return
		}
		reply, err := t.store.backend.Swap(t.budget, t.entry.key, &t.change)
		if over, err := t.readReply(&reply, err); over {
			t.store.finishTransaction(t, err)
			return
		}
	}
}

// onReply goes on when the backend has answered. It keeps the backend no longer than it takes to note that
// all is well, or to decide again on something small.
func (t *transaction) onReply(reply Reply, err error) {
	if err == nil && reply.Swapped {
		if over, err := t.readReply(&reply, nil); over {
			t.store.finishTransaction(t, err)
			return
		}
		// The read was confirmed but the decision no longer holds, so another exchange is needed.
		go t.run()
		return
	}
	waits := reply.Claimed > 0 || t.change.Claim > 0 || t.claim.forRoom
	if err == nil && !waits && isQuick(len(t.batch.turns), len(reply.Record)) {
		t.continueRun(reply, nil)
		return
	}
	// A retry that may wait, or decides on much, would hold up all other replies that the backend reads.
	go t.continueRun(reply, err)
}

// continueRun goes on after an answer that was not the one hoped for.
func (t *transaction) continueRun(reply Reply, err error) {
	if over, err := t.readReply(&reply, err); over {
		t.store.finishTransaction(t, err)
		return
	}
	t.run()
}

// planExchange finds out what to ask of the store. The transaction is over if that is nothing.
func (t *transaction) planExchange() (over bool, err error) {
	s := t.store
	if done, err := t.resolveAttempts(); done || err != nil {
		return true, err
	}
	asks, err := t.decideChange()
	if !asks || err != nil {
		return true, err
	}
	// A confirmation that the known record is the present one counts as a read too: it changes nothing.
	if t.change.Read {
		s.counters.reads.Add(1)
	} else {
		s.counters.swaps.Add(1)
	}
	t.sentAt = s.clock.elapsedTime()
	return false, nil
}

// readReply works the reply of the store in, and reports whether the transaction is over.
func (t *transaction) readReply(reply *Reply, err error) (over bool, why error) {
	e := t.entry
	if err != nil {
		return t.onNoReply(err)
	}
	t.noteReplyTiming(reply)
	// What had to be read in any case, as after a wake, says nothing about other records.
	if t.retries.lost == 0 && !t.mustRead() {
		t.store.outdated.note(!reply.Swapped && reply.Version != e.known.version)
	}
	if reply.Swapped {
		return t.onConfirmed(reply)
	}
	// Before loadReply forgets what was known: only the comparison of the two shows that the record was
	// lost.
	if e.known.hasVanished(reply, &t.store.retention) {
		t.store.counters.vanished.Add(1)
		t.store.config.Vanished(e.key)
	}
	if err := e.known.loadReply(reply); err != nil {
		return true, t.store.unreadable(e.key, err)
	}
	if !t.change.Read && slices.Contains(e.known.record.nonces(), t.change.Nonce) {
		e.unstored.count = 0
		return true, nil // it was made after all, as when it was sent twice on its way
	}
	return t.retryAfterConflict(reply)
}

// onConfirmed goes on when the change was made, or the record that was decided on is still the present one.
func (t *transaction) onConfirmed(reply *Reply) (over bool, err error) {
	e := t.entry
	if !t.change.Read {
		e.known.adoptUpdate(&t.update, reply)
		e.unstored.count = 0
		// A grant shows that this server keeps up; it needs no claim for room.
		granted := func(d gatehouse.Decision) bool { return d.Outcome == gatehouse.Granted }
		if slices.ContainsFunc(t.update.decisions, granted) {
			e.contention.conflicts = 0
		}
		return true, nil
	}
	if err := e.known.confirm(reply); err != nil {
		return true, t.store.unreadable(e.key, err)
	}
	if len(e.known.endedHolds) > 0 {
		// The record is the same, but the backend has ended holds that the decision counted as held. The
		// reply counts as a read, so the next try decides on it at once.
		t.fresh = true // what was decided holds no more, as holds have ended
		return false, nil
	}
	// Nothing was written, so refusals that the decision counted are not in the store yet.
	t.keepUnstored()
	return true, nil
}

// noteReplyTiming notes what any answer tells: that the store is there, its time, and how far away it is.
func (t *transaction) noteReplyTiming(reply *Reply) {
	s := t.store
	received := s.clock.elapsedTime()
	s.lastReply.Store(received)
	if step := s.clock.noteReply(reply.Now, t.sentAt, received); step != 0 {
		s.counters.clockSteps.Add(1)
		s.config.ClockSet(step)
	}
	t.replied = true
	c := &t.entry.contention
	c.roundTrip, c.repliedAt = time.Duration(received-t.sentAt), received
}

// retryAfterConflict counts a conflict, and sees that there is time for another try. That is not put off,
// as what was read is soon old, unless another server has a claim on the record.
func (t *transaction) retryAfterConflict(reply *Reply) (over bool, why error) {
	// The reply carries the present record, so the retry needs no read of its own.
	t.fresh = true
	t.retries.lost++
	// A plain read has no version to compare; it cannot conflict with another server.
	if t.change.If != noVersion {
		t.entry.contention.conflicts++
	}
	if !t.change.Read {
		t.retries.conflicts++
		t.store.counters.conflicts.Add(1)
		// The change asked for a claim and none of another server barred it: the store noted ours together
		// with the conflict.
		t.claim.held = t.change.Claim > 0 && reply.Claimed == 0
	}
	inTime := t.budget.Err() == nil
	if reply.Claimed > 0 && inTime {
		inTime = backoff.Sleep(t.budget, t.retries.nextClaimPoll(reply.Claimed))
	}
	// Without time for a reply the retry is not sent. It could take effect without this server knowing,
	// while giving up now leaves nothing behind.
	if !inTime || t.retries.conflicts > 0 && !t.canBeAnswered() {
		return true, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w, %d times within %s",
			t.entry.key, ErrConflict, t.retries.lost, t.store.config.Timeout)
	}
	return false, nil
}

// canBeAnswered reports whether there is time for the answer to another try, as far as that can be told. A
// try that ends without one could only leave behind what no caller knows of.
func (t *transaction) canBeAnswered() bool {
	// The last round trip is the estimate. It is capped, so that one slow reply does not end all retries of
	// a name.
	deadline, ok := t.budget.Deadline()
	return !ok || time.Until(deadline) > min(t.entry.contention.roundTrip, t.store.config.Timeout/10)
}

// onNoReply notes what is not known of a change that the store has not answered, and waits for a while
// before it is asked again.
func (t *transaction) onNoReply(err error) (over bool, why error) {
	e := t.entry
	canHaveChanged := !t.change.Read && t.change.If != noVersion
	if canHaveChanged && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		// Neither refused nor unsent: the change may be made now, later or never. Its nonce is kept, as the
		// only way to recognise it in the record.
		t.unresolved = append(t.unresolved, t.newAttempt())
		for _, d := range t.batch.undos {
			d.noteSent(&e.known.record)
		}
	}
	// The next exchange has to be a read: it decides whether the lost change was made.
	e.known.current, t.fresh = false, false
	if errors.Is(err, ErrRefused) || !backoff.Sleep(t.budget, t.retries.nextPause()) {
		// A store that replied during this transaction is there, only slow. Then the calls that wait behind
		// this one get their own try.
		t.unanswered = !t.replied // others may have the answers that this one ran out of time for
		return true, t.store.unavailable(e.key, err)
	}
	return false, nil
}

// newAttempt is the change under way.
func (t *transaction) newAttempt() attempt {
	// Copies, because the next try decides again in the same room.
	a := attempt{nonce: t.change.Nonce, decisions: slices.Clone(t.update.decisions)}
	// The newest nonce of the record that was replaced. As long as the record still names it, it also names
	// every change made since.
	if nonces := t.entry.known.record.nonces(); len(nonces) > 0 {
		a.base = nonces[0]
	}
	a.fencesBefore = t.entry.known.holdFences()
	return a
}

// resolveAttempts looks whether a change whose answer was lost has been made after all, now that the record
// was read. It is an error if that cannot be told any more.
func (t *transaction) resolveAttempts() (done bool, err error) {
	e := t.entry
	if len(t.unresolved) == 0 || !t.fresh {
		return false, nil
	}
	learnt := true
	for i := range t.unresolved {
		made, known := e.known.record.madeBy(&t.unresolved[i])
		if made {
			// The change was made under exactly these decisions: the callers get them, however the record
			// has changed since.
			t.update.decisions = append(t.update.decisions[:0], t.unresolved[i].decisions...)
			t.unresolved, e.unstored.count = nil, 0
			return true, nil
		}
		learnt = learnt && known
	}
	// More changes came since than a record has nonces. Deciding again could grant twice, so the calls fail
	// as unknown.
	if !learnt {
		return false, t.store.unavailable(e.key, errOverrun)
	}
	return false, nil
}

var errOverrun = errors.New("an answer was lost, and so much has happened since that it cannot be learnt")

// unavailable is the error of a call that the store did not answer, or refused.
func (s *Store) unavailable(key gatehouse.Key, err error) error {
	switch {
	case errors.Is(err, ErrNoRecord):
		return s.unreadable(key, err)
	case errors.Is(err, ErrRefused): // which it says itself
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", key, err)
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store does not answer: %w", key, err)
}

// unreadable is the error of a call whose record cannot be read. No call mends that, a delete neither: it may
// be a newer server's.
func (s *Store) unreadable(key gatehouse.Key, err error) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: its record cannot be read: %w; it is the key %q "+
		"of the store: unless a newer server wrote it, delete it there to start again",
		key, err, s.traits.KeyOf(key))
}
