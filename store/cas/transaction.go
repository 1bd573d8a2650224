package cas

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A transaction serves all queues of one batch as one change.
type transaction struct {
	store         *Store
	replyCallback func(Reply, error) // goes on when the backend has answered

	entry          *entry
	batch          []*applyCall
	budget         context.Context // ends when its time is up
	fresh          bool            // the record was read during this flight
	retries        int             // that were lost
	conflicts      int             // of them those in which something was to be changed
	replied        bool            // the store has answered during this flight
	hasClaim       bool            // the record is left to this flight by the others
	claimedForRoom bool            // it has claimed it, or tried to, to wait for room
	retryPause     time.Duration   // before the store is asked again if it is away
	claimPoll      time.Duration   // before it is asked again whether another server's claim is over
	change         *RecordChange   // that is under way
	changeBuffer   RecordChange    // for it
	sentAt         int64           // when it was sent, by the clock

	turns         []control.Turn
	commands      []gatehouse.Command // copies: a lost race must leave no trace in the caller's
	waitsSince    []int64             // since when each turn counts as waiting
	servedIndex   []int               // the turns that control.Serve is given, when not all of them are
	served        []control.Turn
	blockedUntil  []int64  // until when another server's head bars the way of a turn; 0 when none does
	undos         []*undo  // the turns that are not to be done twice, in their order
	hasPending    bool     // some of them for calls that failed
	line          *line    // some of which this flight has in hand; nil when nobody watches
	others        lineRest // of that line
	recordFull    bool     // the record can take no more
	flushing      bool     // it stores refusals that were not
	refusedBefore int64    // were counted before it

	stateBuffer []byte        // room for that of the state
	next        storedRecord  // what it makes of the entry's record
	state       control.State // and of its state
	now         int64
	timeAhead   int64 // how far that is ahead of the time
	write       bool
	wake        []uint32
	newHolds    []control.Hold
	endedHolds  []control.Hold

	unresolved []attempt // changes of which it is not known whether they were made
	unanswered bool      // the store did not answer
}

// An attempt is a change that was sent.
type attempt struct {
	nonce, base  uint64 // its own, and that of the record it was to replace
	decisions    []gatehouse.Decision
	fencesBefore map[uint64]bool // the fencing tokens of the holds of that record
}

// backoff is how long is waited at first before an unreachable store is asked again. It doubles, up to
// maxBackoff, so that a store that is back is found soon.
const (
	backoff    = 10 * time.Millisecond
	maxBackoff = 100 * time.Millisecond
)

func newTransaction(s *Store) *transaction {
	t := &transaction{store: s}
	t.replyCallback = t.onReply
	return t
}

// beginTransaction begins the flight of a batch.
func (s *Store) beginTransaction(e *entry, batch []*applyCall) *transaction {
	t := s.transactions.Get().(*transaction)
	t.entry, t.batch, t.retryPause, t.claimPoll = e, batch, backoff, firstPoll
	t.addCalls(batch)
	t.others = s.watches.takeOut(e.key, t)
	t.budget = s.budgets.currentBudget(s.clock.elapsedTime(), s.config.Timeout)
	if e.stale.Swap(false) {
		e.known = false
	}
	return t
}

// recordOutcome ends a flight, and fills in the decisions of its batch. It reports whether the store is away.
func (s *Store) recordOutcome(t *transaction, err error) (away error) {
	e := t.entry
	postponed := t.postponeWaiters(err)
	s.watches.putBack(t, err != nil && !postponed)
	if err == nil {
		t.deliverDecisions(t.batch, e)
	} else {
		e.known, e.state = false, nil
		if len(t.unresolved) > 0 {
			s.counters.unknown.Add(1)
			s.undos.addUnresolved(e.key, t)
		}
		for i := range t.batch {
			if !postponed || !t.deliverPostponed(t.batch[i], err) {
				s.failCalls(e.key, t.batch[i:i+1], err)
			}
		}
		if t.unanswered {
			away = err
		}
	}
	t.resetForReuse()
	s.transactions.Put(t)
	return away
}

// failCalls notes that requests end with an error.
func (s *Store) failCalls(key gatehouse.Key, requests []*applyCall, err error) {
	s.counters.failures.Add(uint64(len(requests)))
	for _, r := range requests {
		r.err = err
		if r.pendingUndos == nil {
			s.undos.addFailed(key, r)
		}
	}
}

