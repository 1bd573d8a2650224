package swap

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
	turns    []control.Turn
	commands []gatehouse.Command // copies: a lost race must leave no trace in the caller's
	ranks    []int64             // since when each turn counts as waiting
	live     []int               // the turns that control.Serve is given, when not all of them are
	served   []control.Turn
	blocked  []int64 // until when another server's head bars the way of a turn; 0 when none does
	owed     []debt  // the turns that are not to be done twice
	late     bool    // some of them for calls that failed
	line     *line   // some of which this flight has in hand; nil when nobody watches
	rest     rest    // of that line
	full     bool    // the record can take no more

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

// fly serves a batch of requests, and fills in their decisions. It reports whether the store is away.
func (s *Store) fly(e *entry, batch []*request) (away error) {
	f := s.flights.Get().(*flight)
	defer s.flights.Put(f)
	f.load(batch)
	f.rest = s.watches.takeOut(e.key, f)
	err := s.settle(s.budgets.take(s.clock.elapsed(), s.config.Timeout), e, f)
	s.watches.putBack(f, err != nil)
	if err != nil {
		e.known, e.state = false, nil
		if len(f.open) > 0 {
			s.figures.unknown.Add(1)
			s.amends.add(e.key, f)
		}
		s.fail(e.key, batch, err)
		if f.away {
			away = err
		}
	} else {
		f.deliver(batch, e)
	}
	f.clear()
	return away
}

// fail notes that requests end with an error.
func (s *Store) fail(key gatehouse.Key, requests []*request, err error) {
	s.figures.failures.Add(uint64(len(requests)))
	for _, r := range requests {
		if r.err = err; r.owed == nil {
			s.amends.failed(key, r)
		}
	}
}

// load takes the queues of a batch over.
func (f *flight) load(batch []*request) {
	for _, r := range batch {
		if r.owed != nil {
			r.owed.turn = len(f.turns)
			f.owed, f.late = append(f.owed, *r.owed), true
		} else {
			r.undos = newDebts(r.queue, len(f.turns))
			f.owed = append(f.owed, r.undos...)
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
		form: f.form[:0], turns: f.turns[:0], commands: f.commands[:0], live: f.live[:0],
		served: f.served[:0],
		ranks:  f.ranks[:0], blocked: f.blocked[:0], wake: f.wake[:0], begin: f.begin[:0], end: f.end[:0],
	}
}

// settle goes on until the change is made, or is found to be none, or time is up.
func (s *Store) settle(ctx context.Context, e *entry, f *flight) error {
	fresh, pause := false, backoff
	if e.doubtful.Swap(false) {
		e.known = false
	}
	for races := 0; ; {
		if done, err := f.learn(e, fresh); done || err != nil {
			return err
		}
		change, err := s.decide(e, f, fresh)
		if err != nil {
			return err
		}
		if change == nil { // nothing is to be changed, and it was read just now
			return nil
		}
		reply, err := s.send(ctx, e, f, change)
		switch {
		case err == nil && reply.Swapped:
			if err := e.adopt(f, change, &reply); err != nil || !change.Read || len(e.gone) == 0 {
				return err
			}
			fresh = true // what was decided holds no more, as holds have ended
		case err == nil:
			if err := e.take(&reply); err != nil {
				return unavailable(e.key, err)
			}
			if !change.Read && slices.Contains(e.record.nonces(), change.Nonce) {
				return nil // it was made after all, as when it was sent twice on its way
			}
			if err := s.lost(ctx, e, change, races); err != nil {
				return err
			}
			fresh, races = true, races+1
		default:
			e.known, fresh = false, false
			if errors.Is(err, ErrRefused) || !sleep(ctx, jittered(pause)) {
				f.away = true
				return unavailable(e.key, err)
			}
			pause = min(2*pause, maxBackoff)
		}
	}
}

// lost counts a race that was lost, and sees that there is time for another one. That is not put off: what
// was read is soon old.
func (s *Store) lost(ctx context.Context, e *entry, change *Change, races int) error {
	if !change.Read {
		s.figures.lost.Add(1)
	}
	if ctx.Err() != nil {
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w, %d times: %w",
			e.key, ErrLost, races+1, ctx.Err())
	}
	return nil
}

