package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Change is a queue of turns for one controller, which a store serves by [Serve] as one atomic change. From
// Apply on it belongs to the store, with its turns, until Done is called.
type Change struct {
	Key   gatehouse.Key
	Turns []Turn

	// View is shown the state as it is after the queue, nil when there is none, and the store's time. It must
	// be quick, and must not change or keep the state. It is not called when there is an error. nil views
	// nothing. Only stores that servers share call it.
	View func(now time.Time, state State)

	// Done is called exactly once, perhaps before Apply returns, without any lock of the store's. It must not
	// block. Either err is nil, and every turn has its decision or an error of its own; or it is not known
	// what took effect. A store in front of another one may put its own function here before it passes the
	// change on.
	Done func(err error)
}

// ApplyTo applies a change to a store, and returns when it is done. It is for callers that have a goroutine
// to spare, and sets Done.
func (c *Change) ApplyTo(store interface{ Apply(c *Change) }) error {
	done := make(chan error, 1)
	c.Done = func(err error) { done <- err }
	store.Apply(c)
	return <-done
}
