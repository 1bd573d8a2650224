package simulate

import (
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A client wants some of the resource, and uses what it may.
type client struct {
	w     *world
	name  string
	node  *node
	group *group
	skew  time.Duration

	up     bool
	runs   int // counts its comings
	wish   wish
	step   int
	holder *capacity.Holder
	caller caller
	use    use

	planned time.Duration // when it wakes next; never
	turn    uint64        // counts plans, so that only the last one is carried out

	released time.Duration // when its server has heard that it left; 0 before it ever did

	outside bool    // its lease is not from the root
	comes   bool    // an answer of amount is on its way
	amount  float64 // of it
}

// A use is what a client may use, and what it wants.
type use struct {
	leased, safe, wants float64
	told                float64 // leased, less what an answer on its way takes back
}

func (w *world) newClient(n *node, g *group, name string) {
	c := &client{w: w, name: name, node: n, group: g, skew: w.skew()}
	c.wish = wish{g.recipe.base, g.recipe.base}
	c.caller = caller{node: n, task: -1, all: true, hops: clientHops}
	c.caller.turn = w.travel.IntN(len(n.tasks))
	w.clients = append(w.clients, c)
}

func (c *client) clock() time.Time { return c.w.clock(c.skew) }

// join starts the client.
func (c *client) join() {
	if c.up {
		return
	}
	// One that comes back at once is heard after its good-bye, as on one connection. Otherwise that would end
	// the lease it has just been given, which is what no client of one name does to itself.
	if c.released > c.w.now {
		c.w.at(c.released, c.join)
		return
	}
	c.up = true
	c.runs++
	c.planned = never
	c.caller.task = -1
	c.holder = capacity.NewHolder(capacity.HolderConfig{
		MinRefresh: c.group.minRefresh, Random: c.w.travel.Float64,
	})
	c.holder.Want(resourceName, c.group.priority, c.wish.now)
	c.wake()
	if c.group.every > 0 && c.group.recipe.change != "" {
		run := c.runs
		c.w.after(c.w.span(span{0, c.group.every}, c.w.wishes), func() { c.change(run) })
	}
}

// change is one step of the recipe.
func (c *client) change(run int) {
	if !c.up || c.runs != run {
		return
	}
	g := c.group
	c.step++
	if g.reset > 0 && c.step >= g.turn() {
		c.step, c.wish.now = 0, c.wish.base
	} else {
		c.wish.now = g.recipe.next(c.wish, c.step, g.turn(), c.w.wishes)
	}
	c.want()
	c.w.after(g.every, func() { c.change(run) })
}

// want tells the holder what is wanted now.
func (c *client) want() {
	if c.up {
		c.holder.Want(resourceName, c.group.priority, c.wish.now)
		c.wake()
	}
}

// wake does what is due, and plans when to wake again.
func (c *client) wake() {
	if !c.up {
		return
	}
	now := c.clock()
	c.holder.Tick(now)
	c.account(now)
	if requests := c.holder.Requests(now); len(requests) > 0 {
		c.send(requests)
	}
	c.plan()
}

// plan plans to wake, if that is due before it is planned. A client that wakes too early plans again.
func (c *client) plan() {
	instant := c.holder.Next()
	if instant.IsZero() {
		return
	}
	next := max(planned(instant, c.skew), c.w.now)
	if next >= c.planned {
		return
	}
	c.planned = next
	c.turn++
	turn := c.turn
	c.w.at(next, func() {
		if turn == c.turn {
			c.planned = never
			c.wake()
		}
	})
}

func (c *client) send(requests []capacity.Request) {
	run := c.runs
	call := &call{w: c.w, from: &c.caller}
	call.ask = func(t *task) answer {
		a := t.decide(question{c.name, requests, c.outside})
		if len(a.grants) > 0 && c.runs == run {
			c.coming(a.grants[0].Lease.Capacity)
		}
		return a
	}
	call.done = func(a answer) {
		if !c.up || c.runs != run {
			return
		}
		c.comes = false
		if a.ok {
			c.holder.AnsweredBy(c.clock(), a.clock, a.grants)
			c.outside = a.outside
		} else {
			c.holder.Failed(c.clock())
		}
		c.wake()
	}
	call.begin()
}

// coming notes that a server has decided, and that the client will hear of it.
func (c *client) coming(amount float64) {
	c.comes, c.amount = true, amount
	c.account(c.clock())
}

// account tells the measure what the client may use from now on.
func (c *client) account(now time.Time) {
	u := use{wants: c.wish.now}
	amount, leased := c.holder.Capacity(now, resourceName)
	if amount < 0 {
		amount = c.wish.now // without limit
	}
	if leased && !c.outside {
		u.leased, u.told = amount, amount
		if c.comes {
			u.told = min(amount, c.amount)
		}
	} else {
		u.safe = amount
	}
	c.w.measure.uses(c, u)
}

// leave ends the client, with or without a word to its server.
func (c *client) leave(release bool) {
	if !c.up {
		return
	}
	c.up = false
	c.runs++
	c.comes = false
	c.w.measure.uses(c, use{})
	if master := c.node.master; release && master != nil && master.up && !c.caller.cut {
		delay := c.w.span(c.w.scenario.network.delay, c.w.travel)
		c.released = c.w.now + delay
		c.w.after(delay, func() { master.server.Release(master.clock(), c.name, resourceName) })
	}
}
