package simulate

import (
	"fmt"
	"time"
)

// plan puts what the scenario says into the queue.
func (w *world) plan() {
	s := w.scenario
	for i := range s.happening {
		h := &s.happening[i]
		w.at(h.at, func() { w.happen(h) })
	}
	if len(s.mishaps.kinds) > 0 {
		w.at(s.mishaps.from, w.mishap)
	}
}

// mishap lets one thing happen by chance, and plans the next.
func (w *world) mishap() {
	m := &w.scenario.mishaps
	sum := 0.0
	for _, h := range m.kinds {
		sum += h.weight
	}
	at := w.fate.Float64() * sum
	for i := range m.kinds {
		at -= m.kinds[i].weight
		if at < 0 || i == len(m.kinds)-1 {
			w.happen(&m.kinds[i])
			break
		}
	}
	w.after(m.every, w.mishap)
}

// happen does it, undoes it when it is over, and notes it for the report.
func (w *world) happen(h *happening) {
	lasts := w.within(h.lasts)
	var where string
	var undo func()
	switch {
	case needs[h.do].node:
		where, undo = w.strike(h, w.choose(h), lasts)
	case needs[h.do].clients:
		where, undo = w.touch(h, w.some(h.clients))
	default:
		where, undo = w.alter(h)
	}
	w.measure.happened(Event{At: w.now, Do: string(h.do), Where: where, For: lasts})
	if undo != nil && lasts > 0 {
		w.after(lasts, undo)
	}
}

// choose is a server that the happening means.
func (w *world) choose(h *happening) *node {
	var among []*node
	for _, n := range w.nodes {
		if h.matches(n) {
			among = append(among, n)
		}
	}
	return among[w.fate.IntN(len(among))]
}

// some are clients, no one twice.
func (w *world) some(a amount) []*client {
	count := a.count
	if count == 0 {
		count = max(1, int(a.share*float64(len(w.clients))+0.5))
	}
	var some []*client
	for _, i := range w.fate.Perm(len(w.clients))[:min(count, len(w.clients))] {
		some = append(some, w.clients[i])
	}
	return some
}

// strike is what happens to one server.
func (w *world) strike(h *happening, n *node, lasts time.Duration) (where string, undo func()) {
	lead := n.lead
	again := func() { // unless somebody was elected meanwhile
		if n.lead == lead {
			w.electAny(n, nil)
		}
	}
	switch h.do {
	case lose:
		w.resign(n)
		undo = again
	case elect:
		w.electAny(n, nil)
	case election:
		before := n.master
		w.resign(n)
		w.electAny(n, before)
	case crash:
		undo = w.crash(n)
		w.after(w.scenario.takes, again)
	case restart:
		undo = w.restart(n)
		if lasts == 0 {
			undo()
		}
	case partition:
		w.cutOff(n, true)
		undo = func() { w.cutOff(n, false) }
	}
	return n.name, undo
}

// resign ends the mastership, and everybody knows.
func (w *world) resign(n *node) {
	if n.master != nil {
		n.master.server.Resign()
		n.master = nil
	}
}

// electAny makes one of the tasks master, if nobody is: another than the last one, if there is any.
func (w *world) electAny(n *node, not *task) {
	if n.master != nil {
		return
	}
	var among, spare []*task
	for _, t := range n.tasks {
		switch {
		case t.up && t != not:
			among = append(among, t)
		case t.up:
			spare = append(spare, t)
		}
	}
	if len(among) == 0 {
		among = spare
	}
	if len(among) > 0 {
		w.elect(n, among[w.fate.IntN(len(among))])
	}
}

// crash ends the master's process. It comes back knowing nothing, and leads if nobody else does.
func (w *world) crash(n *node) (undo func()) {
	t := n.master
	if t == nil {
		return nil
	}
	t.end()
	return func() {
		t.begin()
		w.electAny(n, nil)
	}
}

// restart is an orderly end and a new beginning of the master: it knows who held leases.
func (w *world) restart(n *node) (undo func()) {
	t := n.master
	if t == nil {
		return nil
	}
	saved, lead := t.server.Snapshot(t.clock()), n.lead
	t.end()
	return func() {
		t.begin()
		switch {
		case n.lead == lead:
			w.elect(n, t)
			if saved != nil {
				t.server.Restore(t.clock(), saved)
			}
		case n.master == nil:
			w.electAny(n, nil) // what was saved says nothing of those who led meanwhile
		}
	}
}

// cutOff is nothing getting through between a server and its parent, or again.
func (w *world) cutOff(n *node, cut bool) {
	n.cut = cut
	for _, t := range n.tasks {
		if t.parent != nil {
			t.parent.cut = cut
		}
	}
}

// touch is what happens to some clients.
func (w *world) touch(h *happening, some []*client) (where string, undo func()) {
	where = some[0].name
	if len(some) > 1 {
		where = fmt.Sprintf("%d clients", len(some))
	}
	by := make([]float64, len(some))
	for i, c := range some {
		switch h.do {
		case spike:
			by[i] = h.change.from(c.wish.now) - c.wish.now
			c.shift(by[i])
		case cut:
			c.caller.cut = true
		default:
			c.leave(h.do == leave)
		}
	}
	return where, func() {
		for i, c := range some {
			switch h.do {
			case spike:
				c.shift(-by[i])
			case cut:
				c.caller.cut = false
			default:
				c.join()
			}
		}
	}
}

// shift moves what a client wants, and what its recipe begins with.
func (c *client) shift(by float64) {
	c.wish.base = max(0, c.wish.base+by)
	c.wish.now = max(0, c.wish.now+by)
	c.want()
}

// alter is what happens to everybody.
func (w *world) alter(h *happening) (where string, undo func()) {
	if h.do == loss {
		before := w.lost
		w.lost = h.lost
		return "the network", func() { w.lost = before }
	}
	before := w.resource.Capacity
	w.resize(h.change.to)
	return w.nodes[0].name, func() { w.resize(before) }
}

// resize gives every process of the root another template.
func (w *world) resize(to float64) {
	w.resource.Capacity = to
	for _, t := range w.nodes[0].tasks {
		if t.up {
			t.configure()
		}
	}
	w.measure.resized(w.now, to)
}

// from is the new value in place of an old one.
func (c change) from(old float64) float64 {
	if c.set {
		return c.to
	}
	return old + c.add
}
