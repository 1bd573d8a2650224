package swap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A flight serves all queues of one batch as one change.
type flight struct {
	turns    []control.Turn
	commands []gatehouse.Command // copies: a lost race must leave no trace in the caller's
	live     []int               // the turns that control.Serve is given, when not all of them are
	served   []control.Turn
	blocked  []int64 // until when another server's head bars the way of a turn; 0 when none does

	next  record        // what it makes of the entry's record
	state control.State // and of its state
	now   int64
	write bool
	wake  []uint32
	begin []control.Hold
	end   []control.Hold

	open []attempt // changes of which it is not known whether they were made
}

// An attempt is a change that was sent.
type attempt struct {
	nonce, base uint64 // its own, and that of the record it was to replace
	decisions   []gatehouse.Decision
	held        map[uint64]bool // the fencing tokens before it
}

// backoff is how long is waited at first before an unreachable store is asked again; it doubles.
const backoff = 10 * time.Millisecond

// fly serves a batch of requests, and fills in their decisions.
func (s *Store) fly(e *entry, batch []*request) error {
	f := s.flights.Get().(*flight)
	defer s.flights.Put(f)
	f.load(batch)
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	err := s.settle(ctx, e, f)
	if err != nil {
		s.figures.failures.Add(1)
		e.known, e.state = false, nil
		if len(f.open) > 0 {
			s.figures.unknown.Add(1)
		}
		s.amends.add(e.key, f)
	} else {
		f.deliver(batch, e)
	}
	for _, r := range batch {
		r.err = err
	}
	f.clear()
	return err
}

// load takes the queues of a batch over.
func (f *flight) load(batch []*request) {
	for _, r := range batch {
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
		turns: f.turns[:0], commands: f.commands[:0], live: f.live[:0], served: f.served[:0],
		blocked: f.blocked[:0], wake: f.wake[:0], begin: f.begin[:0], end: f.end[:0],
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
			s.adopt(e, f, change, &reply)
			return nil
		case err == nil:
			if err := e.take(&reply); err != nil {
				return unavailable(e.key, err)
			}
			fresh = true
			if races++; !change.Read {
				s.figures.lost.Add(1)
			}
			if ctx.Err() != nil {
				return unavailable(e.key, fmt.Errorf("lost %d races in a row: %w", races, ctx.Err()))
			}
			yield(ctx, races)
		case errors.Is(err, ErrRefused):
			return unavailable(e.key, err)
		default:
			e.known, fresh = false, false
			if !sleep(ctx, jittered(pause)) {
				return unavailable(e.key, err)
			}
			pause *= 2
		}
	}
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
	e.restore() // the state as it was before
	if semaphore, ok := e.state.(*control.Semaphore); ok {
		a.held = make(map[uint64]bool)
		for _, h := range semaphore.Holds() {
			a.held[h.Fence] = true
		}
	}
	f.open = append(f.open, a)
	return reply, err
}

// learn looks whether a change whose answer was lost has been made after all, now that the record was read.
// It is an error if that cannot be told any more.
func (f *flight) learn(e *entry, fresh bool) (done bool, err error) {
	if !fresh {
		return false, nil
	}
	nonces := e.record.nonces()
	for _, a := range f.open {
		switch {
		case slices.Contains(nonces, a.nonce):
			for i := range f.turns {
				f.turns[i].Decision = a.decisions[i]
			}
			f.open = nil
			return true, nil
		case len(nonces) < maxNonces: // they are all since the record began, and it is none of them
		case !slices.Contains(nonces, a.base):
			return false, unavailable(e.key, errOverrun)
		}
	}
	return false, nil
}

var errOverrun = errors.New("an answer was lost, and so much has happened since that it cannot be learnt")

// unavailable is the error of a call that the store did not answer.
func unavailable(key gatehouse.Key, err error) error {
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
	if e.record, err = decodeRecord(reply.Record); err != nil {
		e.known = false
		return err
	}
	if e.record.form != nil {
		if e.state, err = control.Decode(e.key.Kind, e.record.form); err != nil {
			e.known = false
			return err
		}
	}
	e.mourn(reply.Live)
	return nil
}

// mourn notes which holds the backend has ended.
func (e *entry) mourn(live map[uint64]bool) {
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
func (s *Store) adopt(e *entry, f *flight, change *Change, reply *Reply) {
	e.known, e.minFence = true, reply.MinFence
	switch {
	case change.Read:
		e.restore()
	case change.Next == nil:
		e.version, e.record, e.state = 0, record{}, nil
	default:
		e.version, e.record, e.state = reply.Version, f.next, f.state
	}
	e.mourn(reply.Live)
}

// restore makes the state what the record says: what was refused was counted in it, and not stored.
func (e *entry) restore() {
	e.state = nil
	if e.record.form != nil {
		e.state, _ = control.Decode(e.key.Kind, e.record.form) // which it was decoded from before
	}
}

// yield lets others go first after several lost races.
func yield(ctx context.Context, races int) {
	const patient, longest = 3, 8 // races
	if races > patient {
		sleep(ctx, rand.N(time.Millisecond<<min(races-patient, longest)))
	}
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
