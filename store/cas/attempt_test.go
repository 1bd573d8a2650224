package cas

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Whether a change was made is known as long as the record remembers it, or what it was to replace.
func TestMade(t *testing.T) {
	r := storedRecord{}
	for n := range uint64(maxNonces - 1) {
		r = r.nextRecord(100 + n)
	}
	for _, c := range []struct {
		changes     int // that come after
		what        attempt
		made, known bool
	}{
		{0, attempt{nonce: 100}, true, true},
		{0, attempt{nonce: 7, base: 106}, false, true},
		{0, attempt{nonce: 7}, false, true}, // the record remembers its whole life
		{1, attempt{nonce: 100}, true, true},
		{2, attempt{nonce: 100}, false, false},
		{2, attempt{nonce: 7, base: 106}, false, true},
		{2, attempt{nonce: 7}, false, false},
		{7, attempt{nonce: 7, base: 106}, false, true},
		{8, attempt{nonce: 7, base: 106}, false, false},
	} {
		later := r
		for n := range c.changes {
			later = later.nextRecord(uint64(200 + n))
		}
		if made, known := later.madeBy(&c.what); made != c.made || known != c.known {
			t.Errorf("after %d changes %+v: made %t, known %t, want %t, %t", c.changes, c.what, made, known,
				c.made, c.known)
		}
	}
	if made, known := (&storedRecord{}).madeBy(&attempt{nonce: 1, base: 2}); made || !known {
		t.Errorf("in a record that is gone: made %t, known %t, want neither made nor unknown", made, known)
	}
}

// What a change may have granted can be taken back if it has an identity and was not there before.
func TestWhatAnAttemptCanUndo(t *testing.T) {
	a := attempt{fencesBefore: map[uint64]bool{7: true}}
	for _, c := range []struct {
		name     string
		op       gatehouse.Op
		decision gatehouse.Decision
		want     bool
	}{
		{"a new hold", gatehouse.OpAcquire, gatehouse.Decision{Fence: 8}, true},
		{"a hold that was there", gatehouse.OpAcquire, gatehouse.Decision{Fence: 7}, false},
		{"tokens", gatehouse.OpAcquire, gatehouse.Decision{}, false},
		{"a reservation", gatehouse.OpReserve, gatehouse.Decision{Reservation: 9}, true},
		{"tokens taken by a reserve at once", gatehouse.OpReserve, gatehouse.Decision{}, false},
		{"a renewed hold", gatehouse.OpRenew, gatehouse.Decision{Fence: 8}, false},
		{"a count", gatehouse.OpCount, gatehouse.Decision{Value: 1}, false},
	} {
		if got := a.canUndo(&gatehouse.Command{Op: c.op}, &c.decision); got != c.want {
			t.Errorf("%s can be taken back: %t, want %t", c.name, got, c.want)
		}
	}
}

// The number of a reservation that the change itself made is not below the time.
func TestPlaceThatExistedBefore(t *testing.T) {
	at := time.Unix(0, 1000)
	for number, want := range map[uint64]bool{0: false, 999: true, 1000: false, 1001: false} {
		if got := existedBefore(&gatehouse.Decision{At: at, Reservation: number}); got != want {
			t.Errorf("place %d at 1000 was there before: %t, want %t", number, got, want)
		}
	}
}
