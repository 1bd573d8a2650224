package storetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// ErrDown is why commands fail at a FlakyStore that is down.
var ErrDown = errors.New("connection refused")

// A FlakyStore is a memory store that can become unreachable, for tests in virtual time of what stands in
// front of a shared store. Fields that are not atomic are set before the store is used.
type FlakyStore struct {
	*memory.Store
	Down     atomic.Bool
	DownErr  error         // why commands fail; ErrDown if it is nil
	FailTime time.Duration // after which they do
	BadName  string        // its commands fail even while the store is there; none if empty
	Delay    atomic.Int64  // of each answer, in nanoseconds
	Calls    atomic.Int64  // of Apply, also those that failed
}

// NewFlakyStore returns an empty store that is there.
func NewFlakyStore() *FlakyStore { return &FlakyStore{Store: memory.New(memory.Config{})} }

// Apply implements the store of a gate.
func (r *FlakyStore) Apply(c *control.Change) {
	r.Calls.Add(1)
	go func() { // ends with its answer
		sleepVirtually(time.Duration(r.Delay.Load()))
		if !r.Down.Load() && (r.BadName == "" || c.Key.Name != r.BadName) {
			r.Store.Apply(c)
			return
		}
		sleepVirtually(r.FailTime)
		c.Done(gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", c.Key, cmp.Or(r.DownErr, ErrDown)))
	}()
}

// sleepVirtually waits, if there is anything to wait for, as any call of a remote store does.
func sleepVirtually(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

// Range fails with ErrDown while the store is down.
func (r *FlakyStore) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	if r.Down.Load() {
		return ErrDown
	}
	return r.Store.Range(ctx, kind, after, visit)
}

// Watch wakes each second too, as a shared store does.
func (r *FlakyStore) Watch(key gatehouse.Key, wake func()) (stop func()) {
	unpin := r.Store.Watch(key, wake)
	var mu sync.Mutex
	var tick *time.Timer
	mu.Lock()
	defer mu.Unlock()
	// Not a ticker: with the race detector, a channel of a timer crashes where time is virtual
	// (https://go.dev/issue/78156).
	tick = time.AfterFunc(time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		if tick != nil {
			wake()
			tick.Reset(time.Second)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if tick != nil {
			tick.Stop()
			tick = nil
			unpin()
		}
	}
}
