package simulate

import (
	"fmt"
	"time"
)

// scheduleEvents puts the events of the scenario into the queue.
func (w *world) scheduleEvents() {
	s := w.scenario
	for i := range s.events {
		h := &s.events[i]
		w.scheduleAt(h.at, func() { w.applyEvent(h) })
	}
	if len(s.randomEvents.kinds) > 0 {
		w.scheduleAt(s.randomEvents.from, w.injectRandomEvent)
	}
}

// injectRandomEvent applies one random event, and plans the next.
func (w *world) injectRandomEvent() {
	m := &w.scenario.randomEvents
	sum := 0.0
	for _, h := range m.kinds {
		sum += h.weight
	}
	// Kinds are drawn by their weights. Rounding may leave a rest after the last one, which then is the one.
	at := w.eventRandom.Float64() * sum
	for i := range m.kinds {
		at -= m.kinds[i].weight
		if at < 0 || i == len(m.kinds)-1 {
			w.applyEvent(&m.kinds[i])
			break
		}
	}
	w.scheduleAfter(m.every, w.injectRandomEvent)
}

// applyEvent applies an event, undoes it when it is over, and records it for the report.
func (w *world) applyEvent(h *scheduledEvent) {
	lasts := w.randomTime(h.duration)
	var where string
	var undo func()
	switch {
	case eventSpecs[h.kind].node:
		where, undo = w.applyToNode(h, w.chooseNode(h), lasts)
	case eventSpecs[h.kind].clients:
		where, undo = w.applyToClients(h, w.chooseClients(h.clients))
	default:
		where, undo = w.applyToAll(h)
	}
	w.measure.noteEvent(RecordedEvent{At: w.now, Do: string(h.kind), Where: where, For: lasts})
	// An event without a duration is never undone.
	if undo != nil && lasts > 0 {
		w.scheduleAfter(lasts, undo)
	}
}

// chooseNode draws one of the servers that the event is meant for.
func (w *world) chooseNode(h *scheduledEvent) *serverNode {
	var among []*serverNode
	for _, n := range w.nodes {
		if h.matchesNode(n) {
			among = append(among, n)
		}
	}
	return among[w.eventRandom.IntN(len(among))]
}

// chooseClients draws clients, none twice.
func (w *world) chooseClients(a clientSelection) []*simClient {
	count := a.count
	if count == 0 {
		count = max(1, int(a.share*float64(len(w.clients))+0.5))
	}
	var some []*simClient
	for _, i := range w.eventRandom.Perm(len(w.clients))[:min(count, len(w.clients))] {
		some = append(some, w.clients[i])
	}
	return some
}

// applyToNode applies an event to one server.
func (w *world) applyToNode(
	h *scheduledEvent, n *serverNode, lasts time.Duration,
) (where string, undo func()) {
	// Another election may come before the delayed one; the term tells.
	term := n.term
	electAgain := func() {
		if n.term == term {
			w.electAny(n, nil)
		}
	}
	switch h.kind {
	case eventLose:
		w.resignMaster(n)
		undo = electAgain
	case eventElect:
		w.electAny(n, nil)
	// The old master is elected again only if it is the only task.
	case eventElection:
		before := n.master
		w.resignMaster(n)
		w.electAny(n, before)
	case eventCrash:
		undo = w.crashMaster(n)
		// The other tasks find out when the lock of the crashed master has run out.
		w.scheduleAfter(w.scenario.takeoverTime, electAgain)
	case eventRestart:
		undo = w.restartMaster(n)
		if lasts == 0 && undo != nil { // without a master nothing was restarted
			undo()
		}
	case eventPartition:
		w.cutOff(n, true)
		undo = func() { w.cutOff(n, false) }
	}
	return n.name, undo
}

// resignMaster ends the mastership. All tasks know at once.
func (w *world) resignMaster(n *serverNode) {
	if n.master != nil {
		n.master.server.Resign()
		n.master = nil
	}
}

