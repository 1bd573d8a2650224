package gatehouse

import "context"

// A Throttle has its callers wait for their turn: a limiter of the process, a limiter at a gate, a share of a
// capacity. It is safe for use by many goroutines.
type Throttle interface {
	// WaitN returns nil as soon as n may go. The error is of CodeTimeout when ctx ends first, and of
	// CodeInvalid when n can never go.
	WaitN(ctx context.Context, n int64) error
}
