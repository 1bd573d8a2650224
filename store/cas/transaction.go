package cas

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A transaction serves all queues of one batch as one change. It keeps deciding until the store has confirmed
// a decision:
//
//	begin ──► decide ──────────────► nothing to ask: done
//	            │    ▲
//	       send │    │ retry, on the record in the reply
//	            ▼    │
//	         wait ───┴── conflict: another server was first, or has a claim
//	        │   │   │
//	        │   │   └─► no reply: unresolved, wait a little and read ──► made after all: done
//	        │   │                                                  └──► not made: decide
//	        │   └─────► refused: failed
//	        └─────────► made or confirmed: done
//
// A transaction without time left fails. If it has unresolved changes then, their grants become pending
// undos.
type transaction struct {
	store         *Store
	replyCallback func(Reply, error) // goes on when the backend has answered

	entry          *entry
	batch          []*applyCall
	budget         context.Context // ends when its time is up
	fresh          bool            // the record was read during this transaction
	retries        int             // that were lost
	conflicts      int             // of them those in which something was to be changed
	replied        bool            // the store has answered during this transaction
	hasClaim       bool            // the record is left to this transaction by the others
	claimedForRoom bool            // it has claimed it, or tried to, to wait for room
	retryPause     time.Duration   // before the store is asked again if it is away
	claimPoll      time.Duration   // before it is asked again whether another server's claim is over
	change         *RecordChange   // that is under way
	changeBuffer   RecordChange    // for it
	sentAt         int64           // when it was sent, by the clock

	turns      []control.Turn // their commands are the callers'; a conflict leaves no trace there
	undos      []*undo        // the turns that are not to be done twice, in their order
	hasPending bool           // some of them for calls that failed
	line       *line          // some of which this transaction has taken out; nil when the name has no watch
	others     lineRest       // of that line
	recordFull bool           // the record can take no more
	flushing   bool           // it stores refusals that were not

	update      recordUpdate  // what was decided last
	buffers     decideBuffers // for it
	stateBuffer []byte        // room for the encoded state

	unresolved []attempt // changes of which it is not known whether they were made
	unanswered bool      // the store did not answer
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

// beginTransaction begins the transaction of a batch.
func (s *Store) beginTransaction(e *entry, batch []*applyCall) *transaction {
	t := s.transactions.Get().(*transaction)
	t.entry, t.batch, t.retryPause, t.claimPoll = e, batch, backoff, firstPoll
	// The calls are known before the line is asked for its rest: those of this transaction are taken out of
	// it, so that none of them counts twice.
	t.addCalls(batch)
	t.others = s.watches.takeOut(e.key, t)
	t.budget = s.budgets.currentBudget(s.clock.elapsedTime(), s.config.Timeout)
	// A wake came since the last transaction: what is remembered is not the present record any more.
	// Reading it costs a round trip, but a change on a stale version would only conflict.
	if e.stale.Swap(false) {
		e.known.current = false
	}
	return t
}

// recordOutcome ends a transaction, and fills in the decisions of its batch. It reports whether the store
// is away.
func (s *Store) recordOutcome(t *transaction, err error) (away error) {
	e := t.entry
	// Postponing comes first: it fills in the decisions by which the line below learns who keeps waiting.
	postponed := t.postponeWaiters(err)
	s.watches.putBack(t, err != nil && !postponed)
	if err == nil {
		t.deliverDecisions()
	} else {
		// After an error it is not known what the store has. The state was changed by decisions that did
		// not become a record, so it must not be used again.
		e.known.current, e.known.state = false, nil
		if len(t.unresolved) > 0 {
			// Changes whose replies were lost may have granted something. No caller will learn of it, so it
			// is undone later.
			s.counters.unknown.Add(1)
			s.undos.addUnresolved(e.key, t.turns, t.unresolved)
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
		// A call that itself undoes something has its undos in the queue already, which tries them again.
		r.err = err
		if r.pendingUndos != nil {
			continue
		}
		undos := r.ownUndos
		if undos == nil { // it has not been in a transaction
			undos = newUndos(r.queue, 0)
		}
		s.undos.addFailed(key, r.queue, undos)
	}
}

// addCalls takes the queues of a batch over.
func (t *transaction) addCalls(batch []*applyCall) {
	for _, r := range batch {
		t.flushing = t.flushing || r.flushing
		if r.pendingUndos != nil {
			// The undos of earlier failures keep their identities from one transaction to the next: a
			// record that names one of them has seen it done.
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
}

// deliverDecisions hands the decisions out.
func (t *transaction) deliverDecisions() {
	i := 0
	for _, r := range t.batch {
		for j := range r.queue {
			r.queue[j].Decision = t.update.decisions[i]
			i++
		}
		if r.view != nil {
			r.view(time.Unix(0, t.update.now), t.entry.known.state)
		}
	}
}

func (t *transaction) resetForReuse() {
	clear(t.turns)
	t.buffers.forgetCommands()
	*t = transaction{
		store: t.store, replyCallback: t.replyCallback,
		// The buffers keep their room: a transaction is taken from a pool.
		stateBuffer: t.stateBuffer[:0], turns: t.turns[:0], buffers: t.buffers,
	}
}
