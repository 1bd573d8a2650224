package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// resourceName is what everybody wants.
const resourceName = "resource0"

// A world is one run of a scenario.
type world struct {
	scenario *Scenario
	resource capacity.Template // as it is at present
	now      time.Duration     // since start
	queue    minheap.Heap[event]
	sequence uint64

	nodes   []*node // from the root down
	clients []*client
	lost    float64 // of messages at present, the network's own loss aside

	// Chance has several sources, so that a mishap more does not change the rest of the run.
	travel, fate, wishes *rand.Rand

	measure *measure
	counts  Counts
}

// An event is something to do at an instant. Those of one instant are done in the order they were planned.
type event struct {
	at       time.Duration
	sequence uint64
	do       func()
}

// Before says which event comes first.
func (e event) Before(other event) bool {
	if e.at != other.at {
		return e.at < other.at
	}
	return e.sequence < other.sequence
}

// A node is one server of the tree: some processes, at most one of which is master.
type node struct {
	name, level string
	place       int // in world.nodes
	parent      *node
	children    []*node
	tasks       []*task
	master      *task // as everybody knows; nil when nobody is
	cut         bool  // from its parent
	clients     int

	lead     uint64 // counts elections, so that a late one knows that it is late
	shortage *shortage
}

// begin is the instant at which every run begins.
func begin() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

// newWorld builds everything there is at the beginning.
func newWorld(s *Scenario, seed uint64) *world {
	source := func(stream uint64) *rand.Rand {
		return rand.New(rand.NewPCG(seed, stream)) // #nosec G404 -- it has to be repeatable
	}
	w := &world{scenario: s, resource: s.resource, travel: source(1), fate: source(2), wishes: source(3)}
	w.measure = newMeasure(s)
	above := []*node{nil}
	for level := range s.levels {
		above = w.newLevel(level, above)
	}
	for i := range s.groups {
		w.newClients(&s.groups[i])
	}
	for _, n := range w.nodes {
		w.elect(n, n.tasks[0])
	}
	for _, c := range w.clients {
		w.after(w.within(c.group.start), c.join)
	}
	w.after(s.sample, w.sample)
	w.plan()
	return w
}

// newLevel makes the servers of a level, below each of those above.
func (w *world) newLevel(level int, above []*node) []*node {
	l := &w.scenario.levels[level]
	var made []*node
	for _, parent := range above {
		for range l.count {
			n := &node{name: w.scenario.nodeName(level, len(made)), level: l.name, parent: parent}
			n.place = len(w.nodes)
			n.shortage = &shortage{}
			for i := range l.tasks {
				n.tasks = append(n.tasks, w.newTask(n, i))
			}
			if parent != nil {
				parent.children = append(parent.children, n)
			}
			w.nodes = append(w.nodes, n)
			made = append(made, n)
		}
	}
	return made
}

func (w *world) newClients(g *group) {
	for _, n := range w.nodes {
		if n.level != g.of {
			continue
		}
		for range g.recipe.count {
			n.clients++
			w.newClient(n, g, fmt.Sprintf("%s-client-%d", n.name, n.clients))
		}
	}
}

// after plans something.
func (w *world) after(d time.Duration, do func()) {
	w.at(w.now+d, do)
}

func (w *world) at(when time.Duration, do func()) {
	w.sequence++
	w.queue.Push(event{max(when, w.now), w.sequence, do})
}

// run is the whole of it.
func (w *world) run() {
	for len(w.queue) > 0 && w.queue[0].at < w.scenario.duration {
		e := w.queue.Pop()
		w.now = e.at
		e.do()
	}
	w.now = w.scenario.duration
	w.measure.advance(w.now)
}

// clock is what a process whose clock is off by skew reads.
func (w *world) clock(skew time.Duration) time.Time { return begin().Add(w.now + skew) }

// planned is the time at which a clock that is off by skew reads an instant.
func planned(instant time.Time, skew time.Duration) time.Duration { return instant.Sub(begin()) - skew }

// skew is how far the clock of a new process is off.
func (w *world) skew() time.Duration {
	most := w.scenario.network.skew
	return w.span(span{0, 2 * most}, w.travel) - most
}

// within is a random time of a span.
func (w *world) within(s span) time.Duration { return w.span(s, w.fate) }

func (w *world) span(s span, random *rand.Rand) time.Duration {
	if s.most <= s.least {
		return s.least
	}
	return s.least + time.Duration(random.Int64N(int64(s.most-s.least)+1))
}

// wire is a lease as it looks after a journey: whole seconds.
func wire(l capacity.Lease) capacity.Lease {
	if !l.Expiry.IsZero() {
		l.Expiry = l.Expiry.Truncate(time.Second)
	}
	l.Refresh = l.Refresh.Truncate(time.Second)
	return l
}
