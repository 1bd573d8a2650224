package simulate

import (
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// How often the real clients and servers follow from one server to another that it names as master.
const (
	clientHops = 5
	parentHops = 3
)

// An rpcCaller sends requests to the tasks of a server, as a client does and a server to its parent.
type rpcCaller struct {
	node     *serverNode
	task     int  // it is connected to; -1 for none
	nextTask int  // the task to try next when it is not connected
	cut      bool // no message arrives

	triesAll bool // after a failure it tries the others at once, as clients do
	maxHops  int  // how many redirects it follows
}

// An rpcCall is one request on its way, until it was answered or failed.
//
//	beginCall -> sendRequest -> handleAtTask -> onResponse
//	                ^   |            |
//	                |   | lost       | not the master
//	                |   v            v
//	                |  tryNextTask  followRedirect
//	                +---+------------+
type rpcCall struct {
	w     *world
	from  *rpcCaller
	hops  int
	tried [maxTasks]bool

	serve      func(t *task) rpcResponse // runs at the server
	onResponse func(rpcResponse)         // gets the response, not ok after all attempts failed
}

// An rpcResponse is what a server answers, or that the call failed.
type rpcResponse struct {
	ok     bool // the server is master
	grants []capacity.Grant
	clock  time.Time // the server's

	// detached says that the grants are not from the root: the server, or one above it, has lost its
	// parent and grants what its clients may use without it.
	detached bool
}

// beginCall sends the request to the task the caller is connected to, or to the next one.
func (c *rpcCall) beginCall() {
	if c.from.task < 0 {
		c.from.task = c.from.nextTask
	}
	c.sendRequest()
}

// sendRequest sends the request to the task the caller is connected to.
func (c *rpcCall) sendRequest() {
	w := c.w
	w.counts.Requests++
	c.tried[c.from.task] = true
	if !c.messageArrives() {
		w.scheduleAfter(w.scenario.network.timeout, c.tryNextTask)
		return
	}
	t := c.from.node.tasks[c.from.task]
	// A process that ends and starts again while the request travels has closed the connection.
	run := t.runs
	delay := w.timeWithin(w.scenario.network.delay, w.networkRandom)
	w.scheduleAfter(delay, func() { c.handleAtTask(t, run) })
}

// messageArrives decides whether a message gets through.
func (c *rpcCall) messageArrives() bool {
	if c.from.cut {
		return false
	}
	lost := max(c.w.scenario.network.loss, c.w.extraLoss)
	// Without loss no random number is drawn, so switching loss on later does not change what happens before.
	return lost == 0 || c.w.networkRandom.Float64() >= lost
}

// handleAtTask is run when the request has arrived at the task.
func (c *rpcCall) handleAtTask(t *task, run int) {
	w := c.w
	back := w.timeWithin(w.scenario.network.delay, w.networkRandom)
	if !t.up || t.runs != run {
		w.scheduleAfter(back, c.tryNextTask) // the connection is refused, or broken
		return
	}
	a := c.serve(t)
	// The server has decided, and the lease is given even if its response gets lost. Then the caller waits in
	// vain, and what servers count and what clients use may differ.
	if !c.messageArrives() {
		w.scheduleAfter(w.scenario.network.timeout, c.tryNextTask)
		return
	}
	if !a.ok {
		master := t.node.master
		w.scheduleAfter(back, func() { c.followRedirect(master) })
		return
	}
	// The protocol has whole seconds.
	for i := range a.grants {
		a.grants[i].Lease = roundLease(a.grants[i].Lease)
	}
	// The client needs the server's clock to know how long the lease is, as the clocks may differ.
	a.clock = t.localTime()
	w.scheduleAfter(back, func() {
		w.counts.Answers++
		c.onResponse(a)
	})
}

// followRedirect goes on to the master, if the server knew one.
func (c *rpcCall) followRedirect(master *task) {
	c.w.counts.Redirects++
	c.hops++
	// Servers that point at each other during an election would send the call round in circles.
	if master == nil || c.hops > c.from.maxHops || c.tried[master.position] {
		c.tryNextTask()
		return
	}
	c.from.task = master.position
	c.sendRequest()
}

// tryNextTask goes on to the next task, at once or with the next call.
func (c *rpcCall) tryNextTask() {
	tasks := len(c.from.node.tasks)
	if c.from.triesAll {
		// Beginning with the one whose turn it is, so that clients spread over the tasks.
		for i := range tasks {
			if next := (c.from.nextTask + i) % tasks; !c.tried[next] {
				c.from.task = next
				c.sendRequest()
				return
			}
		}
	} else {
		c.from.nextTask = (c.from.nextTask + 1) % tasks
	}
	c.w.counts.Failures++
	// The connection is given up; the next call begins with the next task.
	c.from.task = -1
	c.onResponse(rpcResponse{})
}
