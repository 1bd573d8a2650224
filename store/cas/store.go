// Package cas keeps controllers in a store that many servers share. Such a store need only do one thing:
// replace a record if it is still the one that was read. All else is here, once for all of them: trying
// again when another server was faster, learning what became of a change whose answer was lost, the turns of
// servers in whose lines somebody waits, the common clock.
package cas

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Config says how a store is used. The zero value works, except that Server is needed.
type Config struct {
	// Server is the number of this server among all that share the store: a random one, not 0. The
	// tickets of its commands begin with it: their upper 32 bits are the server.
	Server uint32

	// Timeout is how long one Apply may take; 0 means DefaultTimeout.
	Timeout time.Duration

	// Names is of how many controllers, at least, the last state is remembered, which saves a round trip: of
	// those that were used last. At most twice as many are. 0 means 100,000.
	Names int

	// Linger is how long a controller that is worth nothing stays in the store for its statistics; 0
	// means DefaultLinger, and 10 minutes for limiters and semaphores, whose limit later commands may leave
	// as it is.
	Linger time.Duration

	// Keep is how long a controller stays in the store at least, counted from its first command, even if that
	// was refused; 0 means 10 minutes.
	Keep time.Duration

	// Vanished is called for each record that this server knew and that the store does not have any more,
	// although it was to be kept for longer. ClockSet is called when the store's clock was set by a second
	// or more. They must not block. nil calls nothing.
	Vanished func(gatehouse.Key)
	ClockSet func(by time.Duration)

	// Holders is the most holds under one name; 0 means DefaultHolders. Every change rewrites all of them.
	Holders int
}

// The defaults of Config.
const (
	DefaultTimeout     = 500 * time.Millisecond
	defaultNames       = 100_000
	DefaultLinger      = time.Minute
	defaultLimitLinger = 10 * time.Minute
	defaultKeep        = 10 * time.Minute
	DefaultHolders     = 1000
)

// maxRecord is the largest record in bytes, which every change writes again. What does not make a record
// larger passes even so.
const maxRecord = 512 << 10

// A Store is a gate.Store on a Backend. Make one with New.
type Store struct {
	backend      Backend
	async        asyncBackend // the backend, if it is one
	config       Config
	traits       Traits
	retention    retention
	server       serverTraits
	clock        storeClock
	cache        cache
	outdated     outdatedShare
	budgets      budgets
	watches      watches
	undos        undoQueue
	absent       absentServers
	refusals     refusals
	transactions sync.Pool
	joints       sync.Pool
	stop         func() // of the backend's Listen
	counters     transactionCounters
	lastReply    atomic.Int64 // when the store answered last, by the clock's monotonic time
}

