package cas

import (
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// recordOfUndos is a record of which undos were done, and that was changed as often as it has nonces.
func recordOfUndos(ids ...uint64) *storedRecord {
	r := storedRecord{}
	for _, id := range ids {
		(&undo{id: id}).markDone(&r)
	}
	for n := range uint64(maxNonces) {
		r = r.nextRecord(100 + n)
	}
	return &r
}

// upToID are the numbers 1 to n.
func upToID(n uint64) (ids []uint64) {
	for id := range n {
		ids = append(ids, id+1)
	}
	return ids
}

// An undo is left out when it was done, may have been, or is of a change that was not made.
func TestObsoleteUndos(t *testing.T) {
	made, notMade := &attempt{nonce: 103, base: 1}, &attempt{nonce: 7, base: 103}
	forgotten := &attempt{nonce: 7, base: 1}
	for _, c := range []struct {
		name   string
		record *storedRecord
		undo   undo
		want   bool
	}{
		{"new", recordOfUndos(), undo{id: 50}, false},
		{"done", recordOfUndos(49, 50, 51), undo{id: 50}, true},
		{"others done", recordOfUndos(49, 51), undo{id: 50}, false},
		{"sent, and not done by a record with room", recordOfUndos(upToID(31)...),
			undo{id: 50, mayBeDone: true}, false},
		{"sent, and perhaps forgotten", recordOfUndos(upToID(32)...), undo{id: 50, mayBeDone: true}, true},
		{"sent after one that is there", recordOfUndos(upToID(40)...),
			undo{id: 50, mayBeDone: true, lastDone: 9}, false},
		{"sent after one that is forgotten", recordOfUndos(upToID(40)...),
			undo{id: 50, mayBeDone: true, lastDone: 8}, true},
		{"of a change that was made", recordOfUndos(), undo{id: 50, onlyIf: made}, false},
		{"of a change that was not", recordOfUndos(), undo{id: 50, onlyIf: notMade}, true},
		{"of one that may be forgotten", recordOfUndos(), undo{id: 50, onlyIf: forgotten}, false},
		{"shared, made", recordOfUndos(), undo{id: 50, onlyIf: made, shared: true}, false},
		{"shared, may be forgotten", recordOfUndos(), undo{id: 50, onlyIf: forgotten, shared: true}, true},
	} {
		if got := c.undo.isObsolete(c.record); got != c.want {
			t.Errorf("an undo that is %s is left out: %t, want %t", c.name, got, c.want)
		}
	}
}

// What an undo knows of the record when it was first sent is not replaced by what it sees later.
func TestUndoKeepsWhatItWasSentAfter(t *testing.T) {
	u := undo{id: 50}
	u.noteSent(recordOfUndos(1, 2))
	u.noteSent(recordOfUndos(1, 2, 3))
	if !u.mayBeDone || u.lastDone != 2 {
		t.Errorf("sent after 2, and again after 3: %+v, want it sent after 2", u)
	}
	first := undo{id: 51}
	first.noteSent(recordOfUndos())
	if !first.mayBeDone || first.lastDone != 0 {
		t.Errorf("sent of a record without undos: %+v, want it sent after none", first)
	}
}

// A record remembers the last undos, and no more than a limit.
func TestRecordForgetsTheOldestUndos(t *testing.T) {
	r := recordOfUndos(upToID(maxDoneUndos + 3)...)
	if n := len(r.doneUndos); n != maxDoneUndos || r.doneUndos[0] != 4 || r.doneUndos[n-1] != maxDoneUndos+3 {
		t.Errorf("the record names %d undos, %v, want the last %d", n, r.doneUndos, maxDoneUndos)
	}
}

// Only what takes back a grant gets an identity, and knows its turn.
func TestNewUndos(t *testing.T) {
	grant := &gatehouse.Decision{Fence: 1}
	queue := []control.Turn{
		{Command: &gatehouse.Command{Op: gatehouse.OpUndo}, Granted: grant},
		{Command: &gatehouse.Command{Op: gatehouse.OpAcquire}},
		{Command: &gatehouse.Command{Op: gatehouse.OpUndo}}, // of somebody who waits
		{Command: &gatehouse.Command{Op: gatehouse.OpUndo}, Granted: grant},
	}
	undos := newUndos(queue, 10)
	if len(undos) != 2 || undos[0].turn != 10 || undos[1].turn != 13 || undos[0].id == undos[1].id {
		t.Errorf("the undos are %+v, want two, of turns 10 and 13, that differ", undos)
	}
}
