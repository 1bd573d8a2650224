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

// makeCall does one thing of those that clients do.
func (c *loadClient) makeCall() {
	// Percent of calls. Holds have more than half: four of the promises are about them.
	switch n := c.random.IntN(100); {
	case n < 25:
		c.holdBriefly(recordedCall{key: c.pickName("lock/shared", sharedLocks)})
	case n < 40:
		c.holdBriefly(recordedCall{key: c.pickName("semaphore/pool", pools), size: poolSize,
			cost: 1 + c.random.Int64N(2)})
	case n < 48:
		c.keepHold()
	case n < 56:
		c.checkKept()
	case n < 59:
		c.releaseKept()
	case n < 72:
		c.changeCounter()
	case n < 76:
		c.sendEvent()
	case n < 84:
		c.awaitEvent()
	default:
		c.takeTokens()
	}
}

// pickName returns one of n names at random.
func (c *loadClient) pickName(prefix string, of int) string {
	return fmt.Sprintf("%s-%d", prefix, c.random.IntN(of))
}

// holdBriefly takes a lock or a part of a semaphore for a moment.
func (c *loadClient) holdBriefly(q recordedCall) {
	q.op, q.holder, q.hasExpires = "acquire", c.uniqueName(), true
	q.expires = time.Second + c.randomTime(2*time.Second)
	q.maxWait = c.randomTime(400 * time.Millisecond)
	answer := c.sendCall(q)
	if answer.isUncertain() {
		// All that a client may do when it does not know: leave it, give it back, confirm it, ask again.
		switch c.random.IntN(5) {
		case 0:
			return // it ends by itself, if it was granted
		case 1:
			c.releaseHold(q)
			return
		case 2: // if it was granted, a renewal confirms it, and it stays
			answer = c.renewHold(q)
		default:
			answer = c.retryCall(q, tries)
		}
	}
	if answer.outcome != granted {
		return
	}
	// A client may name the token or only its key. Both ways are tried.
	if c.oneIn(2) {
		q.meantFence = answer.fence
	}
	// A geometric number of renewals: most holds are short, and some last through a fault.
	beats := 1
	for c.oneIn(2) {
		beats++
	}
	for ; beats > 0; beats-- {
		sleepFor(c.ctx, c.randomTime(60*time.Millisecond))
		if beats > 1 {
			c.renewHold(q)
		}
	}
	// The others abandon the hold: its room must be free again when it expires.
	if !c.oneIn(25) {
		c.releaseHold(q)
	}
}

// renewHold renews what was acquired by q, for as long as before.
func (c *loadClient) renewHold(q recordedCall) *recordedCall { return c.sendCall(renewCall(q)) }

func renewCall(q recordedCall) recordedCall {
	return recordedCall{key: q.key, op: "renew", holder: q.holder, meantFence: q.meantFence,
		expires: q.expires}
}

// releaseHold gives back what was acquired by q, and looks at times whether it stays so.
func (c *loadClient) releaseHold(q recordedCall) {
	answer := c.retryCall(recordedCall{key: q.key, op: "release", holder: q.holder,
		meantFence: q.meantFence}, tries)
	// This renewal must fail.
	if answer.outcome == granted && c.oneIn(4) {
		c.renewHold(q)
	}
}

// keepHold takes what is not given back soon: a lock of its own, or a part of a large semaphore.
func (c *loadClient) keepHold() {
	// The last look asks for every one, so their number is bounded.
	if len(c.kept) >= mostKept {
		c.releaseKept()
		return
	}
	q := recordedCall{op: "acquire", holder: c.uniqueName(), hasExpires: true}
	q.key = "lock/kept-" + q.holder
	if c.oneIn(2) {
		q.key, q.size, q.cost = c.pickName("semaphore/kept", keptPools), keptSize, 1
	}
	// The others have no end: expires stays 0.
	if c.oneIn(2) {
		q.expires = 10 * time.Minute
	}
	if answer := c.retryCall(q, tries); answer.outcome == granted {
		if c.oneIn(2) {
			q.meantFence = answer.fence
		}
		c.kept = append(c.kept, q)
	}
}

