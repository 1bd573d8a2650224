package lease

import (
	"context"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
)

// loop sends all requests, one after the other, until running ends. The holder says what to send and when.
func (c *Client) loop(running context.Context) {
	defer close(c.done)
	defer c.servers.close()
	if c.config.Discover {
		c.report(running, c.servers.discover(running))
	}
	for {
		select {
		case <-c.wake:
		case <-running.Done():
			c.lost = c.leave()
			return
		}
		_ = c.release(running) // who waits for it is told
		if requests := c.requests(); requests != nil {
			answer, err := c.servers.ask(running, requests)
			c.settle(running, answer, err)
		}
	}
}

// tick is called by the alarm: it tells what changed, and wakes loop when it is time to ask.
func (c *Client) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish(c.config.Now())
	c.arm()
}

// publish tells each resource its new amount. c.mu is held.
func (c *Client) publish(now time.Time) {
	if c.closed {
		return // the resources have ended
	}
	for _, change := range c.holder.Tick(now) {
		c.resources[change.Resource].publish(change)
	}
}

// arm sets the alarm, and wakes loop if it is time to ask. c.mu is held.
func (c *Client) arm() {
	if c.closed {
		return
	}
	next, now := c.holder.Next(), c.config.Now()
	if !next.After(now) && !next.IsZero() {
		c.rouse()
		next = c.holder.Ends() // loop may be busy for longer
	}
	if next.IsZero() {
		c.alarm.Stop()
		return
	}
	c.alarm.Reset(next.Sub(now))
}

// rouse wakes loop.
func (c *Client) rouse() {
	select {
	case c.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// requests is what to ask now; nil is nothing. What waits to be given back comes first: it may be what is
// asked for anew.
func (c *Client) requests() []lease.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.releases) > 0 {
		return nil
	}
	now := c.config.Now()
	c.publish(now)
	requests := c.holder.Requests(now)
	c.arm() // leases may end while the request is on its way
	return requests
}

// maxSkew is how much of a difference between clocks may come from cutting leases to whole seconds.
const maxSkew = 2 * time.Second

// settle takes in an answer, or why there was none.
func (c *Client) settle(running context.Context, a answer, err error) {
	c.mu.Lock()
	now := c.config.Now()
	if err != nil {
		c.holder.Failed(now)
	} else {
		c.holder.AnsweredBy(now, a.clock, a.grants)
	}
	c.publish(now)
	if skew := c.holder.Skew(); err == nil && skew > maxSkew {
		err = gatehouse.Errorf(gatehouse.CodeInvalid,
			"clock: a server's differs from this one's by at least %s, so when leases end is guessed", skew)
	}
	c.arm()
	c.mu.Unlock()
	c.report(running, err)
}

// report tells the user about an error, unless it is Close that made the request fail.
func (c *Client) report(running context.Context, err error) {
	if err != nil && running.Err() == nil && c.config.OnError != nil {
		c.config.OnError(err)
	}
}

// release gives back what waits for that, and tells those who wait for it. What Close interrupts is left
// to leave.
func (c *Client) release(ctx context.Context) error {
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
	err := c.servers.release(ctx, names)
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

// leave gives everything back, once.
func (c *Client) leave() error {
	c.mu.Lock()
	for name := range c.resources {
		if c.holder.Drop(name) {
			c.releases = append(c.releases, release{name, make(chan error, 1)})
		}
	}
	clear(c.resources)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.farewell, c.config.Timeout)
	defer cancel()
	return c.release(ctx)
}
