//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"time"
)

// How many names of each sort there are that clients share.
const (
	sharedLocks = 10
	pools       = 5
	poolSize    = 4
	keptPools   = 4
	keptSize    = 200
	counters    = 6
	buckets     = 4
	mostKept    = 60 // by one client
)

const (
	bucketSize     = 20
	bucketInterval = time.Second
	slowSize       = 40
	slowInterval   = 10 * time.Second
)

// tries is how often a client asks for something before it gives up.
const tries = 6

// step does one thing of those that clients do.
func (c *client) step() {
	switch n := c.random.IntN(100); {
	case n < 25:
		c.hold(call{key: c.one("lock/shared", sharedLocks)})
	case n < 40:
		c.hold(call{key: c.one("semaphore/pool", pools), size: poolSize, cost: 1 + c.random.Int64N(2)})
	case n < 48:
		c.keep()
	case n < 56:
		c.checkKept()
	case n < 59:
		c.drop()
	case n < 72:
		c.count()
	case n < 76:
		c.send()
	case n < 84:
		c.look()
	default:
		c.take()
	}
}

// one is one of so many names.
func (c *client) one(prefix string, of int) string {
	return fmt.Sprintf("%s-%d", prefix, c.random.IntN(of))
}

// hold takes a lock or a part of a semaphore for a moment.
func (c *client) hold(q call) {
	q.op, q.holder, q.hasExpires = "acquire", c.name(), true
	q.expires = time.Second + c.upTo(2*time.Second)
	q.maxWait = c.upTo(400 * time.Millisecond)
	answer := c.ask(q)
	if answer.maybe() {
		switch c.random.IntN(5) {
		case 0:
			return // it ends by itself, if it was granted
		case 1:
			c.release(q)
			return
		case 2: // what it may have, nobody takes back once it is renewed
			answer = c.renew(q)
		default:
			answer = c.insist(q, tries)
		}
	}
	if answer.outcome != granted {
		return
	}
	if c.chance(2) {
		q.means = answer.fence
	}
	beats := 1
	for c.chance(2) {
		beats++
	}
	for ; beats > 0; beats-- {
		sleep(c.ctx, c.upTo(60*time.Millisecond))
		if beats > 1 {
			c.renew(q)
		}
	}
	if !c.chance(25) {
		c.release(q)
	}
}

// renew renews what was acquired by q, for as long as before.
func (c *client) renew(q call) *call { return c.ask(renewal(q)) }

func renewal(q call) call {
	return call{key: q.key, op: "renew", holder: q.holder, means: q.means, expires: q.expires}
}

// release gives back what was acquired by q, and looks at times whether it stays so.
func (c *client) release(q call) {
	answer := c.insist(call{key: q.key, op: "release", holder: q.holder, means: q.means}, tries)
	if answer.outcome == granted && c.chance(4) {
		c.renew(q)
	}
}

// keep takes what is not given back soon: a lock of its own, or a part of a large semaphore.
func (c *client) keep() {
	if len(c.kept) >= mostKept {
		c.drop()
		return
	}
	q := call{op: "acquire", holder: c.name(), hasExpires: true}
	q.key = "lock/kept-" + q.holder
	if c.chance(2) {
		q.key, q.size, q.cost = c.one("semaphore/kept", keptPools), keptSize, 1
	}
	if c.chance(2) {
		q.expires = 10 * time.Minute
	}
	if answer := c.insist(q, tries); answer.outcome == granted {
		if c.chance(2) {
			q.means = answer.fence
		}
		c.kept = append(c.kept, q)
	}
}

// checkKept looks whether something that is kept still is.
func (c *client) checkKept() {
	if len(c.kept) == 0 {
		return
	}
	q := c.kept[c.random.IntN(len(c.kept))]
	c.renew(q)
	switch {
	case c.chance(2):
		c.intrude(q)
	case q.means != 0 && c.chance(4): // another hold of its own is meant, which is long over
		c.ask(call{key: q.key, op: "release", holder: q.holder, means: q.means - 1})
	}
}

// intrude asks, as somebody else, for what is kept.
func (c *client) intrude(q call) {
	q.holder, q.means, q.expires, q.hasExpires, q.maxWait = c.name(), 0, time.Second, true, 0
	c.ask(q)
}

// drop gives back something that was kept.
func (c *client) drop() {
	if len(c.kept) == 0 {
		return
	}
	i := c.random.IntN(len(c.kept))
	q := c.kept[i]
	c.kept = append(c.kept[:i], c.kept[i+1:]...)
	c.release(q)
	c.dropped = append(c.dropped, q)
}

// count counts, or looks at a counter. A count whose outcome is unknown is not done again.
func (c *client) count() {
	q := call{key: c.one("counter/c", counters), op: "value"}
	if !c.chance(5) {
		q.op, q.amount = "count", 1+c.random.Int64N(5)
	}
	c.ask(q)
}

// send sends an event.
func (c *client) send() {
	name := c.name()
	q := call{key: "event/e-" + name, op: "send", message: "m-" + name}
	if answer := c.insist(q, tries); answer.outcome == granted {
		c.run.mu.Lock()
		c.run.events = append(c.run.events, q.key)
		c.run.mu.Unlock()
	}
}

// look waits for an event that was sent, or sends it again, in vain.
func (c *client) look() {
	c.run.mu.Lock()
	key := ""
	if n := len(c.run.events); n > 0 {
		key = c.run.events[c.random.IntN(n)]
	}
	c.run.mu.Unlock()
	switch {
	case key == "":
	case c.chance(8):
		c.ask(call{key: key, op: "send", message: "again"})
	default:
		c.ask(call{key: key, op: "wait"})
	}
}

// take takes tokens.
func (c *client) take() {
	q := call{
		key: c.one("tokenbucket/fast", buckets), op: "acquire", cost: 1 + c.random.Int64N(2),
		size: bucketSize, interval: bucketInterval,
	}
	if c.chance(3) {
		q.key, q.size, q.interval = c.one("tokenbucket/slow", buckets), slowSize, slowInterval
	}
	if c.chance(4) {
		q.maxWait = c.upTo(200 * time.Millisecond)
	}
	c.ask(q)
}

// lastTries is how often a client asks in the last look, when nothing fails any more.
const lastTries = 100

// lookAgain asks for everything that was promised to this client, and the first one for what all share.
func (c *client) lookAgain(ctx context.Context) {
	c.ctx = ctx
	final := func(q call) {
		q.final = true
		c.at = c.random.IntN(len(c.wires))
		c.insist(q, lastTries)
	}
	for _, q := range c.kept {
		final(renewal(q))
		if q.size == 0 {
			q.holder, q.means, q.expires, q.maxWait = c.name(), 0, time.Second, 0
			final(q)
		}
	}
	for _, q := range c.dropped {
		final(renewal(q))
	}
	for n := c.number; n < counters; n += c.run.config.clients {
		final(call{key: fmt.Sprintf("counter/c-%d", n), op: "value"})
	}
	for n := c.number; n < len(c.run.events); n += c.run.config.clients {
		final(call{key: c.run.events[n], op: "wait"})
	}
}
