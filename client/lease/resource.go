package lease

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
)

// A Resource is something that a client has a share of. Its methods send no requests themselves. Make one
// with [Client.Resource].
type Resource struct {
	client   *Client
	id       string
	priority int64

	amount  atomic.Uint64 // bits of a float64
	leased  atomic.Bool
	changed atomic.Pointer[chan struct{}]
	changes chan float64  // holds one: the latest
	ready   chan struct{} // closed with the first lease
	done    chan struct{} // closed by endResource
}

func newResource(c *Client, id string, priority int64, fallback float64) *Resource {
	r := &Resource{
		client: c, id: id, priority: priority,
		changes: make(chan float64, 1), ready: make(chan struct{}), done: make(chan struct{}),
	}
	r.amount.Store(math.Float64bits(fallback))
	changed := make(chan struct{})
	r.changed.Store(&changed)
	return r
}

// ID returns the resource's name.
func (r *Resource) ID() string { return r.id }

// Capacity returns the amount that may be used now: the lease's while there is one, then what the server
// said may be used without one, and before the first answer the Fallback. -1 means unlimited; no other value
// is negative. After Release and Close it is 0.
func (r *Resource) Capacity() float64 { return math.Float64frombits(r.amount.Load()) }

// Leased reports whether Capacity comes from a lease.
func (r *Resource) Leased() bool { return r.leased.Load() }

// Lease returns the lease in force, its Expiry by the client's clock; the zero Lease without one.
func (r *Resource) Lease() lease.Lease {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if r.hasEnded() {
		return lease.Lease{}
	}
	return r.client.holder.Lease(r.client.config.Now(), r.id)
}

// Changes returns a channel that receives each new value of Capacity. It holds the latest only: a slow
// reader misses those between. It is closed by Release and Close. There is one channel, so each change is
// seen by one reader.
func (r *Resource) Changes() <-chan float64 { return r.changes }

// Changed returns a channel that is closed when Capacity next changes.
func (r *Resource) Changed() <-chan struct{} { return *r.changed.Load() }

// Done returns a channel that is closed by Release and Close.
func (r *Resource) Done() <-chan struct{} { return r.done }

// Ready waits until a server has granted a lease, of whatever amount. The error has the code
// [gatehouse.CodeTimeout] when ctx ends before, or is ErrClosed.
func (r *Resource) Ready(ctx context.Context) error {
	select {
	case <-r.ready:
		return nil
	case <-r.done:
		return ErrClosed
	case <-ctx.Done():
		return gatehouse.Errorf(gatehouse.CodeTimeout, "resource %q: no lease yet: %w", r.id, ctx.Err())
	}
}

// Want asks for another amount from now on, 0 or more. It does not wait for the answer. The error has the
// code [gatehouse.CodeInvalid], and nothing changed; or it is ErrClosed.
func (r *Resource) Want(wants float64) error {
	if err := wantsFault(r.id, wants); err != nil {
		return err
	}
	c := r.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.hasEnded() {
		return ErrClosed
	}
	c.holder.Want(r.id, r.priority, wants)
	c.setAlarm()
	return nil
}

// Release gives the resource back: its Capacity is 0 at once, and its name is free to be used again. It
// waits until a server has answered, or ctx ends. If no server can be reached the lease ends by itself, and
// the error says so. A second Release does nothing.
func (r *Resource) Release(ctx context.Context) error {
	c := r.client
	c.mu.Lock()
	if r.hasEnded() {
		c.mu.Unlock()
		return nil
	}
	// At once, whatever the server answers: from here on nothing may be used.
	r.endResource()
	delete(c.resources, r.id)
	// Without a lease there is nothing to give back, and nothing to wait for.
	if !c.holder.Drop(r.id) {
		c.mu.Unlock()
		return nil
	}
	// With room for the result: sendReleases must not block on a caller whose context has ended.
	done := make(chan error, 1)
	c.releases = append(c.releases, pendingRelease{r.id, done})
	c.mu.Unlock()
	c.wakeLoop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return gatehouse.Errorf(gatehouse.CodeTimeout, "release of %q: %w", r.id, ctx.Err())
	}
}

// publishChange makes another amount known. The client's lock is held.
func (r *Resource) publishChange(c lease.AmountChange) {
	// The amount is stored before any signal, so that a reader which is woken finds it.
	same := r.Capacity() == c.Amount
	r.amount.Store(math.Float64bits(c.Amount))
	r.leased.Store(c.Leased)
	if c.Leased && !isClosed(r.ready) {
		close(r.ready)
	}
	if same {
		return
	}
	select {
	case <-r.changes: // not read, and out of date
	default:
	}
	// Only the lock's holder sends, so the channel has room once its old value is out.
	r.changes <- c.Amount
	next := make(chan struct{})
	close(*r.changed.Swap(&next))
}

// hasEnded reports whether endResource was called.
func (r *Resource) hasEnded() bool { return isClosed(r.done) }

// isClosed reports whether a channel is closed that nothing is sent to.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endResource makes the resource worth nothing, for good. It is called once, with the client's lock held.
func (r *Resource) endResource() {
	// Before the channels are closed, so that a reader which is woken finds it.
	r.amount.Store(0)
	r.leased.Store(false)
	close(r.done)
	close(r.changes)
	next := make(chan struct{})
	close(*r.changed.Swap(&next))
}