// addCalls takes the queues of a batch over.
func (t *transaction) addCalls(batch []*applyCall) {
	for _, r := range batch {
		t.flushing = t.flushing || r.flushing
		if r.pendingUndos != nil {
			for i, d := range r.pendingUndos {
				d.turn = len(t.turns) + i
			}
			t.undos, t.hasPending = append(t.undos, r.pendingUndos...), true
		} else {
			r.ownUndos = newUndos(r.queue, len(t.turns))
			for i := range r.ownUndos {
				t.undos = append(t.undos, &r.ownUndos[i])
			}
		}
		t.turns = append(t.turns, r.queue...)
	}
	if cap(t.commands) < len(t.turns) {
		t.commands = make([]gatehouse.Command, len(t.turns))
	}
	t.commands = t.commands[:len(t.turns)]
}

// deliverDecisions hands the decisions out.
func (t *transaction) deliverDecisions(batch []*applyCall, e *entry) {
	i := 0
	for _, r := range batch {
		for j := range r.queue {
			r.queue[j].Decision = t.turns[i].Decision
			i++
		}
		if r.view != nil {
			r.view(time.Unix(0, t.now), e.state)
		}
	}
}

func (t *transaction) resetForReuse() {
	clear(t.turns)
	clear(t.commands)
	clear(t.served)
	*t = transaction{
		store: t.store, replyCallback: t.replyCallback,
		// The buffers keep their room: a transaction is taken from a pool.
		stateBuffer: t.stateBuffer[:0], turns: t.turns[:0], commands: t.commands[:0],
		servedIndex: t.servedIndex[:0], served: t.served[:0], waitsSince: t.waitsSince[:0],
		blockedUntil: t.blockedUntil[:0], wake: t.wake[:0],
		newHolds: t.newHolds[:0], endedHolds: t.endedHolds[:0],
	}
}

// runToEnd goes on until the change is made, or is found to be none, or time is up.
func (t *transaction) runToEnd() error {
	for {
		if over, err := t.planExchange(); over {
			return err
		}
		reply, err := t.store.backend.Swap(t.budget, t.entry.key, t.change)
		if over, err := t.readReply(&reply, err); over {
			return err
		}
	}
}

// onReply goes on when the backend has answered. It keeps the backend no longer than it takes to note that
// all is well.
func (t *transaction) onReply(reply Reply, err error) {
	if err != nil || !reply.Swapped {
		go t.continueRun(reply, err)
		return
	}
	if over, err := t.readReply(&reply, nil); over {
		t.store.finishTransaction(t, err)
		return
	}
	go func() { t.store.finishTransaction(t, t.runToEnd()) }()
}

// continueRun goes on after an answer that was not the one hoped for.
func (t *transaction) continueRun(reply Reply, err error) {
	over, err := t.readReply(&reply, err)
	if !over {
		err = t.runToEnd()
	}
	t.store.finishTransaction(t, err)
}

// planExchange finds out what to ask of the store. The flight is over if that is nothing.
func (t *transaction) planExchange() (over bool, err error) {
	s := t.store
	if done, err := t.resolveAttempts(); done || err != nil {
		return true, err
	}
	t.change, err = s.decideChange(t)
	if t.change == nil {
		return true, err
	}
	if t.change.Read {
		s.counters.reads.Add(1)
	} else {
		s.counters.swaps.Add(1)
	}
	t.sentAt = s.clock.elapsedTime()
	return false, nil
}

// readReply works the answer of the store in, and reports whether the flight is over.
func (t *transaction) readReply(reply *Reply, err error) (over bool, why error) {
	e, change := t.entry, t.change
	if err != nil {
		return t.onNoReply(err)
	}
	t.noteReplyTiming(reply)
	if reply.Swapped {
		return t.onConfirmed(reply)
	}
	if t.store.hasVanished(e, reply) {
		t.store.noteVanished(e.key)
	}
	if err := e.loadReply(reply); err != nil {
		return true, unavailable(e.key, err)
	}
	if !change.Read && slices.Contains(e.record.nonces(), change.Nonce) {
		e.unstored.count = 0
		return true, nil // it was made after all, as when it was sent twice on its way
	}
	return t.retryAfterConflict(reply)
}

