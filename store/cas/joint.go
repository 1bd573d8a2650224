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

// A jointTransaction serves a joint change, and with it others over the same names that wait behind it.
// Unlike a [transaction] it has several records to decide on:
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

	calls  []servedChange      // its own, and those that it serves with it
	riders []*jointTransaction // whose calls these were
	parts  []jointPart         // one for each name, and then one for the record of each grant
	names  int                 // how many are names

	entered atomic.Int32    // the queues that it leads or waits in
	late    atomic.Bool     // it has waited in them for too long
	timed   bool            // the function of the timer may be running, so that it is not used again
	timer   *time.Timer     // ends that waiting; nil if it has not waited
	budget  context.Context // ends when its time is up

	served     []control.JointPart // room for a decision
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

// A servedChange is one change that a joint transaction serves.
type servedChange struct {
	change  *control.JointChange
	record  int  // the part of its grant's record; -1 if it has none
	granted bool // by the last decision
}

// A jointPart is one name of a joint transaction.
type jointPart struct {
	*control.Part
	entry *entry
	line  takenLine
	undo  undo // if the turn takes back a grant

	turns      []control.Turn // as they came, one of each call that is about the name
	withheld   []bool         // by turn: its change took no effect, by the last decision
	waits      bool           // the last of them, as nothing but time is in the way of its change
	served     control.Part   // a copy of that, as it was decided on last
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
	t.retries, t.names = newRetryState(), n
	t.parts = slices.Grow(t.parts[:0], n)[:n]
	for i := range t.parts {
		p := &t.parts[i]
		// The turn is copied, since it may have to be decided more than once.
		p.Part, p.turns = &c.Parts[i], append(p.turns[:0], c.Parts[i].Turn)
		p.entry = s.cache.entryFor(c.Parts[i].Key)
		if isGrantUndo(&p.turns[0]) {
			p.undo = *newUndos(p.turns, 0)[0]
		}
	}
	one := servedChange{change: c, record: -1}
	if c.Parts[n-1].Key.Kind == gatehouse.Grant {
		t.names--
		one.record = t.names
	}
	t.calls = append(t.calls[:0], one)
	t.makeRoom()
	return t
}

// makeRoom makes room for what is asked about each part.
func (t *jointTransaction) makeRoom() {
	n := len(t.parts)
	t.keys, t.changes = slices.Grow(t.keys[:0], n)[:n], slices.Grow(t.changes[:0], n)[:n]
	t.served = slices.Grow(t.served[:0], n)[:n]
	for i := range t.parts {
		t.keys[i] = t.parts[i].Key
	}
}

// release lets go of what belongs to the caller, and keeps the room for another change.
func (t *jointTransaction) release() {
	for i := range t.parts {
		p := &t.parts[i]
		p.buffers.clear()
		clear(p.turns)
		p.Part, p.entry, p.line, p.undo, p.undos[0] = nil, nil, takenLine{}, undo{}, nil
		p.served, p.waits, p.recordFull = control.Part{}, false, false
		p.update = recordUpdate{} // one that fails before it decides has none
	}
	clear(t.calls)
	clear(t.riders)
	clear(t.changes)
	clear(t.served)
	*t = jointTransaction{
		store: t.store, replyCallback: t.replyCallback, calls: t.calls, riders: t.riders[:0],
		parts: t.parts, keys: t.keys, changes: t.changes, served: t.served,
	}
	t.store.joints.Put(t)
}

// begin begins to serve the transaction, all of whose queues it leads.
func (t *jointTransaction) begin() {
	s := t.store
	t.timed = t.timer != nil && !t.timer.Stop()
	t.takeRiders()
	t.budget = s.budgets.currentBudget(s.clock.elapsedTime(), s.config.Timeout)
	for i := range t.parts {
		p := &t.parts[i]
		p.line = s.watches.takeOut(p.Key, p.turns)
		if p.entry.stale.Swap(false) {
			p.entry.known.current = false
		}
	}
	// Such a backend waits for the store, and callers must not. It
	// ends when the change is made, or time is up.
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
		// onReplies goes on from there, and calls this again if there is more to ask.
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
	next := t.leaveQueues(len(t.parts), away)
	var room [4]func(error) // most serve few calls
	done := room[:0]
	for i := range t.calls {
		done = append(done, t.calls[i].change.Done)
	}
	for _, rider := range t.riders {
		rider.releaseUntimed()
	}
	t.releaseUntimed() // before the callbacks, which may need one for their next call
	for _, one := range done {
		one(err)
	}
	for _, start := range next {
		start()
	}
}

// releaseUntimed releases the transaction, unless something else may still look at it.
func (t *jointTransaction) releaseUntimed() {
	if !t.pending && !t.timed {
		t.release()
	}
}

// deliverDecisions hands the decisions out.
func (t *jointTransaction) deliverDecisions() {
	for i := range t.calls {
		call := &t.calls[i]
		call.change.Granted = call.granted
		for j := range call.change.Parts {
			at, turn := call.placeOf(j, i)
			answered := &call.change.Parts[j].Turn
			answered.Decision, answered.Err = t.parts[at].update.decisions[turn], nil
		}
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
	s.counters.failures.Add(uint64(len(t.calls)))
	if len(t.unresolved) > 0 {
		s.counters.unknown.Add(1)
		s.undos.addUnresolvedJoint(t)
	}
	// One that takes something back for a call that failed is in the list of those already.
	if !t.pending && isGrantUndo(&t.parts[0].turns[0]) {
		s.undos.addFailedJoint(t)
	}
}

// postpone has a change that may wait go on waiting, when it has only met conflicts and so has changed
// nothing. It reports whether that is so.
func (t *jointTransaction) postpone(err error) bool {
	if !isConflict(err) || len(t.unresolved) > 0 {
		return false
	}
	now, known := t.store.clock.storeTime()
	if !known {
		return false
	}
	may := func(p jointPart) bool { return mayPostpone(p.turns[0]) }
	if !slices.ContainsFunc(t.parts, may) {
		return false
	}
	after := jittered(postponement)
	for i := range t.parts {
		p := &t.parts[i]
		p.Turn.Err, p.Turn.Postponed, p.Turn.Decision = nil, true, gatehouse.Decision{
			Outcome: gatehouse.Refused, At: time.Unix(0, now), RetryAfter: after,
		}
		// The record of the grant is no member, which could bind.
		if p.Key.Kind == gatehouse.Grant {
			p.Turn.Decision.Outcome, p.Turn.Decision.RetryAfter = gatehouse.Granted, 0
		}
		p.decider.waits = p.Key.Kind != gatehouse.Grant && mayPostpone(p.turns[0])
	}
	t.calls[0].change.Granted = false
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
		// After an error the gate asks again for what still waits.
		if err == nil && p.decider.waits {
			one := waiter{
				since:  sinceOf(&p.turns[0], p.Turn.Decision.At.UnixNano()),
				ticket: p.turns[0].Ticket, nonBlocking: p.NonBlocking,
			}
			waiting = append(waiting, one)
		}
		t.store.watches.putBackWaiters(p.line.line, waiting)
		t.store.absent.noteBarred(p.Key, &p.update)
	}
}
