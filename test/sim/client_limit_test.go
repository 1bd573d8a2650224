package sim_test

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// take takes from a limiter, several times.
func (c *client) take() {
	name := "plain"
	if c.setup.store == "lazy" {
		name = []string{"lazy", "chunk"}[c.rand.IntN(2)]
	}
	key := named(c.limits[c.rand.IntN(len(c.limits))], "%s", name)
	for range 1 + c.rand.IntN(4) {
		cmd := limit(key.Kind)
		cmd.MaxWait = []time.Duration{0, time.Second}[c.rand.IntN(2)]
		c.do(key, cmd)
	}
}

// limit is an acquire of a limiter: slots in each window.
func limit(kind gatehouse.Kind) gatehouse.Command {
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: slots, Interval: window}, Cost: 1,
	}
	if kind == gatehouse.GCRA {
		cmd.Burst = slots - 1
	}
	if kind == gatehouse.SlidingWindow {
		cmd.Mode = gatehouse.ModeStrict
	}
	return cmd
}

// meddle does to a limiter whatever there is. Nobody counts what it lets through; it is to answer.
func (c *client) meddle() {
	key := named(c.unused(), "%s", []string{"lazy", "chunk", "plain"}[c.rand.IntN(3)])
	cmd := limit(key.Kind)
	cmd.Holder, cmd.Size = c.newHolder(), 1+c.rand.Int64N(slots)
	cmd.Op = []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpRefund,
		gatehouse.OpReset, gatehouse.OpStats, gatehouse.OpDelete, gatehouse.OpCancel, gatehouse.OpCharge,
	}[c.rand.IntN(10)]
	if cmd.Op == gatehouse.OpCharge {
		cmd.Cost = 1 + c.rand.Int64N(4*slots)
	}
	if c.rand.IntN(4) == 0 {
		cmd.Size = gatehouse.InForce
	}
	cmd.MaxWait = waits[c.rand.IntN(len(waits))]
	c.do(key, cmd)
}

// unused is a kind of limiter whose grants nobody counts.
func (c *client) unused() gatehouse.Kind {
	kind := limiters[c.rand.IntN(len(limiters))]
	for slices.Contains(c.limits, kind) {
		kind = limiters[c.rand.IntN(len(limiters))]
	}
	return kind
}

// book reserves, in whatever way, and takes what is left. Who hangs up has taken nothing, nor who cancels.
func (c *client) book() {
	key := named(c.limits[c.rand.IntN(len(c.limits))], "book")
	cmd := limit(key.Kind)
	cmd.Op, cmd.Holder = gatehouse.OpReserve, c.newHolder()
	c.burst(key)
	for range 1 + c.rand.IntN(4) {
		if s := c.any(c.rand); s != nil { // the same place again and again, with or without its answer
			patience := []time.Duration{gatehouse.Forever, c.some(100 * time.Millisecond)}[c.rand.IntN(2)]
			c.ask(s, request{client: c.id, key: key, cmd: cmd, patience: patience})
		}
	}
	pause(c.some(time.Second))
	if c.rand.IntN(2) == 0 {
		cmd.Op = gatehouse.OpCancel
		c.do(key, cmd)
	}
	c.burst(key)
}

// burst takes all there is at the moment, and leaves one acquire before its answer.
func (c *client) burst(key gatehouse.Key) {
	cmd := limit(key.Kind)
	for range c.rand.IntN(slots + 2) {
		if s := c.any(c.rand); s != nil {
			patience := []time.Duration{gatehouse.Forever, c.some(100 * time.Millisecond)}[c.rand.IntN(2)]
			c.ask(s, request{client: c.id, key: key, cmd: cmd, patience: patience})
		}
	}
}

// refund gives back what was taken, or more, and resets.
func (c *client) refund() {
	key := named(c.limits[c.rand.IntN(len(c.limits))], "refund")
	c.burst(key)
	cmd := limit(key.Kind)
	if cmd.Op = gatehouse.OpRefund; c.rand.IntN(4) == 0 {
		cmd.Op = gatehouse.OpReset
	}
	cmd.Cost += c.rand.Int64N(slots)
	c.do(key, cmd)
	c.burst(key)
}
