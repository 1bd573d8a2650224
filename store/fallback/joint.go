package fallback

import "github.com/gatehousehq/gatehouse/control"

// ApplyJoint applies a change over several names to the store. While that is unreachable it fails with
// CodeUnavailable whatever the rules say: a rule would grant some of the names, and a grant is all or
// nothing.
func (s *Store) ApplyJoint(c *control.JointChange) { s.RemoteStore.ApplyJoint(c) }
