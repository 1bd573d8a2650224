package cas

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is the way of a change over several names from the call to its end: it leads the queues of all of
// its names, is decided on and exchanged with the store, and lets the queues go on.

// ApplyJoint serves a joint change as one change of all of its records, or of none. Done may be called before
// it returns.
func (s *Store) ApplyJoint(c *control.JointChange) {
	s.beginJoint(c).enterQueues()
}

// A jointTransaction serves one joint change. Unlike a [transaction] it serves one call alone, and has
// several records to decide on:
//
//	entering ── it leads the queues of all names ──► decide ◄──────────────────────────────┐
//	   │ store away                                    │  ask: all records are compared     │
//	   ▼                                               ▼                                    │
//	failed ◄── refused, unreadable, no time left ── asked ── one was changed, claimed ──────┤
//	                                                  │  └── no reply: wait a little, read ─┘
//	                                                  └► made, confirmed, or found to be made: done
//
// It enters the queues in the order of their keys. So of two that wait for each other's names the one that
// leads the first of these leads all others sooner or later, and there is no deadlock.
type jointTransaction struct {
	store         *Store
	replyCallback func([]Reply, error) // goes on when the backend has answered

	change *control.JointChange
	parts  []jointPart

	entered atomic.Int32    // the queues that it leads or waits in
	late    atomic.Bool     // it has waited in them for too long
	timed   bool            // the function of the timer may be running, so that it is not used again
	timer   *time.Timer     // ends that waiting; nil if it has not waited
	budget  context.Context // ends when its time is up

	served     []control.JointPart // room for a decision
	granted    bool                // by the last one
	nonce      uint64
	keys       []gatehouse.Key
	changes    []RecordChange // that are under way
	reads      bool           // nothing is to be changed by them
	sentAt     int64          // when they were sent, by the clock
	retries    retryState
	claimHeld  bool           // the records are left to it by the others
	unresolved []jointAttempt // changes of which it is not known whether they were made
	fresh      bool           // the records were read during this transaction
	replied    bool           // the store has answered during this transaction
	unanswered bool           // the store did not answer

	pending bool // it takes back what a call that failed has left; the undos are those of the parts
}

// mayWait reports whether the transaction has time to wait in a queue, and sees that it does not wait for too
// long. It is called with the lock of that queue, so that either endWaiting finds it there or it does not
// wait.
func (t *jointTransaction) mayWait() bool {
	if t.timer == nil {
		t.timer = time.AfterFunc(t.store.config.Timeout, t.endWaiting)
	}
	return !t.late.Load()
}

// endWaiting ends a transaction that waits in a queue for too long: meanwhile the calls for its other names
// wait behind it, perhaps for a name that they are not about.
func (t *jointTransaction) endWaiting() {
	t.late.Store(true)
	i := int(t.entered.Load()) - 1
	// If it is not there it is on the way to the next queue, and ends before that.
	if i >= 0 && t.parts[i].entry.calls.leaveQueue(&t.parts[i].place) {
		t.abandon(i, t.lateError())
	}
}

func (t *jointTransaction) lateError() error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s and others: other calls for these names took %s",
		t.keys[0], t.store.config.Timeout)
}

// A jointPart is one name of a joint transaction.
type jointPart struct {
	*control.Part
	entry *entry
	place applyCall // in the queue of the name
	line  takenLine
	undo  undo // if the turn takes back a grant

	turn       [1]control.Turn // as it came
	served     control.Part    // a copy, as it was decided on last
	undos      [1]*undo
	in         decideInput
	update     recordUpdate
	buffers    decideBuffers
	decider    decider
	recordFull bool // the record can take no more
}

func newJointTransaction(s *Store) *jointTransaction {
	t := &jointTransaction{store: s}
	t.replyCallback = t.onReplies
	return t
}

