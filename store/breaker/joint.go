package breaker

import "github.com/gatehousehq/gatehouse/control"

// ApplyJoint serves a joint change.
func (s *Breaker) ApplyJoint(c *control.JointChange) { panic("not yet") }
