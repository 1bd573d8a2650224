package cas

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A flight serves all queues of one batch as one change.
type flight struct {
	store    *Store
	answered func(Reply, error) // goes on when the backend has answered

	entry   *entry
	batch   []*request
	budget  context.Context // ends when its time is up
	fresh   bool            // the record was read during this flight
	races   int             // that were lost
	losses  int             // of them those in which something was to be changed
	heard   bool            // the store has answered during this flight
	claims  bool            // the record is left to this flight by the others
	forRoom bool            // it has claimed it, or tried to, to wait for room
	pause   time.Duration   // before the store is asked again if it is away
	polled  time.Duration   // before it is asked again whether another server's claim is over
	change  *Change         // that is under way
	room    Change          // for it
	sent    int64           // when it was sent, by the clock

	turns    []control.Turn
	commands []gatehouse.Command // copies: a lost race must leave no trace in the caller's
	ranks    []int64             // since when each turn counts as waiting
	live     []int               // the turns that control.Serve is given, when not all of them are
	served   []control.Turn
	blocked  []int64 // until when another server's head bars the way of a turn; 0 when none does
	owed     []*debt // the turns that are not to be done twice, in their order
	late     bool    // some of them for calls that failed
	line     *line   // some of which this flight has in hand; nil when nobody watches
	rest     rest    // of that line
	full     bool    // the record can take no more
	telling  bool    // it stores refusals that were not
	refused  int64   // were counted before it

	form  []byte        // room for that of the state
	next  record        // what it makes of the entry's record
	state control.State // and of its state
	now   int64
	still int64 // how far that is ahead of the time
	write bool
	wake  []uint32
	begin []control.Hold
	end   []control.Hold

	open []attempt // changes of which it is not known whether they were made
	away bool      // the store did not answer
}

// An attempt is a change that was sent.
type attempt struct {
	nonce, base uint64 // its own, and that of the record it was to replace
	decisions   []gatehouse.Decision
	before      map[uint64]bool // the fencing tokens of the holds of that record
}

// backoff is how long is waited at first before an unreachable store is asked again. It doubles, up to
// maxBackoff, so that a store that is back is found soon.
const (
	backoff    = 10 * time.Millisecond
	maxBackoff = 100 * time.Millisecond
)

func newFlight(s *Store) *flight {
	f := &flight{store: s}
	f.answered = f.resume
	return f
}

// board begins the flight of a batch.
func (s *Store) board(e *entry, batch []*request) *flight {
	f := s.flights.Get().(*flight)
	f.entry, f.batch, f.pause, f.polled = e, batch, backoff, firstPoll
	f.load(batch)
	f.rest = s.watches.takeOut(e.key, f)
	f.budget = s.budgets.take(s.clock.elapsed(), s.config.Timeout)
	if e.doubtful.Swap(false) {
		e.known = false
	}
	return f
}

// land ends a flight, and fills in the decisions of its batch. It reports whether the store is away.
func (s *Store) land(f *flight, err error) (away error) {
	e := f.entry
	postponed := f.postpone(err)
	s.watches.putBack(f, err != nil && !postponed)
	if err == nil {
		f.deliver(f.batch, e)
	} else {
		e.known, e.state = false, nil
		if len(f.open) > 0 {
			s.figures.unknown.Add(1)
			s.amends.add(e.key, f)
		}
		for i := range f.batch {
			if !postponed || !f.deliverPostponed(f.batch[i], err) {
				s.fail(e.key, f.batch[i:i+1], err)
			}
		}
		if f.away {
			away = err
		}
	}
	f.clear()
	s.flights.Put(f)
	return away
}

// fail notes that requests end with an error.
func (s *Store) fail(key gatehouse.Key, requests []*request, err error) {
	s.figures.failures.Add(uint64(len(requests)))
	for _, r := range requests {
		r.err = err
		if r.owed == nil {
			s.amends.failed(key, r)
		}
	}
}

// load takes the queues of a batch over.
func (f *flight) load(batch []*request) {
	for _, r := range batch {
		f.telling = f.telling || r.telling
		if r.owed != nil {
			for i, d := range r.owed {
				d.turn = len(f.turns) + i
			}
			f.owed, f.late = append(f.owed, r.owed...), true
		} else {
			r.undos = newDebts(r.queue, len(f.turns))
			for i := range r.undos {
				f.owed = append(f.owed, &r.undos[i])
			}
		}
		f.turns = append(f.turns, r.queue...)
	}
	if cap(f.commands) < len(f.turns) {
		f.commands = make([]gatehouse.Command, len(f.turns))
	}
	f.commands = f.commands[:len(f.turns)]
}

// deliver hands the decisions out.
func (f *flight) deliver(batch []*request, e *entry) {
	i := 0
	for _, r := range batch {
		for j := range r.queue {
			r.queue[j].Decision = f.turns[i].Decision
			i++
		}
		if r.view != nil {
			r.view(time.Unix(0, f.now), e.state)
		}
	}
}

func (f *flight) clear() {
	clear(f.turns)
	clear(f.commands)
	clear(f.served)
	*f = flight{
		store: f.store, answered: f.answered,
		form: f.form[:0], turns: f.turns[:0], commands: f.commands[:0], live: f.live[:0],
		served: f.served[:0],
		ranks:  f.ranks[:0], blocked: f.blocked[:0], wake: f.wake[:0], begin: f.begin[:0], end: f.end[:0],
	}
}

// settle goes on until the change is made, or is found to be none, or time is up.
func (f *flight) settle() error {
	for {
		if over, err := f.plan(); over {
			return err
		}
		reply, err := f.store.backend.Swap(f.budget, f.entry.key, f.change)
		if over, err := f.hear(&reply, err); over {
			return err
		}
	}
}

