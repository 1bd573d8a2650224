package cas

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

const (
	// maxPendingUndos is how many grants may await being taken back. More end when they expire.
	maxPendingUndos = 10_000
	// undoInterval is the time between two tries to reach the store for it.
	undoInterval = time.Second
)

// undoQueue are the holds that may have been granted to calls that failed. They are taken back, by their
// fencing tokens, once the store answers again: if they were granted, and to no other client.
type undoQueue struct {
	store   *Store
	mu      sync.Mutex
	pending []pendingUndo
	timer   *time.Timer
	closed  bool
	work    sync.WaitGroup
}

// A pendingUndo is one undo.
type pendingUndo struct {
	key gatehouse.Key
	cmd gatehouse.Command
	undo
}

// A undo says when a command that takes something back is to do so: if it has not been done before.
type undo struct {
	id     uint64   // which stands in the record once it is done
	turn   int      // of the transaction it is in
	onlyIf *attempt // if that was made; nil if it does not depend on one
	shared bool     // what it takes back was there before that attempt, and somebody was answered with it

	// mayBeDone says that a change that does it may have been made. The last undo in the record was after
	// then, 0 for none: as long as that is there, the record has not forgotten any undo since.
	mayBeDone bool
	lastDone  uint64
}

// newUndos are those of the undos in a queue whose first turn is that turn of a transaction. The change
// that does them notes so in the record: should its answer be lost, they are not done again later.
func newUndos(queue []control.Turn, first int) (debts []undo) {
	for i := range queue {
		if isGrantUndo(queue[i].Command) {
			debts = append(debts, undo{id: rand.Uint64(), turn: first + i})
		}
	}
	return debts
}

// isGrantUndo reports whether a command takes back a grant, and not only somebody who waits.
func isGrantUndo(cmd *gatehouse.Command) bool {
	return cmd.Op == gatehouse.OpUndo && cmd.Granted != nil
}

// isObsolete reports whether nothing is to be done, by what the record tells. It is better not to take back
// what was granted than to do so twice: the second time would take from somebody else.
func (d *undo) isObsolete(r *storedRecord) bool {
	if slices.Contains(r.doneUndos, d.id) || d.mayBeDone && !r.knowsUndosSince(d.lastDone) {
		return true
	}
	if d.onlyIf == nil {
		return false
	}
	// An undo of an attempt is needed only if that attempt was made.
	made, known := r.madeBy(d.onlyIf)
	// It takes one answer away from a place that others may have been told of as well: only certainty will
	// do.
	if d.shared {
		return !made
	}
	// A hold or place of its own is identified by its number. An undo of one that is not there does
	// nothing, so an unknown outcome is no obstacle.
	return known && !made
}

// knowsUndosSince reports whether the record names all undos that were done since the one that was the last.
func (r *storedRecord) knowsUndosSince(last uint64) bool {
	return len(r.doneUndos) < maxDoneUndos || slices.Contains(r.doneUndos, last)
}

// noteSent notes that a change that does this may have been made of a record.
func (d *undo) noteSent(r *storedRecord) {
	if d.mayBeDone {
		return
	}
	d.mayBeDone = true
	if n := len(r.doneUndos); n > 0 {
		d.lastDone = r.doneUndos[n-1]
	}
}

// markDone notes that it is done.
func (d *undo) markDone(r *storedRecord) {
	// The oldest are forgotten first.
	if n := len(r.doneUndos) - maxDoneUndos; n >= 0 {
		r.doneUndos = slices.Delete(r.doneUndos, 0, n+1)
	}
	r.doneUndos = append(r.doneUndos, d.id)
}

// canUndo reports whether a grant of this attempt can be taken back by its identity: a new hold by its
// fencing token, a place that lies ahead by its number. A hold that was there before was only shared, and
// stays; of a place that was there before the undo takes back this answer alone, if it was certainly made.
// Tokens taken at once have no identity: they stay taken, so that no limit is passed.
func (a *attempt) canUndo(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	switch cmd.Op {
	case gatehouse.OpAcquire:
		return d.Fence != 0 && !a.fencesBefore[d.Fence]
	case gatehouse.OpReserve:
		return d.Reservation != 0
	}
	return false
}

