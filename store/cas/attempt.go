package cas

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// This file is changes whose answers were lost: whether they were made is learnt from the nonces that a
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

// identity is an attempt without what is not needed to tell whether it was made.
func (a *attempt) identity() *attempt { return &attempt{nonce: a.nonce, base: a.base} }

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