// onConfirmed goes on when the change was made, or the record that was decided on is still the present one.
func (t *transaction) onConfirmed(reply *Reply) (over bool, err error) {
	e := t.entry
	if err := e.adoptChange(t, reply); err != nil || !t.change.Read {
		return true, err
	}
	if len(e.endedHolds) > 0 {
		t.fresh = true // what was decided holds no more, as holds have ended
		return false, nil
	}
	t.store.keepUnstored(t)
	return true, nil
}

// noteReplyTiming notes what any answer tells: that the store is there, its time, and how far away it is.
func (t *transaction) noteReplyTiming(reply *Reply) {
	s := t.store
	received := s.clock.elapsedTime()
	s.lastReply.Store(received)
	if step := s.clock.noteReply(reply.Now, t.sentAt, received); step != 0 {
		s.noteClockStep(step)
	}
	t.replied = true
	t.entry.roundTrip, t.entry.repliedAt = time.Duration(received-t.sentAt), received
}

// retryAfterConflict counts a race that was lost, and sees that there is time for another try. That is not
// put off, as what was read is soon old, unless another server has a claim on the record.
func (t *transaction) retryAfterConflict(reply *Reply) (over bool, why error) {
	t.fresh, t.retries = true, t.retries+1
	if t.change.If != noVersion {
		t.entry.conflicts++
	}
	if !t.change.Read {
		t.conflicts++
		t.store.counters.conflicts.Add(1)
		t.hasClaim = t.change.Claim > 0 && reply.Claimed == 0
	}
	inTime := t.budget.Err() == nil
	if reply.Claimed > 0 && inTime {
		inTime = t.awaitClaim(reply.Claimed)
	}
	if !inTime || t.conflicts > 0 && !t.canBeAnswered() {
		return true, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w, %d times within %s",
			t.entry.key, ErrConflict, t.retries, t.store.config.Timeout)
	}
	return false, nil
}

// canBeAnswered reports whether there is time for the answer to another try, as far as that can be told. A
// try that ends without one could only leave behind what nobody knows of.
func (t *transaction) canBeAnswered() bool {
	deadline, ok := t.budget.Deadline()
	return !ok || time.Until(deadline) > min(t.entry.roundTrip, t.store.config.Timeout/10)
}

// onNoReply notes what is not known of a change that the store has not answered, and waits for a while
// before it is asked again.
func (t *transaction) onNoReply(err error) (over bool, why error) {
	e := t.entry
	canHaveChanged := !t.change.Read && t.change.If != noVersion
	if canHaveChanged && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		t.unresolved = append(t.unresolved, t.newAttempt())
		for _, d := range t.undos {
			d.noteSent(&e.record)
		}
	}
	e.known, t.fresh = false, false
	if errors.Is(err, ErrRefused) || !sleepFor(t.budget, jittered(t.retryPause)) {
		t.unanswered = !t.replied // others may have the answers that this one ran out of time for
		return true, unavailable(e.key, err)
	}
	t.retryPause = min(2*t.retryPause, maxBackoff)
	return false, nil
}

// newAttempt is the change under way.
func (t *transaction) newAttempt() attempt {
	a := attempt{nonce: t.change.Nonce, decisions: make([]gatehouse.Decision, len(t.turns))}
	if nonces := t.entry.record.nonces(); len(nonces) > 0 {
		a.base = nonces[0]
	}
	for i := range t.turns {
		a.decisions[i] = t.turns[i].Decision
	}
	a.fencesBefore = t.entry.holdFences()
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
		made, known := e.record.madeBy(&t.unresolved[i])
		if made {
			for j := range t.turns {
				t.turns[j].Decision = t.unresolved[i].decisions[j]
			}
			t.unresolved, e.unstored.count = nil, 0
			return true, nil
		}
		learnt = learnt && known
	}
	if !learnt {
		return false, unavailable(e.key, errOverrun)
	}
	return false, nil
}

var errOverrun = errors.New("an answer was lost, and so much has happened since that it cannot be learnt")

// unavailable is the error of a call that the store did not answer, or refused.
func unavailable(key gatehouse.Key, err error) error {
	if errors.Is(err, ErrRefused) { // which it says itself
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", key, err)
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store does not answer: %w", key, err)
}

// sleepFor waits, and reports false if ctx has ended before.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
