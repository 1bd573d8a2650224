package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A client uses one server after the other.
type client struct {
	*cluster
	id   string
	rand *rand.Rand
	next int
}

// What clients want.
const (
	slots   = 3                // of semaphores, in a window of limiters, and at barriers
	window  = 2 * time.Second  // of limiters
	lasting = 30 * time.Second // holds that nobody has lost before
	alarm   = 3 * time.Second  // of the watchdog
)

// named is a key.
func named(kind gatehouse.Kind, format string, args ...any) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: fmt.Sprintf(format, args...)}
}

func (c *client) some(most time.Duration) time.Duration {
	return time.Duration(c.rand.Int64N(int64(most)))
}

// do gives a command to one of the servers.
func (c *client) do(key gatehouse.Key, cmd gatehouse.Command) *call {
	s := c.any(c.rand)
	if s == nil {
		pause(100 * time.Millisecond)
		return &call{key: key, cmd: cmd, err: context.Canceled}
	}
	patience := gatehouse.Forever
	if cmd.MaxWait == gatehouse.Forever || cmd.MaxWait > 0 && c.rand.IntN(4) == 0 {
		patience = c.some(4 * time.Second)
	}
	r := request{client: c.id, key: key, cmd: cmd, patience: patience}
	if r.hasDoor() {
		r.by, r.leaves = way(c.rand.IntN(int(ways))), c.rand.IntN(len(leavings))
	}
	return c.ask(s, r)
}

// A request is a command as it is given to a server.
type request struct {
	client   string
	key      gatehouse.Key
	cmd      gatehouse.Command
	patience time.Duration // after which the client goes away; Forever if it does not
	by       way
	leaves   int // how, among leavings
}

// hasDoor reports whether a command comes through doors too: what is decided about a limiter and a watchdog
// is judged by the store's time of the decision, which is not told there.
func (r *request) hasDoor() bool {
	switch r.cmd.Op {
	case gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew, gatehouse.OpCount, gatehouse.OpValue,
		gatehouse.OpSend, gatehouse.OpWait:
		return !r.key.Kind.Limiter() && r.key.Kind != gatehouse.Watchdog
	}
	return false
}

// slowest is how much longer than a command may wait its answer may take. At the store it takes two time-outs
// at most, one for what is under way there and one of its own; in a line as much for those in front of it.
const slowest = 4*cas.DefaultTimeout + 100*time.Millisecond

// ask gives a command to a server, and notes what comes of it.
func (c *cluster) ask(s *server, r request) *call {
	one := &call{client: r.client, server: s.number, key: r.key, cmd: r.cmd, by: r.by, begin: c.now()}
	done := func(gatehouse.Decision, error) {}
	if r.key.Name[0] == '!' { // a history is kept of it, and nothing is lost there
		done = c.linear.Begin(r.key, r.cmd)
	}
	if r.by == direct {
		one.d, one.gone, one.err = s.do(&r)
	} else {
		one.d, one.gone, one.err = s.through(&r)
	}
	done(one.d, one.err)
	one.end = c.now()
	c.ended(one)
	if took, limit := one.end-one.begin, r.limit(); took > limit {
		c.violated("deadline", r.key, "%s took %s of %s: %v", r.cmd.Op, took, limit, one.err)
	}
	code := gatehouse.CodeOf(one.err)
	if one.err != nil && code != gatehouse.CodeUnavailable && code != gatehouse.CodeTimeout {
		c.violated("answer", r.key, "%s: %v", r.cmd.Op, one.err)
	}
	return one
}

// limit is how long the answer may take. A client that has closed only its half hears that it gets none.
func (r *request) limit() time.Duration {
	limit := r.cmd.MaxWait + slowest
	if r.patience != gatehouse.Forever {
		if limit = r.patience; r.by != direct && r.leaves == 0 {
			limit += slowest
		}
	}
	if strings.HasPrefix(r.key.Name, "lazy") {
		limit += slowest // now and then it asks the store where it said that it would not
	}
	return limit
}

