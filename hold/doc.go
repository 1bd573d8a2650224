// Package hold has a handle for each kind of controller, over any [gatehouse.Gate]: that of the process or a
// client of a server.
//
//	gpu, err := hold.Semaphore(g, "gpu", 4).Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer gpu.Release()
//	return train(gpu.Context())
//
// A [Hold] of a semaphore, a lock or a grant renews itself, and ends its Context when it is lost.
//
// # What is guaranteed
//
// The holder learns that its hold is lost before another one can be granted it: the holder counts the term
// from before the request was sent, so it ends before the server's term does, and the Context ends a tenth of
// the term earlier still, at most a second. One renewal that fails does no harm. None of that holds for a
// program that does not run: after a machine has slept or a process was stopped, work may go on for a moment
// before the Context is seen to have ended. [Hold.Err] looks at the clock and not at the Context; and for
// what must not happen at any price, have the resource check the fencing token.
//
// What is held ends by itself when the program dies, at most a term later.
package hold
