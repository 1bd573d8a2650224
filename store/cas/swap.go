// Package cas keeps controllers in a store that many servers share. Such a store need only do one thing:
// replace a record if it is still the one that was read. All else is here, once for all of them: trying
// again when another server was faster, learning what became of a change whose answer was lost, the turns of
// servers in whose lines somebody waits, the common clock.
package cas

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Config says how a store is used. The zero value works, but for Server.
type Config struct {
	// Server is the number of this server among all that share the store: a random one, not 0. The
	// tickets of its commands begin with it: their upper 32 bits are the server.
	Server uint32

	// Timeout is how long one Apply may take; 0 means DefaultTimeout.
	Timeout time.Duration

	// Names is of how many controllers, at least, the last state is remembered, which saves a round trip: of
	// those that were used last. At most twice as many are. 0 means DefaultNames.
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
	DefaultTimeout = 500 * time.Millisecond
	DefaultNames   = 100_000
	DefaultLinger  = time.Minute
	limitLinger    = 10 * time.Minute
	defaultKeep    = 10 * time.Minute
	DefaultHolders = 1000
)

// maxRecord is the largest record in bytes, which every change writes anew. What makes a record smaller
// passes even so.
const maxRecord = 512 << 10

// A Store is a gate.Store on a Backend. Make one with New.
type Store struct {
	backend  Backend
	starter  starter // the backend, if it is one
	config   Config
	limits   time.Duration // config.Linger of what has a limit
	traits   Traits
	clock    clock
	cache    cache
	budgets  budgets
	watches  watches
	amends   amends
	refusals refusals
	flights  sync.Pool
	requests sync.Pool // of those whose callers do not wait
	stop     func()    // of the backend's Listen
	figures  counters
	answered atomic.Int64 // when the store answered last, by the clock's monotonic time
}

// New returns a store on backend. Close ends it, and leaves the backend to its owner.
func New(backend Backend, config Config) *Store {
	if config.Server == 0 {
		panic("swap: Config.Server is 0, want a random number")
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.Names == 0 {
		config.Names = DefaultNames
	}
	limits := config.Linger
	if config.Linger == 0 {
		config.Linger, limits = DefaultLinger, limitLinger
	}
	if config.Keep == 0 {
		config.Keep = defaultKeep
	}
	if config.Holders == 0 {
		config.Holders = DefaultHolders
	}
	s := &Store{backend: backend, config: config, limits: limits, traits: backend.Traits()}
	s.clock.start = time.Now()
	s.cache.most = config.Names
	s.amends.store, s.refusals.store = s, s
	s.starter, _ = backend.(starter)
	s.requests.New = func() any { return new(request) }
	s.flights.New = func() any { return newFlight(s) }
	s.stop = backend.Listen(config.Server, s.woken)
	return s
}

// Close stops listening. Nobody may use the store after it.
func (s *Store) Close() {
	s.stop()
	s.watches.close()
	s.amends.close()
	s.refusals.close()
	s.budgets.close()
}

// Len returns how many controllers this server remembers.
func (s *Store) Len() int { return s.cache.len() }

// Slow tells a gate that Apply takes a round trip, whatever the key.
func (s *Store) Slow(gatehouse.Key) bool { return true }

// Now is the time of the store as this server knows it; it is not ahead of it. The zero time means that the
// store has not answered yet.
func (s *Store) Now() time.Time {
	now, known := s.clock.now()
	if !known {
		return time.Time{}
	}
	return time.Unix(0, now)
}

// Answered reports whether the store has answered anything in the last time of this length.
func (s *Store) Answered(within time.Duration) bool {
	last := s.answered.Load()
	return last != 0 && s.clock.elapsed()-last < int64(within)
}

// Latest is the time of the store or somewhat later. The zero time means that the store has not answered yet.
func (s *Store) Latest() time.Time {
	if _, known := s.clock.now(); !known {
		return time.Time{}
	}
	return time.Unix(0, s.clock.latest())
}

// Apply implements gate.Store. Commands for one key that come while a round trip is under way go into the
// next one, all together.
func (s *Store) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	return s.View(ctx, key, queue, nil)
}

// View is Apply, and shows the state as it is after the queue, nil when there is none, to view, which must be
// quick and must not change or keep it. It is not shown when there is an error.
func (s *Store) View(
	ctx context.Context, key gatehouse.Key, queue []control.Turn,
	view func(now time.Time, state control.State),
) error {
	if err := ctx.Err(); err != nil {
		return gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", key, err)
	}
	return s.ask(key, &request{queue: queue, view: view})
}

// ApplyAsync is Apply with a callback: done is called once, possibly before ApplyAsync returns. It must
// not block.
func (s *Store) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	r := s.requests.Get().(*request)
	r.queue, r.done = queue, done
	if e := s.cache.entry(key); e.enter(r) {
		s.launch(e, r.batch)
	}
}

