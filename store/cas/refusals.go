package cas

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A refusal that leaves nothing behind but a count in the statistics is not stored by itself: it would cost
// a change, and make the changes of all other servers conflict. It is counted here, and stored with the
// next change of the name, or within refusalsWithin.

const (
	// refusalsWithin is after how long at most the store knows of refusals, if it answers.
	refusalsWithin = 10 * time.Second
	// maxUnstored is at how many names refusals may be counted here. At more they are stored one by one.
	maxUnstored = 10_000
	// flushers is how many names are stored at once.
	flushers = 64
)

// An unstoredRefusals is how many refusals at a name the store does not know of. Only the leader of the
// entry's requests touches it, except listed.
type unstoredRefusals struct {
	refusalCount
	listed atomic.Bool // in refusals.names
}

// A refusalCount is how many commands a controller has refused.
type refusalCount struct {
	count int64
	since time.Time // when the controller was made: the count does not belong to any other
}

// The refusals are the names with refusals that are to be stored.
type refusals struct {
	delayedRun
	store *Store
	names []*entry
}

// hasRoom reports whether another name may be added.
func (r *refusals) hasRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closed && len(r.names) < maxUnstored
}

// addEntry has the refusals at a name stored within refusalsWithin.
func (r *refusals) addEntry(e *entry) {
	if !e.unstored.listed.CompareAndSwap(false, true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, e)
	r.startTimer()
}

// startTimer is called with the lock held.
func (r *refusals) startTimer() {
	if len(r.names) > 0 {
		r.schedule(refusalsWithin*4/5, r.flushAll)
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

// flushAll stores the refusals at all names. Those at which that fails are left for the next time.
func (r *refusals) flushAll() {
	all := r.takeAll()
	var next atomic.Int64
	var away atomic.Bool
	var work sync.WaitGroup
	for range min(flushers, len(all)) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				e := all[i]
				// Unlisted before it is stored: a refusal counted meanwhile lists the name again.
				e.unstored.listed.Store(false)
				if away.Load() {
					// The others keep their counts for the next time, instead of each waiting for its whole
					// budget.
					r.addEntry(e)
				} else if r.flushEntry(e) {
					away.Store(true)
				}
			}
		})
	}
	work.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	r.startTimer()
}

// flushEntry stores the refusals at one name, or leaves them for the next time. It reports whether the
// store is away, which would let each of the other names wait for its whole budget. One that answers is
// not: then only this name has failed, as with a record that cannot be read.
func (r *refusals) flushEntry(e *entry) (away bool) {
	began := r.store.clock.elapsedTime()
	if r.store.serveCall(e, queuedCall{change: new(control.Change), flushing: true}) == nil {
		return false
	}
	r.addEntry(e)
	return r.store.lastReply.Load() < began
}

// flushAndClose stores what is to be stored, once.
func (r *refusals) flushAndClose() {
	r.close()
	r.flushAll()
}

// addTo adds the refusals to a state that has not counted them, and returns how many belong to it.
func (r refusalCount) addTo(state control.State) int64 {
	if r.count == 0 {
		return 0
	}
	// Deleted and made again since: the time of its making tells.
	if _, since := control.Refusals(state); state == nil || !since.Equal(r.since) {
		return 0 // it is another controller than the one at which they were counted
	}
	control.AddRefusals(state, r.count)
	return r.count
}

// leavesTrace reports whether a command leaves something behind even if it is refused. One that then waits
// does: what is stored about it is in order with what others store, whose clocks differ a little.
func leavesTrace(state control.State, turn *control.Turn) bool {
	switch turn.Op {
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge, gatehouse.OpWait:
		return !turn.Again && (turn.MaxWait != 0 || control.Alters(state, turn.Command))
	}
	return false
}
