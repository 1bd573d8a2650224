package simulate

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// An eventSpec says which settings a kind of event takes. node and clients are what it happens to; lasts says
// that it may end after some time.
type eventSpec struct{ node, clients, wants, capacity, loss, lasts bool }

// eventSpecs has every kind of event.
var eventSpecs = map[eventKind]eventSpec{
	eventLose:      {node: true, lasts: true},
	eventElect:     {node: true},
	eventElection:  {node: true},
	eventCrash:     {node: true, lasts: true},
	eventRestart:   {node: true, lasts: true},
	eventPartition: {node: true, lasts: true},
	eventCut:       {clients: true, lasts: true},
	eventLoss:      {loss: true, lasts: true},
	eventSpike:     {clients: true, wants: true, lasts: true},
	eventLeave:     {clients: true, lasts: true},
	eventVanish:    {clients: true, lasts: true},
	eventResize:    {capacity: true, lasts: true},
}

func parseEventKind(text string) (eventKind, error) {
	if _, known := eventSpecs[eventKind(text)]; known {
		return eventKind(text), nil
	}
	return "", fmt.Errorf("%q cannot be done, want one of %s", text, joinKeys(eventSpecs))
}

// anyNode stands for any server of the tree.
const anyNode = "any"

// checkScenario checks the parts of a scenario against each other.
func (r *scenarioReader) checkScenario(node *yaml.Node, s *Scenario) {
	r.checkTree(node, s)
	// Nothing would be measured at all.
	if s.measureFrom >= s.duration {
		r.addFault(node, "measure begins at %v, want that before the end at %v", s.measureFrom, s.duration)
	}
	if len(s.events) > maxEvents {
		r.addFault(node, "%d events, want at most %d", len(s.events), maxEvents)
	}
	for i, h := range s.events {
		at := listItem(node, "events", i)
		r.checkEvent(at, &h, s)
		if h.at >= s.duration || h.weight != 0 {
			r.addFault(at, "an event at %v of weight %v, want a time before %v and no weight",
				h.at, h.weight, s.duration)
		}
	}
	// Random events have a weight, and no time.
	for i, h := range s.randomEvents.kinds {
		at := listItem(node, "mishaps", i)
		r.checkEvent(at, &h, s)
		if h.at != 0 {
			r.addFault(at, "a mishap with a time, want none: they happen by chance")
		}
	}
	for i := range s.expectations {
		r.checkExpectation(listItem(node, "expect", i), &s.expectations[i], s)
	}
}

// checkExpectation fills in the time an expectation looks at, which must lie within the run.
func (r *scenarioReader) checkExpectation(at *yaml.Node, e *expectation, s *Scenario) {
	// Without a beginning of its own, an expectation starts where the measuring does.
	if e.from < 0 {
		e.from = s.measureFrom
		if e.to != 0 && e.to <= e.from {
			e.from = 0 // it looks at what comes before
		}
	}
	if e.to > s.duration || e.from >= s.duration {
		r.addFault(at, "%q looks beyond the end at %v", e.text, s.duration)
	}
	named := func(g clientGroup) bool { return g.name == e.of }
	if e.of != "" && !slices.ContainsFunc(s.groups, named) {
		r.addFault(at, "%q is of %s, want the name of a group of clients", e.text, e.of)
	}
}

// checkTree requires names that differ, and sizes that can be run.
func (r *scenarioReader) checkTree(node *yaml.Node, s *Scenario) {
	if len(s.levels) == 0 || len(s.groups) == 0 {
		r.addFault(node, "%d levels of servers and %d groups of clients, want at least one of each",
			len(s.levels), len(s.groups))
		return
	}
	// The capacity belongs to one server. Below it any number may be.
	if s.levels[0].count != 1 {
		r.addFault(listItem(node, "servers", 0), "%d roots, want 1", s.levels[0].count)
	}
	below := make(map[string]int) // how many servers a level has in all
	servers, width := 0, 1
	for i, l := range s.levels {
		if below[l.name] > 0 || l.name == anyNode {
			r.addFault(listItem(node, "servers", i), "name is %q, want one no other level has", l.name)
		}
		// Each level multiplies the number of servers. The bound keeps the product from overflowing.
		width = min(width*l.count, MaxServers+1)
		servers += width
		below[l.name] = width
	}
	// The clients are not counted for a tree that is too large already.
	if servers > MaxServers {
		r.addFault(node, "more than %[1]d servers, want at most %[1]d", MaxServers)
		return
	}
	clients := 0
	for i, g := range s.groups {
		if below[g.of] == 0 {
			r.addFault(listItem(node, "clients", i), "of is %q, want the name of a level of servers", g.of)
		}
		// Bounded as above.
		clients = min(clients+below[g.of]*g.recipe.count, MaxClients+1)
	}
	if clients > MaxClients {
		r.addFault(node, "more than %[1]d clients, want at most %[1]d", MaxClients)
	}
}

// checkEvent requires the settings that the kind of event takes, and no others.
func (r *scenarioReader) checkEvent(at *yaml.Node, h *scheduledEvent, s *Scenario) {
	want := eventSpecs[h.kind]
	// Wants can be set ("to") or raised ("add"), a capacity only set. So either of the two suffices for
	// wants, and "to" is the one reported as missing.
	wanted := want.wants || want.capacity
	for _, part := range []struct {
		name          string
		given, wanted bool
	}{
		{"node", h.node != "", want.node},
		{"clients", h.clients != (clientSelection{}), want.clients},
		{"to", h.change.set, wanted && (h.change.add == 0 || want.capacity)},
		{"add", h.change.add != 0, wanted && !h.change.set && !want.capacity},
		{"loss", h.loss != 0, want.loss},
	} {
		switch {
		case part.given && !part.wanted:
			r.addFault(at, "%s has a setting %s, want it without", h.kind, part.name)
		case !part.given && part.wanted && part.name != "add":
			r.addFault(at, "%s is missing for %s", part.name, h.kind)
		}
	}
	if h.duration != (timeRange{}) && !want.lasts {
		r.addFault(at, "%s has a setting for, want it without", h.kind)
	}
	if h.node != "" && !s.hasNode(h.node) {
		r.addFault(at, "node is %q, want %q, a level, or a server such as %s",
			h.node, anyNode, s.nodeName(len(s.levels)-1, 0))
	}
}

// hasNode reports whether there is such a server, or such a level.
func (s *Scenario) hasNode(name string) bool {
	if name == anyNode {
		return true
	}
	width := 1
	for i, l := range s.levels {
		width *= l.count
		// Names are few and checked once, so they are simply made and compared.
		for n := range width {
			if name == l.name || name == s.nodeName(i, n) {
				return true
			}
		}
	}
	return false
}

// nodeName returns the name of the nth server of a level: root, region-1, region-2.
func (s *Scenario) nodeName(level, n int) string {
	if level == 0 {
		return s.levels[0].name
	}
	return fmt.Sprintf("%s-%d", s.levels[level].name, n+1)
}

// listItem returns the ith item of a list in the file, to place a fault.
func listItem(node *yaml.Node, key string, i int) *yaml.Node {
	for k := 0; k+1 < len(node.Content); k += 2 {
		list := node.Content[k+1]
		if node.Content[k].Value != key {
			continue
		}
		// The list of random events lies one level deeper.
		if list.Kind == yaml.MappingNode {
			return listItem(list, "kinds", i)
		}
		return list.Content[i]
	}
	return node
}

// matchesNode reports whether the event is meant for the node.
func (h *scheduledEvent) matchesNode(n *serverNode) bool {
	return h.node == anyNode || h.node == n.name || h.node == n.level
}
