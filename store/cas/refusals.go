package cas

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A refusal that leaves nothing behind but a count in the statistics is not stored by itself: it would cost
// a change, and make the changes of all other servers lose their races. It is counted here, and stored with
// the next change of the name, or within refusalsWithin.

const (
	// refusalsWithin is after how long at most the store knows of refusals, if it answers.
	refusalsWithin = 10 * time.Second
	// maxUntold is at how many names refusals may be counted here. At more they are stored one by one.
	maxUntold = 10_000
	// tellers is how many names are stored at once.
	tellers = 64
)

// An untold is how many refusals at a name the store does not know of. Only the leader of the entry's
// requests touches it, except listed.
type untold struct {
	count  int64
	since  time.Time   // when the controller was made: the count does not belong to any other
	listed atomic.Bool // in refusals.names
}

// The refusals are the names with refusals that are to be stored.
type refusals struct {
	store  *Store
	mu     sync.Mutex
	names  []*entry
	timer  *time.Timer
	closed bool
	work   sync.WaitGroup
}

// room reports whether another name may be added.
func (r *refusals) room() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closed && len(r.names) < maxUntold
}

// add has the refusals at a name stored within refusalsWithin.
func (r *refusals) add(e *entry) {
	if !e.untold.listed.CompareAndSwap(false, true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, e)
	r.arm()
}

// arm is called with the lock held.
func (r *refusals) arm() {
	if len(r.names) > 0 && r.timer == nil && !r.closed {
		r.work.Add(1)
		r.timer = time.AfterFunc(jittered(refusalsWithin*4/5), func() {
			defer r.work.Done()
			r.tell()
		})
	}
}

// takeAll takes the names.
func (r *refusals) takeAll() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.names
	r.names = nil
	return all
}

// tell stores the refusals at all names. Those at which that fails are left for the next time.
func (r *refusals) tell() {
	all := r.takeAll()
	var next atomic.Int64
	var away atomic.Bool
	var work sync.WaitGroup
	for range min(tellers, len(all)) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				e := all[i]
				e.untold.listed.Store(false)
				if away.Load() {
					r.add(e)
				} else if r.tellOne(e) {
					away.Store(true)
				}
			}
		})
	}
	work.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	r.arm()
}

// tellOne stores the refusals at one name, or leaves them for the next time. It reports whether the store is
// away, which would let each of the other names wait for its whole budget. One that answers is not: then only
// this name has failed, as with a record that cannot be read.
func (r *refusals) tellOne(e *entry) (away bool) {
	began := r.store.clock.elapsed()
	if r.store.serve(e, &request{telling: true}) == nil {
		return false
	}
	r.add(e)
	return r.store.answered.Load() < began
}

// close stores what is to be stored, once.
func (r *refusals) close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.work.Done()
	}
	r.mu.Unlock()
	r.work.Wait()
	r.tell()
}

// countUntold adds the refusals that the store does not know of to a state that was read from it.
func (e *entry) countUntold(state control.State) {
	if e.untold.count == 0 {
		return
	}
	if _, since := control.Refusals(state); state == nil || !since.Equal(e.untold.since) {
		e.untold.count = 0 // it is another controller than the one at which they were counted
		return
	}
	control.AddRefusals(state, e.untold.count)
}

// keepUntold keeps what a flight has counted and not stored.
func (s *Store) keepUntold(f *flight) {
	count, since := control.Refusals(f.state)
	if f.state == nil || count == f.refused {
		return
	}
	u := &f.entry.untold
	u.count, u.since = u.count+count-f.refused, since
	s.refusals.add(f.entry)
}

// mustTell reports whether what a flight has counted is to be stored at once, because it cannot be kept here.
func (s *Store) mustTell(f *flight) bool {
	count, _ := control.Refusals(f.state)
	return f.state != nil && count != f.refused && !f.entry.untold.listed.Load() && !s.refusals.room()
}

// alters reports whether a command leaves something behind even if it is refused. One that then waits does:
// what is stored about it is in order with what others store, whose clocks differ a little.
func alters(state control.State, cmd *gatehouse.Command) bool {
	switch cmd.Op {
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge, gatehouse.OpWait:
		return !cmd.Again && (cmd.MaxWait != 0 || control.Alters(state, cmd))
	}
	return false
}