// New returns a store on backend. Close ends it, and leaves the backend to its owner.
func New(backend Backend, config Config) *Store {
	if config.Server == 0 {
		panic("swap: Config.Server is 0, want a random number")
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	config.Holders = cmp.Or(config.Holders, DefaultHolders)
	if config.Vanished == nil {
		config.Vanished = func(gatehouse.Key) {}
	}
	if config.ClockSet == nil {
		config.ClockSet = func(time.Duration) {}
	}
	s := &Store{backend: backend, config: config, traits: backend.Traits()}
	s.retention = retention{
		linger:       cmp.Or(config.Linger, DefaultLinger),
		limitLinger:  cmp.Or(config.Linger, defaultLimitLinger),
		keep:         cmp.Or(config.Keep, defaultKeep),
		expiresHolds: s.traits.ExpiresHolds,
	}
	s.server = serverTraits{
		number: config.Server, maxHolders: config.Holders, expiresHolds: s.traits.ExpiresHolds,
	}
	s.clock.start = time.Now()
	s.cache.most = cmp.Or(config.Names, defaultNames)
	s.undos.send, s.refusals.store = s.sendUndos, s
	s.absent.store, s.absent.barring = s, make(map[uint32]*barringServer)
	s.absent.backend, _ = backend.(absenceBackend)
	s.watches.names = make(map[gatehouse.Key]*line)
	s.async, _ = backend.(asyncBackend)
	s.joints.New = func() any { return newJointTransaction(s) }
	s.transactions.New = func() any { return makeTransaction(s) }
	// Last, because a wake may come at once and needs the rest.
	s.stop = backend.Listen(config.Server, s.onWake)
	return s
}

// Close stops listening. The store must not be used after it.
func (s *Store) Close() {
	s.stop()
	s.watches.stopTimers()
	s.undos.close()
	s.absent.close()
	s.refusals.flushAndClose()
	s.budgets.close()
}

// Len returns how many controllers this server remembers.
func (s *Store) Len() int { return s.cache.countNames() }

// Now is the time of the store as this server knows it; it is not ahead of it. The zero time means that the
// store has not answered yet.
func (s *Store) Now() time.Time {
	now, known := s.clock.storeTime()
	if !known {
		return time.Time{}
	}
	return time.Unix(0, now)
}

// Answered reports whether the store has answered anything in the last time of this length.
func (s *Store) Answered(within time.Duration) bool {
	last := s.lastReply.Load()
	return last != 0 && s.clock.elapsedTime()-last < int64(within)
}

// Latest is the time of the store or somewhat later. The zero time means that the store has not answered yet.
func (s *Store) Latest() time.Time {
	if _, known := s.clock.storeTime(); !known {
		return time.Time{}
	}
	return time.Unix(0, s.clock.latestTime())
}

// Apply implements gate.Store. Changes for one key that come while a round trip is under way go into the next
// one, all together. Done may be called before Apply returns.
func (s *Store) Apply(c *control.Change) {
	e, call := s.cache.entryFor(c.Key), queuedCall{change: c}
	if leads, _ := e.calls.beginOrJoin(call); leads {
		s.startTransaction(e, s.newTransaction(call))
	}
}

// serveCall has a call of the store's own served, and waits for that.
func (s *Store) serveCall(e *entry, c queuedCall) error {
	done := make(chan error, 1)
	c.change.Done = func(err error) { done <- err }
	if leads, _ := e.calls.beginOrJoin(c); leads {
		s.startTransaction(e, s.newTransaction(c))
	}
	return <-done
}

// sendUndos takes back all of these, which are of one name.
func (s *Store) sendUndos(key gatehouse.Key, together []pendingUndo) error {
	if together[0].joint != nil {
		return s.sendJointUndo(together[0].joint)
	}
	// All undos of a name go in one call, each with the identity by which a record says that it was done.
	c := queuedCall{change: new(control.Change), pending: true}
	for i := range together {
		c.change.Turns = append(c.change.Turns, together[i].undoing)
		c.undos = append(c.undos, &together[i].undo)
	}
	err := s.serveCall(s.cache.entryFor(key), c)
	if err == nil {
		s.counters.undone.Add(uint64(len(together))) // at most maxPendingUndos
	}
	return err
}

// startTransaction serves calls without keeping its caller, whose callback the backend calls. What does
// not go well at the first try goes on in a goroutine of its own.
func (s *Store) startTransaction(e *entry, t *transaction) {
	if j := t.batch.calls[0].joint; j != nil {
		t.release()
		j.enterQueues() // it leads this one now
		return
	}
	t.begin(e)
	if s.async == nil {
		go t.run()
		return
	}
	t.run()
}

// What follows a reply is decided by the goroutine that brings it if that takes only some microseconds.
const (
	fewTogether = 8
	smallState  = 1 << 10
)

// isQuick reports whether a number of turns, or calls, is decided on a record of size bytes in some
// microseconds.
func isQuick(turns, size int) bool { return turns <= fewTogether && size <= smallState }

// finishTransaction ends a transaction, notifies its callers, and begins the next one for those that have
// come meanwhile.
func (s *Store) finishTransaction(t *transaction, err error) {
	e := t.entry
	away := s.recordOutcome(t, err)
	if away != nil {
		// Those who came meanwhile would wait as long, for the same answer.
		waiting := e.calls.takeAll()
		notifyCallers(t.batch.calls)
		s.failWaiting(e, waiting, away)
		t.release()
		return
	}
	// Before the callers are told: one may come back with its next call from within.
	n := e.calls.endIfIdle()
	notifyCallers(t.batch.calls)
	t.reset()
	switch {
	case n == 0:
		s.transactions.Put(t)
	case isQuick(n, len(e.known.record.encodedState)):
		s.startNext(e, t)
	default:
		// Not before others have their answers, which are under way here.
		go s.startNext(e, t)
	}
}

// startNext serves all who wait at a name by now.
func (s *Store) startNext(e *entry, t *transaction) {
	t.batch.calls = e.calls.takeBatch(t.batch.calls)
	if len(t.batch.calls) == 0 {
		s.transactions.Put(t) // those who waited have left
		return
	}
	s.startTransaction(e, t)
}

// notifyCallers tells callers that they were served.
func notifyCallers(calls []queuedCall) {
	for i := range calls {
		calls[i].change.Done(calls[i].err)
	}
}

// Range visits the controllers of one kind whose names come after the given one, in the order of their
// names, until visit returns false. Those that come or go meanwhile may be missed.
func (s *Store) Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error {
	return s.backend.Range(ctx, kind, after, func(name string, data []byte) bool {
		// A damaged record is skipped, so that one does not hide all others.
		rec, err := decodeRecord(data)
		if err != nil || rec.encodedState == nil {
			return true // its error shows when it is used
		}
		state, err := control.Decode(kind, rec.encodedState)
		return err != nil || control.Absent(state) || visit(gatehouse.Key{Kind: kind, Name: name}, state)
	})
}

// TransactionStats count what a store went through since it was made.
type TransactionStats struct {
	// Swaps are the round trips that changed something, Reads those that did not, and Lost those in which
	// another server was faster.
	Swaps, Reads, Conflicts uint64
	// Unknown are the batches of calls that failed without it being known whether they took effect. Undone
	// is what was looked at again for calls that failed, and taken back if it was there.
	Unknown, Undone uint64
	// Failures are the calls that failed.
	Failures uint64
	// Vanished are the records that the store lost before their time, and ClockSteps the steps of its clock.
	Vanished, ClockSteps uint64
}

type transactionCounters struct {
	swaps, reads, conflicts, unknown, undone, failures, vanished, clockSteps atomic.Uint64
}

// Stats returns the counts.
func (s *Store) Stats() TransactionStats {
	c := &s.counters
	return TransactionStats{
		Swaps: c.swaps.Load(), Reads: c.reads.Load(), Conflicts: c.conflicts.Load(),
		Unknown: c.unknown.Load(), Undone: c.undone.Load(), Failures: c.failures.Load(),
		Vanished: c.vanished.Load(), ClockSteps: c.clockSteps.Load(),
	}
}
