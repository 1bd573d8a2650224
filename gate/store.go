package gate

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Store keeps controllers and applies a queue of commands to one of them as one atomic change. It
// owns the clock, because servers that share state must share time.
type Store interface {
	// Apply serves a change by [control.Serve], and calls its Done, perhaps before it returns. It does not
	// wait for another machine or a disk, and bounds the time until Done itself. Changes for one key that are
	// under way together may be combined.
	Apply(c *control.Change)

	// ApplyJoint serves a joint change by [control.ServeJoint] under all of its names or under none, and
	// calls its Done, as Apply does.
	ApplyJoint(c *control.JointChange)

	// Watch calls wake after the controller may have changed through another gate, until stop is
	// called, and keeps the controller from being forgotten meanwhile. Spurious wakes are allowed; a
	// lost connection wakes; neither wake nor Watch nor stop blocks. A gate watches first and then applies
	// once more before it lets a command wait.
	Watch(key gatehouse.Key, wake func()) (stop func())

	// Range visits the controllers of one kind whose names come after the given one, in the order
	// of their names, until visit returns false. visit must be quick and must not keep the state.
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
}
