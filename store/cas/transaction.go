package cas

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A transaction serves all queues of one batch as one change. It keeps deciding until the store has confirmed
// a decision:
//
//	begin ──► decide ──────────────► nothing to ask: done
//	            │  ▲
//	            │  ├── conflict: another server was first, or has a claim, which is waited for
//	            │  ├── claimed: there is no room yet, which is waited for
//	       send │  ├── confirmed, but the backend has ended holds since
//	            │  ├── no reply: wait a little and read; an unresolved change was not made
//	            ▼  │
//	           asked ──► made, confirmed, or found to be made after no reply: done
//	               └───► refused, unreadable, or no time is left: failed
//
// If a transaction that has failed has unresolved changes, their grants become pending undos; those of its
// callers who wait go on waiting if there were conflicts only.
type transaction struct {
	store         *Store
	replyCallback func(Reply, error) // goes on when the backend has answered

	entry  *entry
	batch  callBatch
	line   takenLine
	budget context.Context // ends when its time is up

	in         decideInput  // what it was decided on last
	update     recordUpdate // what was decided last
	buffers    decideBuffers
	recordFull bool // the record can take no more

	change     RecordChange // that is under way
	sentAt     int64        // when it was sent, by the clock
	retries    retryState
	claim      claimState
	unresolved []attempt // changes of which it is not known whether they were made
	fresh      bool      // the record was read during this transaction
	replied    bool      // the store has answered during this transaction
	unanswered bool      // the store did not answer
}

func makeTransaction(s *Store) *transaction {
	t := &transaction{store: s}
	t.replyCallback = t.onReply
	return t
}

// newTransaction returns a transaction of these calls.
func (s *Store) newTransaction(calls ...queuedCall) *transaction {
	t := s.transactions.Get().(*transaction)
	t.batch.calls = append(t.batch.calls, calls...)
	return t
}

// begin begins the transaction of its calls.
func (t *transaction) begin(e *entry) {
	s := t.store
	t.entry, t.retries = e, newRetryState()
	// The calls are known before the line is asked for its rest: those of this transaction are taken out of
	// it, so that none of them counts twice.
	t.batch.addTurns(t.batch.calls)
	t.line = s.watches.takeOut(e.key, t.batch.turns)
	t.budget = s.budgets.currentBudget(s.clock.elapsedTime(), s.config.Timeout)
	// A wake came since the last transaction: what is remembered is not the present record any more.
	// Reading it costs a round trip, but a change on a stale version would only conflict.
	if e.stale.Swap(false) {
		e.known.current = false
	}
}

// recordOutcome ends a transaction, and fills in the decisions of its batch. It reports whether the store
// is away.
func (s *Store) recordOutcome(t *transaction, err error) (away error) {
	e := t.entry
	// Postponing comes first: it fills in the decisions by which the line below learns who keeps waiting.
	postponed := t.postponeWaiters(err)
	if err == nil || postponed {
		s.watches.putBack(t.line, t.batch.turns, t.update.decisions)
		s.absent.noteBarred(e.key, &t.update)
	} else {
		s.watches.putBack(t.line, nil, nil)
	}
	if err == nil {
		t.batch.deliverDecisions(&t.update, e.known.state)
	} else {
		// After an error it is not known what the store has. The state was changed by decisions that did
		// not become a record, so it must not be used again.
		e.known.current, e.known.state = false, nil
		if len(t.unresolved) > 0 {
			// Changes whose replies were lost may have granted something. No caller will learn of it, so it
			// is undone later.
			s.counters.unknown.Add(1)
			s.undos.addUnresolved(e.key, t.batch.turns, t.unresolved)
		}
		t.failBatch(postponed, err)
		if t.unanswered {
			away = err
		}
	}
	return away
}

// postponeWaiters has those go on waiting who may wait, when a transaction has only met conflicts and so
// has changed nothing. It reports whether that is so.
func (t *transaction) postponeWaiters(err error) bool {
	// Only conflicts: a change of unknown outcome may have granted something, and then a waiter must not go
	// on as if refused.
	if !errors.Is(err, ErrConflict) || len(t.unresolved) > 0 {
		return false
	}
	now, known := t.store.clock.storeTime()
	if !known {
		return false
	}
	t.update.decisions = t.batch.postponeWaiters(now)
	return true
}

// failBatch ends the calls with an error, those aside that are postponed.
func (t *transaction) failBatch(postponed bool, err error) {
	key, calls := t.entry.key, t.batch.calls
	for i := range calls {
		if postponed {
			failed, is := t.batch.deliverPostponed(&calls[i], t.update.decisions, err)
			if is && len(failed.change.Turns) > 0 {
				t.store.failCalls(key, []queuedCall{failed}, err)
			}
			if is {
				continue
			}
		}
		t.store.failCalls(key, calls[i:i+1], err)
	}
}

// failCalls notes that calls end with an error.
func (s *Store) failCalls(key gatehouse.Key, calls []queuedCall, err error) {
	s.counters.failures.Add(uint64(len(calls)))
	for i := range calls {
		// A call that itself undoes something has its undos in the queue already, which tries them again.
		c := &calls[i]
		c.err = err
		if c.pending {
			continue
		}
		if c.undos == nil { // it has not been in a transaction
			c.undos = newUndos(c.change.Turns, 0)
		}
		s.undos.addFailed(key, c.change.Turns, c.undos)
	}
}

// release gives the transaction back.
func (t *transaction) release() {
	t.reset()
	t.store.transactions.Put(t)
}

// reset lets go of what belongs to the callers.
func (t *transaction) reset() {
	clear(t.batch.calls)
	clear(t.batch.turns)
	t.buffers.clear()
	t.batch = callBatch{calls: t.batch.calls[:0], turns: t.batch.turns[:0]}
	t.entry, t.line, t.budget, t.claim, t.unresolved = nil, takenLine{}, nil, claimState{}, nil
	t.recordFull, t.fresh, t.replied, t.unanswered = false, false, false, false
	t.update = recordUpdate{} // one that fails before it decides has none
}

// clear lets go of what the last decision was about. A transaction that decides nothing has nothing to clear.
func (b *decideBuffers) clear() {
	clear(b.queue)
	clear(b.decisions)
	b.queue, b.decisions = b.queue[:0], b.decisions[:0]
}

// budgets hands out the time that a transaction may take. Making a context for each costs a third of what a
// transaction allocates, so those that begin within a grain share one.
type budgets struct {
	mu      sync.Mutex
	present context.Context
	cancel  context.CancelFunc // of the present one; time ends it, as it ended those before
	until   int64              // when the next one is made, by the clock's monotonic time
}

// budgetGrain is how much earlier than after its whole time a transaction may have to end.
const budgetGrain = 5 * time.Millisecond

// currentBudget returns a context that ends within timeout.
func (b *budgets) currentBudget(now int64, timeout time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.present == nil || now >= b.until {
		b.present, b.cancel = context.WithTimeout(context.Background(), timeout)
		b.until = now + int64(min(budgetGrain, timeout/10))
	}
	return b.present
}

// close ends the present one.
func (b *budgets) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
