package gate

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Store keeps controllers and applies a queue of commands to one of them as one atomic change. It
// owns the clock, because servers that share state must share time.
type Store interface {
	// Apply serves the queue by [control.Serve] and fills in its decisions. After an error it is not known
	// what took effect.
	Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error

	// Watch calls wake after the controller may have changed through another gate, until stop is
	// called, and keeps the controller from being forgotten meanwhile. Spurious wakes are allowed; a
	// lost connection wakes; wake never blocks. A gate watches first and then applies once more
	// before it lets a command wait.
	Watch(key gatehouse.Key, wake func()) (stop func())

	// Range visits the controllers of one kind whose names come after the given one, in the order
	// of their names, until visit returns false. visit must be quick and must not keep the state.
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
}

// A SlowStore is a Store whose methods may block, because it asks another machine or a disk. A gate does not
// call them where that would delay other commands, and makes several calls of Apply for one key at once, for
// the store to combine. Apply bounds its time itself.
type SlowStore interface {
	Store

	// Slow reports whether Apply and Watch may block for this key. It is called often, and must be quick.
	Slow(key gatehouse.Key) bool
}

// An AsyncStore is a SlowStore that can answer through a callback, without keeping a goroutine.
type AsyncStore interface {
	SlowStore

	// ApplyAsync does what Apply does, and calls done once with the error that Apply would return, possibly
	// before ApplyAsync itself returns. The queue belongs to the store until then. ApplyAsync does not block
	// on the other machine, and neither must done.
	ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error))
}