// beginJoint begins the transaction of a change.
func (s *Store) beginJoint(c *control.JointChange) *jointTransaction {
	n := len(c.Parts)
	t := s.joints.Get().(*jointTransaction)
	t.change, t.retries = c, newRetryState()
	t.parts = slices.Grow(t.parts[:0], n)[:n]
	t.keys, t.changes = slices.Grow(t.keys[:0], n)[:n], slices.Grow(t.changes[:0], n)[:n]
	t.served = slices.Grow(t.served[:0], n)[:n]
	for i := range t.parts {
		p := &t.parts[i]
		p.Part, p.turn[0], p.place.joint = &c.Parts[i], c.Parts[i].Turn, t
		p.entry, t.keys[i] = s.cache.entryFor(c.Parts[i].Key), c.Parts[i].Key
		if isGrantUndo(&p.turn[0]) {
			p.undo = newUndos(p.turn[:], 0)[0]
		}
	}
	return t
}

// release lets go of what belongs to the caller, and keeps the room for another change.
func (t *jointTransaction) release() {
	for i := range t.parts {
		p := &t.parts[i]
		clear(p.buffers.queue)
		clear(p.buffers.decisions)
		*p = jointPart{buffers: p.buffers}
	}
	clear(t.changes)
	clear(t.served)
	*t = jointTransaction{
		store: t.store, replyCallback: t.replyCallback,
		parts: t.parts, keys: t.keys, changes: t.changes, served: t.served,
	}
	t.store.joints.Put(t)
}

// enterQueues enters the queues that are left, until it has to wait in one. Then the transaction under way
// there goes on with it.
func (t *jointTransaction) enterQueues() {
	for {
		i := int(t.entered.Load())
		if t.late.Load() {
			t.abandon(i, t.lateError())
			return
		}
		if i == len(t.parts) {
			break
		}
		// Counted first: once it waits, another goroutine may take over at any time.
		t.entered.Add(1)
		p := &t.parts[i]
		leads, waits := p.entry.calls.beginOrJoin(&p.place)
		switch {
		case waits:
			return
		case !leads:
			t.abandon(i, t.lateError())
			return
		}
	}
	t.begin()
}

// begin begins to serve the transaction, all of whose queues it leads.
func (t *jointTransaction) begin() {
	s := t.store
	t.timed = t.timer != nil && !t.timer.Stop()
	t.budget = s.budgets.currentBudget(s.clock.elapsedTime(), s.config.Timeout)
	for i := range t.parts {
		p := &t.parts[i]
		p.line = s.watches.takeOut(p.Key, p.turn[:])
		if p.entry.stale.Swap(false) {
			p.entry.known.current = false
		}
	}
	if s.async == nil {
		go t.run()
		return
	}
	t.run()
}

// run is that of a [transaction].
func (t *jointTransaction) run() {
	for {
		if over, err := t.planExchange(); over {
			t.finish(err)
			return
		}
		if async := t.store.async; async != nil {
			async.StartTogether(t.budget, t.keys, t.changes, t.replyCallback)
			return
		}
		replies, err := t.store.backend.SwapTogether(t.budget, t.keys, t.changes)
		if over, err := t.readReplies(replies, err); over {
			t.finish(err)
			return
		}
	}
}

// onReplies goes on when the backend has answered.
func (t *jointTransaction) onReplies(replies []Reply, err error) {
	if err == nil && allSwapped(replies) {
		t.continueRun(replies, nil)
		return
	}
	// A retry waits, which would hold up the backend.
	replies = slices.Clone(replies)
	go t.continueRun(replies, err)
}

// continueRun goes on after an answer.
func (t *jointTransaction) continueRun(replies []Reply, err error) {
	over, err := t.readReplies(replies, err)
	switch {
	case over:
		t.finish(err)
	case allSwapped(replies):
		go t.run() // what was confirmed does not hold any more
	default:
		t.run()
	}
}

// finish ends the transaction: it fills in the decisions, lets the queues go on, and tells the caller.
func (t *jointTransaction) finish(err error) {
	postponed := t.postpone(err)
	if postponed {
		err = nil
	}
	switch {
	case postponed:
		t.forgetDecided()
	case err == nil:
		t.deliverDecisions()
	default:
		t.forgetDecided()
		t.fail()
	}
	t.putBackLines(err)
	var away error
	if t.unanswered {
		away = err
	}
	// The queues go on before the caller is told, as it may come back from within.
	next, done := t.leaveQueues(len(t.parts), away), t.change.Done
	if !t.pending && !t.timed {
		t.release() // before the callback, which may need one for its next call
	}
	done(err)
	for _, start := range next {
		start()
	}
}