// send asks the backend, and notes what is not known of the change if it does not answer.
func (s *Store) send(ctx context.Context, e *entry, f *flight, change *Change) (Reply, error) {
	if change.Read {
		s.figures.reads.Add(1)
	} else {
		s.figures.swaps.Add(1)
	}
	sent := s.clock.elapsed()
	reply, err := s.backend.Swap(ctx, e.key, change)
	if err == nil {
		s.clock.note(reply.Now, sent, s.clock.elapsed())
		return reply, nil
	}
	if change.Read || errors.Is(err, ErrRefused) || errors.Is(err, ErrNotSent) {
		return reply, err
	}
	a := attempt{nonce: change.Nonce, decisions: make([]gatehouse.Decision, len(f.turns))}
	if nonces := e.record.nonces(); len(nonces) > 0 {
		a.base = nonces[0]
	}
	for i := range f.turns {
		a.decisions[i] = f.turns[i].Decision
	}
	a.before = e.fences()
	f.open = append(f.open, a)
	return reply, err
}

// fences are the fencing tokens of the holds in the record.
func (e *entry) fences() map[uint64]bool {
	if e.record.form == nil {
		return nil
	}
	state, _ := control.Decode(e.key.Kind, e.record.form) // it was decoded before
	semaphore, ok := state.(*control.Semaphore)
	if !ok {
		return nil
	}
	fences := make(map[uint64]bool)
	for _, h := range semaphore.Holds() {
		fences[h.Fence] = true
	}
	return fences
}

// learn looks whether a change whose answer was lost has been made after all, now that the record was read.
// It is an error if that cannot be told any more.
func (f *flight) learn(e *entry, fresh bool) (done bool, err error) {
	if len(f.open) == 0 || !fresh {
		return false, nil
	}
	learnt := true
	for i := range f.open {
		made, known := e.record.made(&f.open[i])
		if made {
			for j := range f.turns {
				f.turns[j].Decision = f.open[i].decisions[j]
			}
			f.open = nil
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

// take notes the present record.
func (e *entry) take(reply *Reply) error {
	e.known, e.version, e.minFence = true, reply.Version, reply.MinFence
	e.record, e.state, e.gone = record{}, nil, nil
	if reply.Record == nil {
		return nil
	}
	var err error
	if e.record, err = decodeRecord(reply.Record); err == nil {
		err = e.decode()
	}
	if err != nil {
		e.known = false
		return err
	}
	e.noteEnded(reply.Live)
	return nil
}

// decode makes the state of the record, when what was made of it has been decided on in vain.
func (e *entry) decode() (err error) {
	e.state = nil
	if e.record.form != nil {
		e.state, err = control.Decode(e.key.Kind, e.record.form)
	}
	return err
}

// noteEnded notes which holds the backend has ended.
func (e *entry) noteEnded(live map[uint64]bool) {
	e.gone = nil
	semaphore, ok := e.state.(*control.Semaphore)
	if live == nil || !ok {
		return
	}
	for _, h := range semaphore.Holds() {
		if !live[h.Fence] {
			e.gone = append(e.gone, h)
		}
	}
}

// adopt takes over what a change has made of the record.
func (e *entry) adopt(f *flight, change *Change, reply *Reply) error {
	e.known = true
	if reply.MinFence != 0 {
		e.minFence = reply.MinFence
	}
	if change.Read {
		// What was decided stands. The state counted refusals that were not stored.
		if err := e.decode(); err != nil {
			return err
		}
		e.noteEnded(reply.Live)
		return nil
	}
	e.version, e.record, e.state = reply.Version, f.next, f.state
	e.noteEnded(reply.Live)
	return nil
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