// do gives a command to the gate. gone says that the client left before the answer.
func (s *server) do(r *request) (d gatehouse.Decision, gone bool, err error) {
	ctx := s.ctx
	if r.patience != gatehouse.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.patience)
		defer cancel()
	}
	d, err = s.gate.Do(ctx, r.key, r.cmd)
	return d, ctx.Err() != nil, err
}

// work is a client's life.
func (c *client) work() {
	for {
		c.mu.Lock()
		over := c.over
		c.mu.Unlock()
		if over {
			return
		}
		c.step()
		pause(c.some(2 * time.Second))
	}
}

// step does one thing.
func (c *client) step() {
	age := int(c.now() / (10 * time.Second))
	switch c.rand.IntN(24) {
	case 0, 1:
		c.hold(named(gatehouse.Lock, "lasting"))
	case 2, 3:
		c.hold(named(gatehouse.Semaphore, "lasting"))
	case 4, 5:
		c.holdBriefly()
	case 6:
		c.count()
	case 7, 8:
		c.take()
	case 9:
		c.meddle()
	case 10, 11:
		c.signal(named(gatehouse.Event, "event-%d", age/2))
	case 12:
		c.meet(named(gatehouse.Barrier, "barrier-%d", age))
	case 13:
		c.watch()
	case 14:
		c.book()
	case 15:
		c.refund()
	case 16, 17, 18:
		c.grant()
	case 19:
		c.aside()
	case 20, 21:
		if !c.lossy {
			c.recordGrant(age / 3)
		}
	default:
		if !c.lossy {
			c.record(age / 3)
		}
	}
}

// newHolder is a holder that nobody was before.
func (c *client) newHolder() string {
	c.next++
	return fmt.Sprintf("%s-%d", c.id, c.next)
}

var waits = []time.Duration{0, 200 * time.Millisecond, 2 * time.Second, gatehouse.Forever}

// hold acquires what lasts, uses it, and gives it back. While it has it nobody may take it away.
func (c *client) hold(key gatehouse.Key) {
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: c.newHolder(),
		Rule: gatehouse.Rule{Size: slots}, Cost: 1, Expires: lasting,
		MaxWait: waits[c.rand.IntN(len(waits))],
	}
	if key.Kind == gatehouse.Semaphore {
		cmd.Cost += c.rand.Int64N(2)
	}
	one := c.do(key, cmd)
	if !one.granted() {
		return
	}
	pause(c.some(500 * time.Millisecond))
	c.keep(one)
	cmd.Op, cmd.MaxWait = gatehouse.OpRelease, 0
	for !c.do(key, cmd).decided() {
		pause(c.some(time.Second))
	}
}

// keep does something to a hold that must not end it.
func (c *client) keep(one *call) {
	cmd := one.cmd
	switch c.rand.IntN(3) {
	case 0: // it shares its own hold, and then goes away: what is taken back is the share
		if s := c.any(c.rand); s != nil {
			c.ask(s, request{client: c.id, key: one.key, cmd: cmd, patience: c.some(100 * time.Millisecond)})
		}
		pause(c.some(100 * time.Millisecond))
	case 1:
		cmd.MaxWait = 0
	default:
		return
	}
	cmd.Op, cmd.MaxWait = gatehouse.OpRenew, 0
	c.do(one.key, cmd)
}

// holdBriefly acquires what ends by itself, changes its size, or deletes it.
func (c *client) holdBriefly() {
	key := named(gatehouse.Lock, "brief")
	if c.rand.IntN(2) == 0 {
		key.Kind = gatehouse.Semaphore
	}
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: c.newHolder(),
		Rule: gatehouse.Rule{Size: 1 + c.rand.Int64N(slots)}, Cost: 1,
		Expires: time.Millisecond + c.some(2*time.Second), MaxWait: waits[c.rand.IntN(len(waits))],
	}
	c.do(key, cmd)
	cmd.MaxWait = 0
	switch c.rand.IntN(6) {
	case 0:
		cmd.Op, cmd.Expires = gatehouse.OpRenew, gatehouse.AsAcquired
		c.do(key, cmd)
	case 1:
		cmd.Op = gatehouse.OpRelease
		c.do(key, cmd)
	case 2:
		c.do(key, gatehouse.Command{Op: gatehouse.OpDelete})
	case 3:
		c.do(key, gatehouse.Command{Op: gatehouse.OpStats})
	}
}

