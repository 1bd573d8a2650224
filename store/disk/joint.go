package disk

import (
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// ApplyJoint serves a joint change.
func (s *Store) ApplyJoint(c *control.JointChange) { panic("not yet") }

// OnJoint implements [memory.Journal].
func (j memoryJournal) OnJoint(c *control.JointChange, states []memory.JointState) (pending bool) {
	panic("not yet")
}
