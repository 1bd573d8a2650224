package cas_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A client is one user of one server after the other.
type client struct {
	*model
	id   string
	rand *rand.Rand
	next int
}

func (c *client) pause(most time.Duration) { pass(time.Duration(c.rand.Int64N(int64(most)))) }

// do asks one of the servers, and sees that it answers in time.
func (c *client) do(key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	ctx, patience := context.Background(), cmd.MaxWait
	if cmd.MaxWait == gatehouse.Forever || cmd.MaxWait > 0 && c.rand.IntN(4) == 0 {
		patience = time.Duration(c.rand.Int64N(int64(4 * time.Second)))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	start := time.Now()
	server := c.rand.IntN(len(c.gates))
	d, err := c.gates[server].Do(ctx, key, cmd)
	c.store.Note("%s at %d: %s %s %s since %s: %s %d %v", c.id, server+1, key, cmd.Op, cmd.Holder,
		time.Since(start), d.Outcome, d.Fence, err)
	// It may wait behind a grant that waits for another name, and both for a store that does not answer.
	if took := time.Since(start); took > patience+8*cas.DefaultTimeout {
		c.fault("client %s: %s %s with %s took %s: %v", c.id, key, cmd.Op, patience, took, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.calm {
		c.served++
	}
	code := gatehouse.CodeOf(err)
	if err != nil && code != gatehouse.CodeUnavailable && code != gatehouse.CodeTimeout {
		c.complain("client %s: %s %s: %v", c.id, key, cmd.Op, err)
	}
	return d, err
}

// hold acquires something, holds it, and gives it back.
func (c *client) hold(key gatehouse.Key) {
	c.next++
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: fmt.Sprintf("%s-%d", c.id, c.next),
		Rule: gatehouse.Rule{Size: slots}, Cost: 1,
		Expires: time.Hour,
	}
	waits := []time.Duration{0, 200 * time.Millisecond, 2 * time.Second, gatehouse.Forever}
	cmd.MaxWait = waits[c.rand.IntN(len(waits))]
	d, err := c.do(key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		return
	}
	c.took(key, 1)
	c.pause(300 * time.Millisecond)
	switch c.rand.IntN(4) {
	case 0:
		if again, err := c.do(key, cmd); err == nil && !c.lossy && again.Fence != d.Fence {
			c.fault("%s: %s has token %d, and %d by acquiring again", key, cmd.Holder, d.Fence, again.Fence)
		}
	case 1:
		cmd.Op = gatehouse.OpRenew
		if again, err := c.do(key, cmd); err == nil && !c.lossy && again.Outcome != gatehouse.Granted {
			c.fault("%s: %s cannot renew: %+v", key, cmd.Holder, again)
		}
	}
	c.pause(100 * time.Millisecond)
	c.took(key, -1)
	cmd.Op, cmd.MaxWait = gatehouse.OpRelease, 0
	for tries := 0; ; tries++ {
		d, err := c.do(key, cmd)
		if err == nil && d.Outcome != gatehouse.Granted && tries == 0 && !c.lossy {
			c.fault("%s: %s has lost its hold: %+v", key, cmd.Holder, d)
		}
		if err == nil {
			return
		}
		c.pause(time.Second)
	}
}

// grant acquires some names together, holds them, and gives them back.
func (c *client) grant() {
	c.next++
	var keys []gatehouse.Key
	for _, key := range []gatehouse.Key{
		named(gatehouse.FixedWindow, "window"), named(gatehouse.Semaphore, "semaphore"),
		named(gatehouse.Lock, "lock"), named(gatehouse.Semaphore, "other"),
	} {
		if c.rand.IntN(2) == 0 {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	id := fmt.Sprintf("%s-%d", c.id, c.next)
	cmd := grantOf(id, keys...)
	cmd.Expires = time.Hour
	for i := range cmd.Want {
		if m := &cmd.Want[i]; m.Key.Kind.Limiter() {
			m.Interval = 500 * time.Millisecond
		}
	}
	waits := []time.Duration{0, 200 * time.Millisecond, 2 * time.Second, gatehouse.Forever}
	cmd.MaxWait = waits[c.rand.IntN(len(waits))]
	d, err := c.doGrant(cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		return
	}
	for _, key := range keys {
		if !key.Kind.Limiter() {
			c.took(key, 1)
			continue
		}
		c.mu.Lock()
		c.granted[key] = append(c.granted[key], d.At)
		c.mu.Unlock()
	}
	c.pause(300 * time.Millisecond)
	for _, key := range keys {
		if !key.Kind.Limiter() {
			c.took(key, -1)
		}
	}
	end := &gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id, Fence: d.Fence}
	for tries := 0; ; tries++ {
		ended, err := c.doGrant(end)
		if err == nil && ended.Outcome != gatehouse.Granted && tries == 0 && !c.lossy {
			c.fault("%s has lost its grant: %+v", id, ended)
		}
		if err == nil {
			return
		}
		c.pause(time.Second)
	}
}

// doGrant asks one of the servers about a grant, and sees that it answers in time.
func (c *client) doGrant(cmd *gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	ctx, patience := context.Background(), cmd.MaxWait
	if cmd.MaxWait == gatehouse.Forever || cmd.MaxWait > 0 && c.rand.IntN(4) == 0 {
		patience = time.Duration(c.rand.Int64N(int64(4 * time.Second)))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	start := time.Now()
	server := c.rand.IntN(len(c.gates))
	d, err := c.gates[server].DoGrant(ctx, *cmd)
	took := time.Since(start)
	c.store.Note("%s at %d: %s of grant %s since %s: %s %d %v", c.id, server+1, cmd.Op, cmd.ID, took,
		d.Outcome, d.Fence, err)
	if took > patience+10*cas.DefaultTimeout {
		c.fault("client %s: %s of grant %s with %s took %s: %v", c.id, cmd.Op, cmd.ID, patience, took, err)
	}
	code := gatehouse.CodeOf(err)
	if err != nil && code != gatehouse.CodeUnavailable && code != gatehouse.CodeTimeout {
		c.fault("client %s: %s of grant %s: %v", c.id, cmd.Op, cmd.ID, err)
	}
	return d, err
}

// count adds to a counter.
func (c *client) count(key gatehouse.Key) {
	n := c.rand.Int64N(5) + 1
	_, err := c.do(key, gatehouse.Command{Op: gatehouse.OpCount, Amount: n})
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.counted[key.Name]
	if t == nil {
		t = &tally{}
		c.counted[key.Name] = t
	}
	if err == nil {
		t.known += n
	} else {
		t.unknown += n
	}
}

// limit takes from a limiter: at most slots in each 500 ms.
func (c *client) limit(key gatehouse.Key) {
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: slots, Interval: 500 * time.Millisecond}, Cost: 1,
	}
	cmd.MaxWait = []time.Duration{0, 300 * time.Millisecond}[c.rand.IntN(2)]
	if d, err := c.do(key, cmd); err == nil && d.Outcome == gatehouse.Granted {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.granted[key] = append(c.granted[key], d.At)
	}
}

func named(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

// step does one thing.
func (c *client) step() {
	wait := gatehouse.Command{
		Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}, MaxWait: 500 * time.Millisecond,
	}
	switch c.rand.IntN(10) {
	case 8, 9:
		c.grant()
	case 0, 1:
		c.hold(named(gatehouse.Lock, "lock"))
	case 2, 3:
		c.hold(named(gatehouse.Semaphore, "semaphore"))
	case 4:
		c.count(named(gatehouse.Counter, "counter"))
	case 5:
		c.limit(named(gatehouse.FixedWindow, "window"))
	case 6:
		key := named(gatehouse.Barrier, "barrier")
		if _, err := c.do(key, wait); err == nil && c.rand.IntN(3) == 0 {
			_, _ = c.do(key, gatehouse.Command{Op: gatehouse.OpDelete})
		}
	case 7:
		key := named(gatehouse.Event, "event")
		switch c.rand.IntN(3) {
		case 0:
			_, _ = c.do(key, gatehouse.Command{Op: gatehouse.OpSend, Message: "m"})
		case 1:
			_, _ = c.do(key, wait)
		case 2:
			_, _ = c.do(key, gatehouse.Command{Op: gatehouse.OpDelete})
		}
	}
	c.pause(200 * time.Millisecond)
}
