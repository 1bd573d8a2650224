package simulate

import (
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// The real callers follow so often from one server to another that it names as master.
const (
	clientHops = 5
	parentHops = 3
)

// A caller asks the tasks of a server, as a client does and a server its parent.
type caller struct {
	node *node
	task int  // it is connected to; -1 none
	turn int  // of the tasks, whose turn it is when it is not connected
	cut  bool // nothing gets through

	all  bool // one that fails makes it try the others at once, as clients do
	hops int  // it follows at most
}

// A call is one request on its way, until it was answered or failed.
type call struct {
	w     *world
	from  *caller
	hops  int
	tried [maxTasks]bool

	ask  func(t *task) answer // decides at a server
	done func(answer)         // is told what came back
}

// An answer is what a server says, or that it failed.
type answer struct {
	ok     bool // the server is master
	grants []capacity.Grant
	clock  time.Time // the server's

	// outside says that the grants are not from the root: the server, or one above it, has lost its
	// parent and gives what its clients may use without.
	outside bool
}

// begin sends the request to the task the caller is connected to, or whose turn it is.
func (c *call) begin() {
	if c.from.task < 0 {
		c.from.task = c.from.turn
	}
	c.send()
}

func (c *call) send() {
	w := c.w
	w.counts.Requests++
	c.tried[c.from.task] = true
	if !c.through() {
		w.after(w.scenario.network.timeout, c.failed)
		return
	}
	t := c.from.node.tasks[c.from.task]
	run := t.runs
	w.after(w.span(w.scenario.network.delay, w.travel), func() { c.arrive(t, run) })
}

// through reports whether a message gets through.
func (c *call) through() bool {
	if c.from.cut {
		return false
	}
	lost := max(c.w.scenario.network.loss, c.w.lost)
	return lost == 0 || c.w.travel.Float64() >= lost
}

// arrive is when the request is at the task.
func (c *call) arrive(t *task, run int) {
	w := c.w
	back := w.span(w.scenario.network.delay, w.travel)
	if !t.up || t.runs != run {
		w.after(back, c.failed) // the connection is refused, or broken
		return
	}
	a := c.ask(t)
	if !c.through() {
		w.after(w.scenario.network.timeout, c.failed)
		return
	}
	if !a.ok {
		master := t.node.master
		w.after(back, func() { c.redirected(master) })
		return
	}
	for i := range a.grants {
		a.grants[i].Lease = wire(a.grants[i].Lease)
	}
	a.clock = t.clock()
	w.after(back, func() {
		w.counts.Answers++
		c.done(a)
	})
}

// redirected follows to the master, if the server knew one.
func (c *call) redirected(master *task) {
	c.w.counts.Redirects++
	c.hops++
	if master == nil || c.hops > c.from.hops || c.tried[master.place] {
		c.failed()
		return
	}
	c.from.task = master.place
	c.send()
}

// failed tries the next task, now or with the next call.
func (c *call) failed() {
	tasks := len(c.from.node.tasks)
	if c.from.all {
		for i := range tasks {
			if next := (c.from.turn + i) % tasks; !c.tried[next] {
				c.from.task = next
				c.send()
				return
			}
		}
	} else {
		c.from.turn = (c.from.turn + 1) % tasks
	}
	c.w.counts.Failures++
	c.from.task = -1
	c.done(answer{})
}
