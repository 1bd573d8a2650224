package lease

import (
	"context"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
)

// sendRequests sends all requests, one after the other, until running ends. The holder says what to send and when.
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
		_ = c.sendReleases(running) // who waits for it is told
		if requests := c.dueRequests(); requests != nil {
			answer, err := c.servers.requestCapacity(running, requests)
			c.onReply(running, answer, err)
		}
	}
}

// onAlarm is called by the alarm: it tells what changed, and wakes loop when it is time to ask.
func (c *Client) onAlarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishChanges(c.config.Now())
	c.setAlarm()
}

// publishChanges tells each resource its new amount. c.mu is held.
func (c *Client) publishChanges(now time.Time) {
	if c.closed {
		return // the resources have ended
	}
	for _, change := range c.holder.Tick(now) {
		c.resources[change.Resource].publishChange(change)
	}
}

// setAlarm sets the alarm, and wakes loop if it is time to ask. c.mu is held.
func (c *Client) setAlarm() {
	if c.closed {
		return
	}
	next, now := c.holder.Next(), c.config.Now()
	if !next.After(now) && !next.IsZero() {
		c.wakeLoop()
		next = c.holder.Ends() // loop may be busy for longer
	}
	if next.IsZero() {
		c.alarm.Stop()
		return
	}
	c.alarm.Reset(next.Sub(now))
}

// wakeLoop wakes loop.
func (c *Client) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// dueRequests is what to ask now; nil is nothing. What waits to be given back comes first: it may be what is
// asked for anew.
func (c *Client) dueRequests() []lease.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.releases) > 0 {
		return nil
	}
	now := c.config.Now()
	c.publishChanges(now)
	requests := c.holder.Requests(now)
	c.setAlarm() // leases may end while the request is on its way
	return requests
}

// maxSkew is how much of a difference between clocks may come from cutting leases to whole seconds.
const maxSkew = 2 * time.Second

// onReply takes in an answer, or why there was none.
func (c *Client) onReply(running context.Context, a capacityReply, err error) {
	c.mu.Lock()
	now := c.config.Now()
	if err != nil {
		c.holder.Failed(now)
	} else {
		c.holder.AnsweredBy(now, a.clock, a.grants)
	}
	c.publishChanges(now)
	if skew := c.holder.Skew(); err == nil && skew > maxSkew {
		err = gatehouse.Errorf(gatehouse.CodeInvalid,
			"clock: a server's differs from this one's by at least %s, so when leases end is guessed", skew)
	}
	c.setAlarm()
	c.mu.Unlock()
	c.reportError(running, err)
}

// reportError tells the user about an error, unless it is Close that made the request fail.
func (c *Client) reportError(running context.Context, err error) {
	if err != nil && running.Err() == nil && c.config.OnError != nil {
		c.config.OnError(err)
	}
}

// sendReleases gives back what waits for that, and tells those who wait for it. What Close interrupts is left
// to leave.
func (c *Client) sendReleases(ctx context.Context) error {
	c.mu.Lock()
	all := c.releases
	c.releases = nil
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.resource
	}
	err := c.servers.releaseResources(ctx, names)
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

// releaseAll gives everything back, once.
func (c *Client) releaseAll() error {
	c.mu.Lock()
	for name := range c.resources {
		if c.holder.Drop(name) {
			c.releases = append(c.releases, pendingRelease{name, make(chan error, 1)})
		}
	}
	clear(c.resources)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.closeCtx, c.config.Timeout)
	defer cancel()
	return c.sendReleases(ctx)
}
