package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// resourceName is the one resource of the simulation.
const resourceName = "resource0"

// A world is one run of a scenario: a queue of actions in virtual time, and the state they change.
type world struct {
	scenario *Scenario
	resource capacity.Template // as it is at present
	now      time.Duration     // since start
	queue    minheap.Heap[queuedAction]
	sequence uint64

	nodes     []*serverNode // from the root down
	clients   []*simClient
	extraLoss float64 // of messages, in addition to the network's own

	// There are several sources of random numbers, so that one event more does not change the rest of the
	// run.
	networkRandom, eventRandom, wantsRandom *rand.Rand

	measure *measurement
	counts  Counts
}

// A queuedAction is run at an instant. Those of one instant are run in the order in which they were planned.
type queuedAction struct {
	at       time.Duration
	sequence uint64
	do       func()
}

// Before orders actions by time, then by the order of planning, for minheap.
func (e queuedAction) Before(other queuedAction) bool {
	if e.at != other.at {
		return e.at < other.at
	}
	return e.sequence < other.sequence
}

// A serverNode is one server of the tree: some processes, at most one of which is master.
type serverNode struct {
	name, level string
	parent      *serverNode
	tasks       []*task
	master      *task // known to all tasks; nil if there is none
	cut         bool  // from its parent
	clients     int

	term     uint64 // counts elections, so that a delayed one can tell that another came first
	shortage *shortage
}

// startTime returns the instant at which every run begins.
func startTime() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

// newWorld builds everything there is at the beginning.
func newWorld(s *Scenario, seed uint64) *world {
	source := func(stream uint64) *rand.Rand {
		return rand.New(rand.NewPCG(seed, stream)) // it has to be repeatable
	}
	w := &world{
		scenario: s, resource: s.resource,
		networkRandom: source(1), eventRandom: source(2), wantsRandom: source(3),
	}
	w.measure = newMeasure(s)
	// The order of everything below is part of the result: each step draws from the same random numbers.
	above := []*serverNode{nil}
	for level := range s.levels {
		above = w.newLevel(level, above)
	}
	for i := range s.groups {
		w.newClients(&s.groups[i])
	}
	for _, n := range w.nodes {
		w.electTask(n, n.tasks[0])
	}
	for _, c := range w.clients {
		w.scheduleAfter(w.randomTime(c.group.start), c.startClient)
	}
	// Sampling and events go on by themselves from here: each plans the next.
	w.scheduleAfter(s.sampleEvery, w.takeSample)
	w.scheduleEvents()
	return w
}

// newLevel makes the servers of a level, below each of those above.
func (w *world) newLevel(level int, above []*serverNode) []*serverNode {
	l := &w.scenario.levels[level]
	var made []*serverNode
	for _, parent := range above {
		for range l.count {
			// Names count through the whole level, and not below each parent.
			n := &serverNode{name: w.scenario.nodeName(level, len(made)), level: l.name, parent: parent}
			n.shortage = &shortage{}
			for i := range l.tasks {
				n.tasks = append(n.tasks, w.newTask(n, i))
			}
			w.nodes = append(w.nodes, n)
			made = append(made, n)
		}
	}
	return made
}

func (w *world) newClients(g *clientGroup) {
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

// scheduleAfter runs something after a duration.
func (w *world) scheduleAfter(d time.Duration, do func()) {
	w.scheduleAt(w.now+d, do)
}

func (w *world) scheduleAt(when time.Duration, do func()) {
	w.sequence++
	// The past cannot be changed: what should have been done before is done now.
	w.queue.Push(queuedAction{max(when, w.now), w.sequence, do})
}

// runEvents runs all actions until the end of the scenario.
func (w *world) runEvents() {
	for len(w.queue) > 0 && w.queue[0].at < w.scenario.duration {
		e := w.queue.Pop()
		// Time jumps from one action to the next. Nothing happens in between.
		w.now = e.at
		e.do()
	}
	// The time after the last action counts as well.
	w.now = w.scenario.duration
	w.measure.advanceTo(w.now)
}

// clockWithSkew returns what a clock shows that is ahead by skew.
func (w *world) clockWithSkew(skew time.Duration) time.Time { return startTime().Add(w.now + skew) }

// virtualTime returns the time at which a clock that is ahead by skew shows an instant.
func virtualTime(instant time.Time, skew time.Duration) time.Duration {
	return instant.Sub(startTime()) - skew
}

// randomSkew returns by how much the clock of a new process is ahead; negative if it is behind.
func (w *world) randomSkew() time.Duration {
	most := w.scenario.network.skew
	return w.timeWithin(timeRange{0, 2 * most}, w.networkRandom) - most
}

// randomTime draws a duration for an event.
func (w *world) randomTime(s timeRange) time.Duration { return w.timeWithin(s, w.eventRandom) }

func (w *world) timeWithin(s timeRange, random *rand.Rand) time.Duration {
	// Without a draw, so that a fixed duration leaves the sequence of random numbers alone.
	if s.most <= s.least {
		return s.least
	}
	return s.least + time.Duration(random.Int64N(int64(s.most-s.least)+1))
}

// roundLease returns a lease as the protocol transmits it: in whole seconds.
func roundLease(l capacity.Lease) capacity.Lease {
	if !l.Expiry.IsZero() {
		l.Expiry = l.Expiry.Truncate(time.Second)
	}
	l.Refresh = l.Refresh.Truncate(time.Second)
	return l
}