// electAny makes one of the tasks master, if none is. not is elected only if no other task is up.
func (w *world) electAny(n *serverNode, not *task) {
	if n.master != nil {
		return
	}
	var among, spare []*task
	for _, t := range n.tasks {
		switch {
		case t.up && t != not:
			among = append(among, t)
		// The task to be avoided is still better than none.
		case t.up:
			spare = append(spare, t)
		}
	}
	if len(among) == 0 {
		among = spare
	}
	if len(among) > 0 {
		w.electTask(n, among[w.eventRandom.IntN(len(among))])
	}
}

// crashMaster ends the master's process. It comes back without any state, and leads if no other does.
func (w *world) crashMaster(n *serverNode) (undo func()) {
	t := n.master
	if t == nil {
		return nil
	}
	t.endProcess()
	return func() {
		t.startProcess()
		w.electAny(n, nil)
	}
}

// restartMaster ends the master's process in good order and starts it again: it knows the leases that it
// gave.
func (w *world) restartMaster(n *serverNode) (undo func()) {
	t := n.master
	if t == nil {
		return nil
	}
	// The snapshot is taken before the end, as the real server does on SIGTERM.
	saved := t.server.Snapshot(t.localTime())
	term := n.term
	t.endProcess()
	return func() {
		t.startProcess()
		switch {
		case n.term == term:
			w.electTask(n, t)
			if saved != nil {
				t.server.Restore(t.localTime(), saved)
			}
		case n.master == nil:
			w.electAny(n, nil) // another master led meanwhile: what was saved is out of date
		}
	}
}

// cutOff cuts a server off from its parent, or ends that.
func (w *world) cutOff(n *serverNode, cut bool) {
	n.cut = cut
	for _, t := range n.tasks {
		// A process that starts meanwhile takes the state from its node.
		if t.parent != nil {
			t.parent.cut = cut
		}
	}
}

// applyToClients applies an event to some clients.
func (w *world) applyToClients(h *scheduledEvent, some []*simClient) (where string, undo func()) {
	where = some[0].name
	if len(some) > 1 {
		where = fmt.Sprintf("%d clients", len(some))
	}
	// A spike is undone by the same difference, and not by setting the old value: the recipe goes on
	// meanwhile.
	by := make([]float64, len(some))
	for i, c := range some {
		switch h.kind {
		case eventSpike:
			by[i] = h.change.applyTo(c.wants.now) - c.wants.now
			c.shiftWants(by[i])
		case eventCut:
			c.caller.cut = true
		default:
			c.stopClient(h.kind == eventLeave)
		}
	}
	return where, func() {
		for i, c := range some {
			switch h.kind {
			case eventSpike:
				c.shiftWants(-by[i])
			case eventCut:
				c.caller.cut = false
			default:
				c.startClient()
			}
		}
	}
}

// shiftWants moves what a client wants, and what its recipe starts from.
func (c *simClient) shiftWants(by float64) {
	c.wants.base = max(0, c.wants.base+by)
	c.wants.now = max(0, c.wants.now+by)
	c.updateWants()
}

// applyToAll applies an event to the network or the root.
func (w *world) applyToAll(h *scheduledEvent) (where string, undo func()) {
	// The loss that was in force before comes back, so nested events end in their own order.
	if h.kind == eventLoss {
		before := w.extraLoss
		w.extraLoss = h.loss
		return "the network", func() { w.extraLoss = before }
	}
	before := w.resource.Capacity
	w.resizeCapacity(h.change.to)
	return w.nodes[0].name, func() { w.resizeCapacity(before) }
}

// resizeCapacity gives every process of the root another template.
func (w *world) resizeCapacity(to float64) {
	w.resource.Capacity = to
	// All processes read the same configuration, whether they are master or not.
	for _, t := range w.nodes[0].tasks {
		if t.up {
			t.configureRoot()
		}
	}
	w.measure.noteCapacity(w.now, to)
}

// applyTo returns the new value in place of an old one.
func (c valueChange) applyTo(old float64) float64 {
	if c.set {
		return c.to
	}
	return old + c.add
}
