package storetest

import (
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A LeftStore is a memory store that has a client leave when it has decided a command for the name left,
// before anybody is answered.
type LeftStore struct {
	*memory.Store
	Leave chan func() // has the client leave, once; with room for one
}

// NewLeftStore returns an empty store.
func NewLeftStore() *LeftStore {
	return &LeftStore{memory.New(memory.Config{}), make(chan func(), 1)}
}

// Apply implements the store of a gate.
func (s *LeftStore) Apply(c *control.Change) {
	done := c.Done
	if c.Key.Name == "left" {
		c.Done = func(err error) {
			select {
			case leave := <-s.Leave:
				leave()
			default: // it has left
			}
			done(err)
		}
	}
	s.Store.Apply(c)
}