// checkKept looks whether something that is kept still is.
func (c *loadClient) checkKept() {
	if len(c.kept) == 0 {
		return
	}
	q := c.kept[c.random.IntN(len(c.kept))]
	c.renewHold(q)
	switch {
	// A stranger must not get a lock that is kept, nor more of a semaphore than is free.
	case c.oneIn(2):
		c.acquireAsOther(q)
	case q.meantFence != 0 && c.oneIn(4): // another hold of its own is meant, which is long over
		c.sendCall(recordedCall{key: q.key, op: "release", holder: q.holder, meantFence: q.meantFence - 1})
	}
}

// acquireAsOther tries to acquire what is kept under another holder's name.
func (c *loadClient) acquireAsOther(q recordedCall) {
	q.holder, q.meantFence, q.expires, q.hasExpires, q.maxWait = c.uniqueName(), 0, time.Second, true, 0
	c.sendCall(q)
}

// releaseKept gives back something that was kept.
func (c *loadClient) releaseKept() {
	if len(c.kept) == 0 {
		return
	}
	i := c.random.IntN(len(c.kept))
	q := c.kept[i]
	c.kept = append(c.kept[:i], c.kept[i+1:]...)
	c.releaseHold(q)
	c.dropped = append(c.dropped, q)
}

// changeCounter counts, or looks at a counter. A count whose outcome is unknown is not done again.
func (c *loadClient) changeCounter() {
	q := recordedCall{key: c.pickName("counter/c", counters), op: "value"}
	if !c.oneIn(5) {
		q.op, q.amount = "count", 1+c.random.Int64N(5)
	}
	c.sendCall(q)
}

// sendEvent sends an event.
func (c *loadClient) sendEvent() {
	name := c.uniqueName()
	q := recordedCall{key: "event/e-" + name, op: "send", message: "m-" + name}
	// If an earlier try got through without an answer, a later one is a conflict. Then the event is left out,
	// as nothing was acknowledged.
	if answer := c.retryCall(q, tries); answer.outcome == granted {
		c.run.mu.Lock()
		c.run.events = append(c.run.events, q.key)
		c.run.mu.Unlock()
	}
}

// awaitEvent waits for an event that was sent, or sends it again, in vain.
func (c *loadClient) awaitEvent() {
	c.run.mu.Lock()
	key := ""
	if n := len(c.run.events); n > 0 {
		key = c.run.events[c.random.IntN(n)]
	}
	c.run.mu.Unlock()
	switch {
	case key == "":
	// An event is sent once, so this must be a conflict.
	case c.oneIn(8):
		c.sendCall(recordedCall{key: key, op: "send", message: "again"})
	// With a maxwait of 0: an event that was sent before is answered at once.
	default:
		c.sendCall(recordedCall{key: key, op: "wait"})
	}
}

// takeTokens takes tokens.
func (c *loadClient) takeTokens() {
	q := recordedCall{
		key: c.pickName("tokenbucket/fast", buckets), op: "acquire", cost: 1 + c.random.Int64N(2),
		size: bucketSize, interval: bucketInterval,
	}
	// A bucket that refills every 10 s shows for longer what it has forgotten.
	if c.oneIn(3) {
		q.key, q.size, q.interval = c.pickName("tokenbucket/slow", buckets), slowSize, slowInterval
	}
	if c.oneIn(4) {
		q.maxWait = c.randomTime(200 * time.Millisecond)
	}
	c.sendCall(q)
}

// finalTries is how often a client asks in the last look, when nothing fails any more.
const finalTries = 100

// verifyKept asks for everything that was promised to this client, and for its part of what all share.
func (c *loadClient) verifyKept(ctx context.Context) {
	c.ctx = ctx
	final := func(q recordedCall) {
		q.final = true
		// Any server must know, not only the one that granted it.
		c.currentServer = c.random.IntN(len(c.conns))
		c.retryCall(q, finalTries)
	}
	// What is kept must still be renewable, and no other holder may get it.
	for _, q := range c.kept {
		final(renewCall(q))
		// Only a lock: a large semaphore may have room for another holder.
		if q.size == 0 {
			q.holder, q.meantFence, q.expires, q.maxWait = c.uniqueName(), 0, time.Second, 0
			final(q)
		}
	}
	// What was given back must stay so.
	for _, q := range c.dropped {
		final(renewCall(q))
	}
	// What all clients share is divided among them by number.
	for n := c.number; n < counters; n += c.run.config.clients {
		final(recordedCall{key: fmt.Sprintf("counter/c-%d", n), op: "value"})
	}
	for n := c.number; n < len(c.run.events); n += c.run.config.clients {
		final(recordedCall{key: c.run.events[n], op: "wait"})
	}
}