// ask has a request served.
func (s *Store) ask(key gatehouse.Key, r *request) error {
	return s.serve(s.cache.entry(key), r)
}

// serve has a request served at an entry.
func (s *Store) serve(e *entry, r *request) error {
	if e.enter(r) || <-r.turn {
		s.lead(e, r.batch)
	}
	return r.err
}

// maxTurns is the most commands in one round trip.
const maxTurns = 4096

// lead serves a batch in the goroutine of its caller.
func (s *Store) lead(e *entry, batch []*request) {
	f := s.board(e, batch)
	s.leave(f, f.settle())
}

// launch serves a batch without keeping its caller, who is told by the backend. What does not go well at the
// first try goes on in a goroutine of its own.
func (s *Store) launch(e *entry, batch []*request) {
	if s.starter == nil {
		go s.lead(e, batch)
		return
	}
	f := s.board(e, batch)
	if over, err := f.plan(); over {
		s.leave(f, err)
		return
	}
	s.starter.Start(f.budget, e.key, f.change, f.answered)
}

// A batch is planned by whoever brings the answer to the one before it if that takes only some microseconds.
const (
	fewTogether = 8
	smallForm   = 1 << 10
)

// leave ends a flight, tells those it was for, and has those who have come meanwhile served.
func (s *Store) leave(f *flight, err error) {
	e, batch := f.entry, f.batch
	away := s.land(f, err)
	e.mu.Lock()
	waiting := e.waiting
	n := 0
	for turns := 0; n < len(waiting) && (n == 0 || turns < maxTurns); n++ {
		turns += len(waiting[n].queue)
	}
	switch {
	case away != nil: // those who came meanwhile would wait as long, for the same answer
		e.waiting, e.busy = nil, false
	case n == 0:
		e.busy = false
	default:
		e.waiting = append([]*request(nil), waiting[n:]...)
	}
	e.mu.Unlock()
	s.tell(batch)
	switch {
	case away != nil:
		s.fail(e.key, waiting, away)
		s.tell(waiting)
	case n > 0 && waiting[0].done != nil && n <= fewTogether && len(e.record.form) <= smallForm:
		s.launch(e, waiting[:n])
	case n > 0 && waiting[0].done != nil: // not before others have their answers, which are under way here
		go s.launch(e, waiting[:n])
	case n > 0:
		waiting[0].batch = waiting[:n]
		waiting[0].turn <- true
	}
}

// A request is one queue that is to be applied.
type request struct {
	queue []control.Turn
	view  func(now time.Time, state control.State)
	err   error
	batch []*request // that this one leads
	alone [1]*request

	telling bool // it has refusals stored that were not, and has no command

	owed  []*debt     // of its turns, which take back what calls that failed have left; nil for any other
	undos []debt      // of its undos, in their order, once it was in a flight
	turn  chan bool   // true when it is to lead, false when it was served
	done  func(error) // is told instead, if the caller does not wait
}

// tell tells requests that they were served.
func (s *Store) tell(requests []*request) {
	for _, r := range requests {
		switch done, err := r.done, r.err; {
		case done != nil:
			*r = request{}
			s.requests.Put(r)
			done(err)
		case r.turn != nil: // who leads, and needs no telling, leaves it unread
			r.turn <- false
		}
	}
}

// Range visits the controllers of one kind whose names come after the given one, in the order of their
// names, until visit returns false. Those that come or go meanwhile may be missed.
func (s *Store) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	return s.backend.Range(ctx, kind, after, func(name string, data []byte) bool {
		rec, err := decodeRecord(data)
		if err != nil || rec.form == nil {
			return true // it is told when it is used
		}
		state, err := control.Decode(kind, rec.form)
		return err != nil || control.Absent(state) || visit(gatehouse.Key{Kind: kind, Name: name}, state)
	})
}

// Figures count what a store went through since it was made.
type Figures struct {
	// Swaps are the round trips that changed something, Reads those that did not, and Lost those in which
	// another server was faster.
	Swaps, Reads, Lost uint64
	// Unknown are the batches of calls that failed without it being known whether they took effect. Amended
	// is what was looked at again for calls that failed, and taken back if it was there.
	Unknown, Amended uint64
	// Failures are the calls that failed.
	Failures uint64
	// Vanished are the records that the store lost before their time, and ClockSteps the steps of its clock.
	Vanished, ClockSteps uint64
}

type counters struct {
	swaps, reads, lost, unknown, amended, failures, vanished, clockSteps atomic.Uint64
}

// Figures returns the counts.
func (s *Store) Figures() Figures {
	c := &s.figures
	return Figures{
		Swaps: c.swaps.Load(), Reads: c.reads.Load(), Lost: c.lost.Load(),
		Unknown: c.unknown.Load(), Amended: c.amended.Load(), Failures: c.failures.Load(),
		Vanished: c.vanished.Load(), ClockSteps: c.clockSteps.Load(),
	}
}
