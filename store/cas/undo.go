package cas

import (
	"math/rand/v2"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is what keeps a command that takes something back from doing so twice, or for nothing: the record
// names the undos that were done.

// An undo says when a command that takes something back is to do so: if it has not been done before.
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

// newUndos returns an undo for each turn of a queue that takes back a grant. The queue begins at turn first
// of its transaction. The change that does the undos notes so in the record: should its answer be lost, they
// are not done again later.
func newUndos(queue []control.Turn, first int) (undos []*undo) {
	for i := range queue {
		if isGrantUndo(&queue[i]) {
			undos = append(undos, &undo{id: rand.Uint64(), turn: first + i})
		}
	}
	return undos
}

// isGrantUndo reports whether a turn takes back a grant, and not only somebody who waits.
func isGrantUndo(turn *control.Turn) bool { return turn.Op == gatehouse.OpUndo && turn.Granted != nil }

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

// What follows is changes whose answers were lost: whether they were made is learnt from the nonces that a
// record keeps, and what they have granted can be taken back.

// An attempt is a change that was sent, and not answered.
type attempt struct {
	nonce, base  uint64 // its own, and that of the record it was to replace
	decisions    []gatehouse.Decision
	fencesBefore map[uint64]bool // the fencing tokens of the holds of that record
}

// madeBy tells whether a change is one of those that made this record. It is not known when so much has
// happened since that it may have been forgotten.
func (r *storedRecord) madeBy(a *attempt) (made, known bool) {
	switch nonces := r.nonces(); {
	case slices.Contains(nonces, a.nonce):
		return true, true
	case len(nonces) < maxNonces: // they are all since the record began
		return false, true
	default:
		return false, slices.Contains(nonces, a.base)
	}
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

// existedBefore reports whether a decision told of a place that an earlier change had made: the number of a
// new one is not below the time.
func existedBefore(d *gatehouse.Decision) bool {
	return d.Reservation != 0 && d.Reservation < uint64(d.At.UnixNano()) // after 1970
}