func (c *client) count() {
	key := named(gatehouse.Counter, "counter")
	if c.rand.IntN(3) == 0 {
		c.do(key, gatehouse.Command{Op: gatehouse.OpValue})
		return
	}
	c.do(key, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1 + c.rand.Int64N(5)})
}

// signal waits for an event, or sends it.
func (c *client) signal(key gatehouse.Key) {
	if c.rand.IntN(4) == 0 {
		c.do(key, gatehouse.Command{Op: gatehouse.OpSend, Message: c.newHolder()})
		return
	}
	c.do(key, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: c.waitOf(6 * time.Second)})
}

func (c *client) waitOf(most time.Duration) time.Duration {
	if c.rand.IntN(3) == 0 {
		return 0
	}
	return c.some(most)
}

// meet waits at a barrier.
func (c *client) meet(key gatehouse.Key) {
	c.do(key, gatehouse.Command{
		Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: slots}, MaxWait: c.waitOf(6 * time.Second),
	})
}

// watch kicks the watchdog, or waits for it to fire.
func (c *client) watch() {
	key := named(gatehouse.Watchdog, "watchdog")
	if c.rand.IntN(2) == 0 {
		c.do(key, gatehouse.Command{Op: gatehouse.OpKick, Expires: alarm})
		return
	}
	c.do(key, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: c.waitOf(6 * time.Second)})
}

// record does something that is looked through for an order that explains all answers.
func (c *client) record(age int) {
	switch c.rand.IntN(4) {
	case 0:
		op := []gatehouse.Op{gatehouse.OpCount, gatehouse.OpValue, gatehouse.OpReset}[c.rand.IntN(3)]
		c.do(named(gatehouse.Counter, "!%d", age), gatehouse.Command{Op: op, Amount: c.rand.Int64N(9)})
	case 1:
		cmd := gatehouse.Command{Op: gatehouse.OpWait}
		if c.rand.IntN(4) == 0 {
			cmd = gatehouse.Command{Op: gatehouse.OpSend, Message: c.newHolder()}
		}
		c.do(named(gatehouse.Event, "!%d", age), cmd)
	default:
		kind := []gatehouse.Kind{gatehouse.Lock, gatehouse.Semaphore}[c.rand.IntN(2)]
		key := named(kind, "!%d", age)
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: c.newHolder(),
			Rule: gatehouse.Rule{Size: slots}, Cost: 1, Expires: 24 * time.Hour,
		}
		if kind == gatehouse.Lock {
			cmd.Size = 1 // the model goes by it
		}
		c.recordHold(key, cmd)
	}
}

// recordHold acquires, and goes on whatever came of that: it renews, acquires again and releases, with the
// token that it knows or without, and releases in the end.
func (c *client) recordHold(key gatehouse.Key, cmd gatehouse.Command) {
	one := c.do(key, cmd)
	if one.decided() && !one.granted() {
		return
	}
	fence := one.d.Fence
	for tries, next := 0, cmd; tries < 3; tries++ {
		pause(c.some(300 * time.Millisecond))
		next.Op = []gatehouse.Op{gatehouse.OpRenew, gatehouse.OpAcquire, gatehouse.OpRelease}[c.rand.IntN(3)]
		next.Fence = 0
		if next.Op != gatehouse.OpAcquire && c.rand.IntN(2) == 0 {
			next.Fence = fence // which may be that of a hold before the present one
		}
		again := c.do(key, next)
		if again.granted() && next.Op == gatehouse.OpAcquire && c.rand.IntN(2) == 0 {
			fence = again.d.Fence
		}
	}
	cmd.Op = gatehouse.OpRelease
	for tries := 0; tries < 3 && !c.do(key, cmd).decided(); tries++ {
		pause(c.some(100 * time.Millisecond))
	}
}
