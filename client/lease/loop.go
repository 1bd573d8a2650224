package lease

import (
	"context"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
)

// sendRequests sends all requests of the client, one after the other, until running ends. The holder decides
// what to send and when.
//
//	onAlarm, Want, Resource, Release ──wake──> sendReleases ──> dueRequests ──> server ──> onReply
//	                                  ^                                                     │
//	                                  └──────────────── setAlarm <──────────────────────────┘
func (c *Client) sendRequests(running context.Context) {
	defer close(c.done)
	defer c.servers.close()
	if c.config.Discover {
		c.reportError(running, c.servers.findMaster(running))
	}
	for {
		select {
		case <-c.wake:
		case <-running.Done():
			c.closeErr = c.releaseAll()
			return
		}
		// Each Release receives its own result, so the error is of no use here.
		_ = c.sendReleases(running)
		// There may be none: a wake-up is also for releases, and one may be left over.
		if requests := c.dueRequests(); requests != nil {
			reply, err := c.servers.requestCapacity(running, requests)
			c.onReply(running, reply, err)
		}
	}
}

// onAlarm is called by the alarm: it publishes what changed, and wakes sendRequests when a request is due.
func (c *Client) onAlarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishChanges(c.config.Now())
	c.setAlarm()
}

// publishChanges gives each resource its new amount. c.mu is held.
func (c *Client) publishChanges(now time.Time) {
	if c.closed {
		return // the resources have ended
	}
	for _, change := range c.holder.Tick(now) {
		c.resources[change.Resource].publishChange(change)
	}
}

// setAlarm sets the alarm, and wakes sendRequests if a request is due. c.mu is held.
func (c *Client) setAlarm() {
	if c.closed {
		return
	}
	next, now := c.holder.Next(), c.config.Now()
	// A request that is due now needs no alarm. The next one is for the end of a lease: sendRequests may be
	// busy with a slow server for longer than a lease lasts.
	if !next.After(now) && !next.IsZero() {
		c.wakeLoop()
		next = c.holder.Ends()
	}
	if next.IsZero() {
		c.alarm.Stop()
		return
	}
	c.alarm.Reset(next.Sub(now))
}

// wakeLoop wakes sendRequests.
func (c *Client) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}

// dueRequests returns what to ask for now; nil means no request. Releases go first: the same name may be
// asked for again, and giving it back after that would lose the new lease.
func (c *Client) dueRequests() []lease.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.releases) > 0 {
		return nil
	}
	now := c.config.Now()
	c.publishChanges(now)
	requests := c.holder.Requests(now)
	c.setAlarm() // leases may end while the request is in flight
	return requests
}

// maxSkew is the difference between two clocks that cutting leases to whole seconds can explain.
const maxSkew = 2 * time.Second

// onReply takes the grants of a reply, or notes that a request failed.
func (c *Client) onReply(running context.Context, reply capacityReply, err error) {
	c.mu.Lock()
	now := c.config.Now()
	if err != nil {
		c.holder.Failed(now)
	} else {
		c.holder.AnsweredBy(now, reply.clock, reply.grants)
	}
	c.publishChanges(now)
	// Reported after the grants are used: they are still the best that is known.
	if skew := c.holder.Skew(); err == nil && skew > maxSkew {
		err = gatehouse.Errorf(gatehouse.CodeInvalid,
			"clock: a server's differs from this one's by at least %s, so when leases end is guessed", skew)
	}
	c.setAlarm()
	c.mu.Unlock()
	c.reportError(running, err)
}

// reportError calls OnError, unless it was Close that made the request fail.
func (c *Client) reportError(running context.Context, err error) {
	if err != nil && running.Err() == nil && c.config.OnError != nil {
		c.config.OnError(err)
	}
}

// sendReleases gives back the resources in c.releases, and sends each Release its result. What Close
// interrupts stays in c.releases, for releaseAll.
func (c *Client) sendReleases(ctx context.Context) error {
	c.mu.Lock()
	all := c.releases
	c.releases = nil
	// OnError is the user's code and may call the client, so it runs without the lock.
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.resource
	}
	err := c.servers.releaseResources(ctx, names)
	// Close has cancelled the request. These names go with the last one, within the time that Close was
	// given.
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.releases = append(c.releases, all...)
		return err
	}
	for _, r := range all {
		r.done <- err
	}
	return err
}

// releaseAll gives everything back, once, when the client closes.
func (c *Client) releaseAll() error {
	c.mu.Lock()
	for name := range c.resources {
		// A resource that never had a lease is unknown to the server; there is nothing to give back.
		if c.holder.Drop(name) {
			// Close itself waits for the result of the whole request, so no one reads this channel; it has
			// room for one.
			c.releases = append(c.releases, pendingRelease{name, make(chan error, 1)})
		}
	}
	clear(c.resources)
	c.mu.Unlock()
	// running has ended, so the last request has the context of Close.
	ctx, cancel := context.WithTimeout(c.closeCtx, c.config.Timeout)
	defer cancel()
	return c.sendReleases(ctx)
}
