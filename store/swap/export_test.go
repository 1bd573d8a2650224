package swap

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Content is what tests look at in a record.
type Content struct {
	State control.State
	Heads int
	AsOf  int64
}

// ReadRecord reads a stored record.
func ReadRecord(kind gatehouse.Kind, data []byte) (Content, error) {
	r, err := decodeRecord(data)
	if err != nil {
		return Content{}, err
	}
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
