package cas

import "github.com/gatehousehq/gatehouse/control"

// ApplyJoint serves a joint change.
func (s *Store) ApplyJoint(c *control.JointChange) { panic("not yet") }
