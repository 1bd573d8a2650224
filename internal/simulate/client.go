package simulate

import (
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A simClient is a client of the resource. Its decisions are those of a real capacity.Holder.
type simClient struct {
	w     *world
	name  string
	node  *serverNode
	group *clientGroup
	skew  time.Duration

	up     bool
	runs   int // counts starts and stops: what belongs to an earlier run is ignored
	wants  wantsState
	step   int
	holder *capacity.Holder
	caller rpcCaller
	usage  clientUsage

	wakeAt     time.Duration // when it wakes next; never
	planNumber uint64        // counts plans: only the last one is carried out

	released time.Duration // when its last release arrives at the server; 0 before the first

	detached       bool    // its lease is not from the root
	responseOnWay  bool    // a response with responseAmount is on its way
	responseAmount float64 // of it
}

// A clientUsage is what a client may use, and what it wants.
type clientUsage struct {
	leased, safe, wants float64
	confirmed           float64 // leased, less what a response on its way takes back
}

func (w *world) newClient(n *serverNode, g *clientGroup, name string) {
	c := &simClient{w: w, name: name, node: n, group: g, skew: w.randomSkew()}
	c.wants = wantsState{g.recipe.base, g.recipe.base}
	c.caller = rpcCaller{node: n, task: -1, triesAll: true, maxHops: clientHops}
	c.caller.nextTask = w.networkRandom.IntN(len(n.tasks))
	w.clients = append(w.clients, c)
}

func (c *simClient) localTime() time.Time { return c.w.clockWithSkew(c.skew) }

// startClient starts the client.
func (c *simClient) startClient() {
	if c.up {
		return
	}
	// One that comes back at once is heard after its good-bye, as on one connection. Otherwise that would end
	// the lease it has just been given, which is what no client of one name does to itself.
	// A client that comes back at once must be heard after its release, as on one connection. Otherwise the
	// release would end the lease it has just been given, which no real client does to itself.
	if c.released > c.w.now {
		c.w.scheduleAt(c.released, c.startClient)
		return
	}
	c.up = true
	c.runs++
	c.wakeAt = never
	c.caller.task = -1
	// A new process knows nothing of the leases it had.
	c.holder = capacity.NewHolder(capacity.HolderConfig{
		MinRefresh: c.group.minRefresh, Random: c.w.networkRandom.Float64,
	})
	c.holder.Want(resourceName, c.group.priority, c.wants.now)
	c.wakeUp()
	if c.group.every > 0 && c.group.recipe.change != "" {
		run := c.runs
		// The first step comes at a random time, so that clients which start together do not change together.
		first := c.w.timeWithin(timeRange{0, c.group.every}, c.w.wantsRandom)
		c.w.scheduleAfter(first, func() { c.stepWants(run) })
	}
}

// stepWants takes one step of the recipe.
func (c *simClient) stepWants(run int) {
	if !c.up || c.runs != run {
		return
	}
	g := c.group
	c.step++
	// The recipe is over and starts again with what the client began with.
	if g.reset > 0 && c.step >= g.stepsPerTurn() {
		c.step, c.wants.now = 0, c.wants.base
	} else {
		c.wants.now = g.recipe.next(c.wants, c.step, g.stepsPerTurn(), c.w.wantsRandom)
	}
	c.updateWants()
	c.w.scheduleAfter(g.every, func() { c.stepWants(run) })
}

// updateWants passes what is wanted now to the holder.
func (c *simClient) updateWants() {
	if c.up {
		c.holder.Want(resourceName, c.group.priority, c.wants.now)
		c.wakeUp()
	}
}

// wakeUp does what is due, and plans when to wake again.
func (c *simClient) wakeUp() {
	if !c.up {
		return
	}
	now := c.localTime()
	// First what has run out, then the request: a request must not report a lease that has ended.
	c.holder.Tick(now)
	c.recordUsage(now)
	if requests := c.holder.Requests(now); len(requests) > 0 {
		c.sendRequests(requests)
	}
	c.scheduleWake()
}

// scheduleWake plans to wake up, if that is due before what is planned. A client that wakes too early plans
// again.
func (c *simClient) scheduleWake() {
	instant := c.holder.Next()
	if instant.IsZero() {
		return
	}
	// The holder's time is that of the client's own clock, which may be ahead or behind.
	next := max(virtualTime(instant, c.skew), c.w.now)
	if next >= c.wakeAt {
		return
	}
	c.wakeAt = next
	// Events cannot be removed from the queue. One whose number is out of date does nothing.
	c.planNumber++
	turn := c.planNumber
	c.w.scheduleAt(next, func() {
		if turn == c.planNumber {
			c.wakeAt = never
			c.wakeUp()
		}
	})
}

// sendRequests sends requests to the client's server, and applies the response.
func (c *simClient) sendRequests(requests []capacity.Request) {
	run := c.runs
	call := &rpcCall{w: c.w, from: &c.caller}
	call.serve = func(t *task) rpcResponse {
		a := t.grantLeases(rpcRequest{c.name, requests, c.detached})
		// This runs at the server, before the response travels back. The measurement must know from here on
		// that the client is about to get another amount.
		if len(a.grants) > 0 && c.runs == run {
			c.noteResponse(a.grants[0].Lease.Capacity)
		}
		return a
	}
	call.onResponse = func(a rpcResponse) {
		// The client that asked has stopped. A restarted one has a new holder, which has not asked.
		if !c.up || c.runs != run {
			return
		}
		c.responseOnWay = false
		if a.ok {
			c.holder.AnsweredBy(c.localTime(), a.clock, a.grants)
			c.detached = a.detached
		} else {
			c.holder.Failed(c.localTime())
		}
		c.wakeUp()
	}
	call.beginCall()
}

// noteResponse notes that a server has decided, and that its response is on its way.
func (c *simClient) noteResponse(amount float64) {
	c.responseOnWay, c.responseAmount = true, amount
	c.recordUsage(c.localTime())
}

// recordUsage passes what the client may use from now on to the measurement.
func (c *simClient) recordUsage(now time.Time) {
	// A client that is up uses all it may, wanted or not: what it does not want is not useful, but held.
	u := clientUsage{wants: c.wants.now}
	amount, leased := c.holder.Capacity(now, resourceName)
	if amount < 0 {
		amount = c.wants.now // without limit
	}
	// A lease that goes back to the root counts against the capacity. Everything else is use without a lease,
	// as far as the root can know.
	if leased && !c.detached {
		u.leased, u.confirmed = amount, amount
		if c.responseOnWay {
			u.confirmed = min(amount, c.responseAmount)
		}
	} else {
		u.safe = amount
	}
	c.w.measure.noteUsage(c, u)
}

// stopClient stops the client, with or without a release to its server.
func (c *simClient) stopClient(release bool) {
	if !c.up {
		return
	}
	c.up = false
	c.runs++
	c.responseOnWay = false
	c.w.measure.noteUsage(c, clientUsage{})
	// A release is sent once and not repeated. Without a master, or while the client is cut off, it is lost,
	// and the server has to wait for the end of the lease.
	if master := c.node.master; release && master != nil && master.up && !c.caller.cut {
		delay := c.w.timeWithin(c.w.scenario.network.delay, c.w.networkRandom)
		c.released = c.w.now + delay
		c.w.scheduleAfter(delay, func() { master.server.Release(master.localTime(), c.name, resourceName) })
	}
}
