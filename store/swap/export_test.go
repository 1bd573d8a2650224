package swap

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Content is what tests look at in a record.
type Content struct {
	State control.State
	Heads int // that are still believed
	AsOf  int64
}

// ReadRecord reads a stored record as it is at a time.
func ReadRecord(kind gatehouse.Kind, data []byte, now time.Time) (Content, error) {
	r, err := decodeRecord(data)
	if err != nil {
		return Content{}, err
	}
	r.endHeads(now.UnixNano())
	e := entry{key: gatehouse.Key{Kind: kind}, record: r}
	err = e.decode()
	return Content{State: e.state, Heads: len(r.heads), AsOf: r.asOf}, err
}

// Owed is how many undos are outstanding.
func (s *Store) Owed() int {
	s.amends.mu.Lock()
	defer s.amends.mu.Unlock()
	return len(s.amends.owed)
}