// resume goes on when the backend has answered. It keeps the backend no longer than it takes to note that all
// is well.
func (f *flight) resume(reply Reply, err error) {
	if err != nil || !reply.Swapped {
		go f.goOn(reply, err)
		return
	}
	if over, err := f.hear(&reply, nil); over {
		f.store.leave(f, err)
		return
	}
	go func() { f.store.leave(f, f.settle()) }()
}

// goOn goes on after an answer that was not the one hoped for.
func (f *flight) goOn(reply Reply, err error) {
	over, err := f.hear(&reply, err)
	if !over {
		err = f.settle()
	}
	f.store.leave(f, err)
}

// plan finds out what to ask of the store. The flight is over if that is nothing.
func (f *flight) plan() (over bool, err error) {
	s := f.store
	if done, err := f.learn(); done || err != nil {
		return true, err
	}
	f.change, err = s.decide(f)
	if f.change == nil {
		return true, err
	}
	if f.change.Read {
		s.figures.reads.Add(1)
	} else {
		s.figures.swaps.Add(1)
	}
	f.sent = s.clock.elapsed()
	return false, nil
}

// hear works the answer of the store in, and reports whether the flight is over.
func (f *flight) hear(reply *Reply, err error) (over bool, why error) {
	e, change := f.entry, f.change
	if err != nil {
		return f.missed(err)
	}
	f.noteAnswer(reply)
	if reply.Swapped {
		return f.confirmed(reply)
	}
	if f.store.vanished(e, reply) {
		f.store.noteVanished(e.key)
	}
	if err := e.take(reply); err != nil {
		return true, unavailable(e.key, err)
	}
	if !change.Read && slices.Contains(e.record.nonces(), change.Nonce) {
		e.untold.count = 0
		return true, nil // it was made after all, as when it was sent twice on its way
	}
	return f.retryTransaction(reply)
}

// confirmed goes on when the change was made, or the record that was decided on is still the present one.
func (f *flight) confirmed(reply *Reply) (over bool, err error) {
	e := f.entry
	if err := e.adopt(f, reply); err != nil || !f.change.Read {
		return true, err
	}
	if len(e.gone) > 0 {
		f.fresh = true // what was decided holds no more, as holds have ended
		return false, nil
	}
	f.store.keepUntold(f)
	return true, nil
}

// noteAnswer notes what any answer tells: that the store is there, its time, and how far away it is.
func (f *flight) noteAnswer(reply *Reply) {
	s := f.store
	received := s.clock.elapsed()
	s.answered.Store(received)
	if step := s.clock.note(reply.Now, f.sent, received); step != 0 {
		s.clockSet(step)
	}
	f.heard = true
	f.entry.trip, f.entry.heard = time.Duration(received-f.sent), received
}

// retryTransaction counts a race that was lost, and sees that there is time for another try. That is not put
// off, as what was read is soon old, unless another server has a claim on the record.
func (f *flight) retryTransaction(reply *Reply) (over bool, why error) {
	f.fresh, f.races = true, f.races+1
	if f.change.If != noVersion {
		f.entry.races++
	}
	if !f.change.Read {
		f.losses++
		f.store.figures.lost.Add(1)
		f.claims = f.change.Claim > 0 && reply.Claimed == 0
	}
	inTime := f.budget.Err() == nil
	if reply.Claimed > 0 && inTime {
		inTime = f.awaitClaim(reply.Claimed)
	}
	if !inTime || f.losses > 0 && !f.canBeAnswered() {
		return true, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w, %d times within %s",
			f.entry.key, ErrLost, f.races, f.store.config.Timeout)
	}
	return false, nil
}

// canBeAnswered reports whether there is time for the answer to another try, as far as that can be told. A
// try that ends without one could only leave behind what nobody knows of.
func (f *flight) canBeAnswered() bool {
	deadline, ok := f.budget.Deadline()
	return !ok || time.Until(deadline) > min(f.entry.trip, f.store.config.Timeout/10)
}

// missed notes what is not known of a change that the store has not answered, and waits for a while before it
// is asked again.
func (f *flight) missed(err error) (over bool, why error) {
	e := f.entry
	canHaveChanged := !f.change.Read && f.change.If != noVersion
	if canHaveChanged && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		f.open = append(f.open, f.attempt())
		for _, d := range f.owed {
			d.noteSent(&e.record)
		}
	}
	e.known, f.fresh = false, false
	if errors.Is(err, ErrRefused) || !sleep(f.budget, jittered(f.pause)) {
		f.away = !f.heard // others may have the answers that this one ran out of time for
		return true, unavailable(e.key, err)
	}
	f.pause = min(2*f.pause, maxBackoff)
	return false, nil
}

// attempt is the change under way.
func (f *flight) attempt() attempt {
	a := attempt{nonce: f.change.Nonce, decisions: make([]gatehouse.Decision, len(f.turns))}
	if nonces := f.entry.record.nonces(); len(nonces) > 0 {
		a.base = nonces[0]
	}
	for i := range f.turns {
		a.decisions[i] = f.turns[i].Decision
	}
	a.before = f.entry.fences()
	return a
}

// learn looks whether a change whose answer was lost has been made after all, now that the record was read.
// It is an error if that cannot be told any more.
func (f *flight) learn() (done bool, err error) {
	e := f.entry
	if len(f.open) == 0 || !f.fresh {
		return false, nil
	}
	learnt := true
	for i := range f.open {
		made, known := e.record.made(&f.open[i])
		if made {
			for j := range f.turns {
				f.turns[j].Decision = f.open[i].decisions[j]
			}
			f.open, e.untold.count = nil, 0
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

// sleep waits, and reports false if ctx has ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