// leaveQueues ends its lead of the first queues, and returns what is to be done for those that come next.
func (t *jointTransaction) leaveQueues(led int, away error) (next []func()) {
	s := t.store
	for i := range led {
		e := t.parts[i].entry
		if away != nil {
			waiting := e.calls.takeAll()
			next = append(next, func() { s.failWaiting(e, waiting, away) })
			continue
		}
		if batch := e.calls.takeBatch(); len(batch) > 0 {
			// Of several queues each goes on by itself.
			next = append(next, func() { go s.startTransaction(e, batch) })
		}
	}
	return next
}

// failWaiting ends calls that wait behind one that has found the store away: they would wait as long, for the
// same answer.
func (s *Store) failWaiting(e *entry, waiting []*applyCall, away error) {
	var calls []*applyCall
	for _, r := range waiting {
		if r.joint == nil {
			calls = append(calls, r)
			continue
		}
		// It leads all queues that it has entered but the last, out of which it was taken.
		r.joint.abandon(int(r.joint.entered.Load())-1, away)
	}
	s.failCalls(e.key, calls, away)
	s.notifyCallers(calls)
}

// abandon ends a transaction that leads some queues and has asked nothing yet.
func (t *jointTransaction) abandon(led int, err error) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.fail()
	next, done := t.leaveQueues(led, nil), t.change.Done
	done(err)
	for _, start := range next {
		start()
	}
}

// deliverDecisions hands the decisions out.
func (t *jointTransaction) deliverDecisions() {
	t.change.Granted = t.granted
	for i := range t.parts {
		p := &t.parts[i]
		p.Turn.Decision, p.Turn.Err = p.update.decisions[0], nil
	}
}

// forgetDecided forgets what is known of the records: their states were changed by decisions that did not
// become records.
func (t *jointTransaction) forgetDecided() {
	for i := range t.parts {
		k := &t.parts[i].entry.known
		k.current, k.state = false, nil
	}
}

// fail notes that the call ends with an error, and what is to be taken back for it.
func (t *jointTransaction) fail() {
	s := t.store
	s.counters.failures.Add(1)
	if len(t.unresolved) > 0 {
		s.counters.unknown.Add(1)
		s.undos.addUnresolvedJoint(t)
	}
	// One that takes something back for a call that failed is in the list of those already.
	if !t.pending && isGrantUndo(&t.parts[0].turn[0]) {
		s.undos.addFailedJoint(t)
	}
}

// postpone has a change that may wait go on waiting, when it has only met conflicts and so has changed
// nothing. It reports whether that is so.
func (t *jointTransaction) postpone(err error) bool {
	now, known := t.store.clock.storeTime()
	if !isConflict(err) || len(t.unresolved) > 0 || !known {
		return false
	}
	may := func(p jointPart) bool { return mayPostpone(p.turn[0]) }
	if !slices.ContainsFunc(t.parts, may) {
		return false
	}
	after := jittered(postponement)
	for i := range t.parts {
		p := &t.parts[i]
		p.Turn.Err, p.Turn.Decision = nil, gatehouse.Decision{
			Outcome: gatehouse.Refused, At: time.Unix(0, now), RetryAfter: after,
		}
		// The record of the grant is no member, which could bind.
		if p.Key.Kind == gatehouse.Grant {
			p.Turn.Decision.Outcome, p.Turn.Decision.RetryAfter = gatehouse.Granted, 0
		}
		p.decider.waits = p.Key.Kind != gatehouse.Grant && mayPostpone(p.turn[0])
	}
	t.change.Granted = false
	return true
}

// putBackLines puts requests that go on waiting back into their lines.
func (t *jointTransaction) putBackLines(err error) {
	for i := range t.parts {
		p := &t.parts[i]
		if p.line.line == nil {
			continue
		}
		var waiting []waiter
		if err == nil && p.decider.waits {
			one := waiter{
				since:  sinceOf(&p.turn[0], p.Turn.Decision.At.UnixNano()),
				ticket: p.turn[0].Ticket, nonBlocking: p.NonBlocking,
			}
			waiting = append(waiting, one)
		}
		t.store.watches.putBackWaiters(p.line.line, waiting)
	}
}
