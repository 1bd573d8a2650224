package gate

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Store keeps controllers and applies a queue of commands to one of them as one atomic change. It
// owns the clock, because those who share state must share time.
type Store interface {
	// Apply serves the queue by [control.Serve] and fills in its decisions. On an error nothing is
	// known of what took effect.
	Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error

	// Watch calls wake after the controller may have changed through another gate, until stop is
	// called, and keeps the controller from being forgotten meanwhile. Spurious wakes are allowed; a
	// lost connection wakes; wake never blocks. A gate watches first and then applies once more
	// before it parks anybody.
	Watch(key gatehouse.Key, wake func()) (stop func())

	// Range visits the controllers of one kind whose names come after the given one, in the order
	// of their names, until visit returns false. visit must be quick and must not keep the state.
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
}

// A SlowStore is a store some of whose answers take longer than a moment, because it asks another machine
// or a disk. Store's methods may block then; a gate does not call them where that would keep others
// waiting, and has several calls of Apply for one key under way at once, for the store to combine. Apply
// bounds its time itself.
type SlowStore interface {
	Store

	// Slow reports whether Apply and Watch may take longer than a moment for this key. It is asked often,
	// and must itself be quick.
	Slow(key gatehouse.Key) bool
}

// An AsyncStore is a SlowStore that can answer through a callback, without keeping a goroutine.
type AsyncStore interface {
	SlowStore

	// ApplyAsync does what Apply does, and calls done once with the error that Apply would return, possibly
	// before ApplyAsync itself returns. The queue belongs to the store until then. Neither ApplyAsync nor done
	// may block.
	ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error))
}
