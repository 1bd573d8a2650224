package cas

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Content is what is in a record, for tools and tests.
type Content struct {
	State control.State // nil when there is none
	Heads int           // servers in whose lines somebody waits
	AsOf  int64         // the time of the last decision, Unix ns
}

// ReadRecord reads a stored record as it is at a time.
func ReadRecord(kind gatehouse.Kind, data []byte, now time.Time) (Content, error) {
	r, err := decodeRecord(data)
	if err != nil {
		return Content{}, err
	}
	r.dropEndedHeads(now.UnixNano())
	k := knownRecord{kind: kind, record: r}
	if err = k.decodeState(); control.Absent(k.state) {
		k.state = nil
	}
	return Content{State: k.state, Heads: len(r.heads), AsOf: r.asOf}, err
}

// PendingUndos returns how many commands still have to take something back for calls that failed.
func (s *Store) PendingUndos() int { return s.undos.countPending() }