// addUnresolved notes what a failed transaction may have been granted.
func (a *undoQueue) addUnresolved(key gatehouse.Key, t *transaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range t.unresolved {
		try := &t.unresolved[i]
		for j, d := range try.decisions {
			cmd := *t.turns[j].Command
			if d.Outcome != gatehouse.Granted || !try.canUndo(&cmd, &d) {
				continue
			}
			// The undo is the same command with its decision: that names the token or the number.
			cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, &d, 0
			a.appendUndo(pendingUndo{key, cmd, undo{
				id: rand.Uint64(), onlyIf: try.identity(), shared: existedBefore(&d),
			}})
		}
	}
	a.startTimer()
}

// existedBefore reports whether a decision told of a place that an earlier change had made: the number of a
// new one is not below the time.
func existedBefore(d *gatehouse.Decision) bool {
	return d.Reservation != 0 && d.Reservation < uint64(d.At.UnixNano()) // after 1970
}

// addFailed notes what those have left behind whose commands have failed: those who waited at a barrier still
// count there, and what was to be taken back is still there.
func (a *undoQueue) addFailed(key gatehouse.Key, r *applyCall) {
	undos := r.ownUndos
	if undos == nil { // it has not been in a transaction
		undos = newUndos(r.queue, 0)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range r.queue {
		cmd := *r.queue[i].Command
		switch {
		// An undo that failed is tried again, with its identity, as the change that does it may have been
		// made.
		case isGrantUndo(&cmd):
			a.appendUndo(pendingUndo{key, cmd, undos[0]})
			undos = undos[1:]
		case key.Kind == gatehouse.Barrier && cmd.Ticket != 0 &&
			(cmd.Op.Waits() || cmd.Op == gatehouse.OpUndo):
			cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, nil, 0
			a.appendUndo(pendingUndo{key, cmd, undo{id: rand.Uint64()}})
		}
	}
	a.startTimer()
}

// identity is an attempt without what is not needed to tell whether it was made.
func (a *attempt) identity() *attempt { return &attempt{nonce: a.nonce, base: a.base} }

func (a *undoQueue) appendUndo(o pendingUndo) {
	if len(a.pending) < maxPendingUndos {
		a.pending = append(a.pending, o)
	}
}

func (a *undoQueue) startTimer() {
	if len(a.pending) > 0 && a.timer == nil && !a.closed {
		a.work.Add(1)
		a.timer = time.AfterFunc(jittered(undoInterval), func() {
			defer a.work.Done()
			a.sendPending()
		})
	}
}

// sendPending takes back what can be, and tries the rest later, what could not be taken back last of all.
// Undos of one name that came together are put to the store together: the record says of all of them
// whether they are done, before the first one is done and may make it forget another.
func (a *undoQueue) sendPending() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.pending) > 0 && !a.closed {
		n := 1
		for n < len(a.pending) && a.pending[n].key == a.pending[0].key {
			n++
		}
		// They stay in the queue meanwhile, so that PendingUndos counts them and the bound holds.
		together := slices.Clone(a.pending[:n]) // which stay there meanwhile, and count
		a.mu.Unlock()
		err := a.store.serveKey(together[0].key, undoCall(together))
		a.mu.Lock()
		clear(a.pending[:n])
		a.pending = a.pending[n:]
		if err != nil {
			// Last of all: one name that fails must not keep back the others the next time.
			a.pending = append(a.pending, together...)
			break
		}
		a.store.counters.undone.Add(uint64(n)) // at most maxAmends
	}
	a.timer = nil
	a.startTimer()
}

// undoCall is a request that takes back all of these, which are of one name.
func undoCall(together []pendingUndo) *applyCall {
	r := new(applyCall)
	for i := range together {
		r.queue = append(r.queue, control.Turn{Command: &together[i].cmd})
		r.pendingUndos = append(r.pendingUndos, &together[i].undo)
	}
	return r
}

// close gives up what is still pending.
func (a *undoQueue) close() {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil && a.timer.Stop() {
		a.work.Done()
	}
	// sendPending needs the lock to end.
	a.mu.Unlock()
	a.work.Wait()
}
