package simulate

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A need says what a deed takes: whom it happens to, and what else belongs to it.
type need struct{ node, clients, wants, capacity, lost, lasts bool }

// needs has every deed. lasts says that it may end again after some time.
var needs = map[deed]need{
	lose:      {node: true, lasts: true},
	elect:     {node: true},
	election:  {node: true},
	crash:     {node: true, lasts: true},
	restart:   {node: true, lasts: true},
	partition: {node: true, lasts: true},
	cut:       {clients: true, lasts: true},
	loss:      {lost: true, lasts: true},
	spike:     {clients: true, wants: true, lasts: true},
	leave:     {clients: true, lasts: true},
	vanish:    {clients: true, lasts: true},
	resize:    {capacity: true, lasts: true},
}

func parseDeed(text string) (deed, error) {
	if _, known := needs[deed(text)]; known {
		return deed(text), nil
	}
	var names []string
	for d := range needs {
		names = append(names, string(d))
	}
	slices.Sort(names)
	return "", fmt.Errorf("%q cannot be done, want one of %s", text, strings.Join(names, ", "))
}

// anyNode stands for any server of the tree.
const anyNode = "any"

// check looks at what the parts of a scenario say about each other.
func (r *reader) check(node *yaml.Node, s *Scenario) {
	r.checkTree(node, s)
	if s.from >= s.duration {
		r.fault(node, "measure begins at %v, want that before the end at %v", s.from, s.duration)
	}
	if len(s.happening) > maxEvents {
		r.fault(node, "%d events, want at most %d", len(s.happening), maxEvents)
	}
	for i, h := range s.happening {
		at := child(node, "events", i)
		r.checkHappening(at, &h, s)
		if h.at >= s.duration || h.weight != 0 {
			r.fault(at, "an event at %v of weight %v, want a time before %v and no weight",
				h.at, h.weight, s.duration)
		}
	}
	for i, h := range s.mishaps.kinds {
		at := child(node, "mishaps", i)
		r.checkHappening(at, &h, s)
		if h.at != 0 {
			r.fault(at, "a mishap with a time, want none: they happen by chance")
		}
	}
	for i := range s.expected {
		r.checkExpectation(child(node, "expect", i), &s.expected[i], s)
	}
}

// checkExpectation gives it the time it looks at, and wants that within the run.
func (r *reader) checkExpectation(at *yaml.Node, e *expectation, s *Scenario) {
	if e.from < 0 {
		e.from = s.from
		if e.to != 0 && e.to <= e.from {
			e.from = 0 // it looks at what comes before
		}
	}
	if e.to > s.duration || e.from >= s.duration {
		r.fault(at, "%q looks beyond the end at %v", e.text, s.duration)
	}
	named := func(g group) bool { return g.name == e.of }
	if e.of != "" && !slices.ContainsFunc(s.groups, named) {
		r.fault(at, "%q is of %s, want the name of a group of clients", e.text, e.of)
	}
}

// checkTree wants names that differ, and sizes that can be run.
func (r *reader) checkTree(node *yaml.Node, s *Scenario) {
	if len(s.levels) == 0 || len(s.groups) == 0 {
		r.fault(node, "%d levels of servers and %d groups of clients, want at least one of each",
			len(s.levels), len(s.groups))
		return
	}
	if s.levels[0].count != 1 {
		r.fault(child(node, "servers", 0), "%d roots, want 1", s.levels[0].count)
	}
	below := make(map[string]int) // how many servers a level has in all
	servers, width := 0, 1
	for i, l := range s.levels {
		if below[l.name] > 0 || l.name == anyNode {
			r.fault(child(node, "servers", i), "name is %q, want one no other level has", l.name)
		}
		width = min(width*l.count, MaxServers+1)
		servers += width
		below[l.name] = width
	}
	if servers > MaxServers {
		r.fault(node, "more than %d servers, want at most so many", MaxServers)
		return
	}
	clients := 0
	for i, g := range s.groups {
		if below[g.of] == 0 {
			r.fault(child(node, "clients", i), "of is %q, want the name of a level of servers", g.of)
		}
		clients = min(clients+below[g.of]*g.recipe.count, MaxClients+1)
	}
	if clients > MaxClients {
		r.fault(node, "more than %d clients, want at most so many", MaxClients)
	}
}

// checkHappening wants what the deed needs, and nothing else.
func (r *reader) checkHappening(at *yaml.Node, h *happening, s *Scenario) {
	want := needs[h.do]
	wanted := want.wants || want.capacity
	for _, part := range []struct {
		name          string
		given, wanted bool
	}{
		{"node", h.node != "", want.node},
		{"clients", h.clients != (amount{}), want.clients},
		{"to", h.change.set, wanted && (h.change.add == 0 || want.capacity)},
		{"add", h.change.add != 0, wanted && !h.change.set && !want.capacity},
		{"loss", h.lost != 0, want.lost},
	} {
		switch {
		case part.given && !part.wanted:
			r.fault(at, "%s has a setting %s, want it without", h.do, part.name)
		case !part.given && part.wanted && part.name != "add":
			r.fault(at, "%s is missing for %s", part.name, h.do)
		}
	}
	if h.lasts != (span{}) && !want.lasts {
		r.fault(at, "%s has a setting for, want it without", h.do)
	}
	if h.node != "" && !s.known(h.node) {
		r.fault(at, "node is %q, want %q, a level, or a server such as %s",
			h.node, anyNode, s.nodeName(len(s.levels)-1, 0))
	}
}

// known reports whether there is such a server, or such a level.
func (s *Scenario) known(name string) bool {
	if name == anyNode {
		return true
	}
	width := 1
	for i, l := range s.levels {
		width *= l.count
		for n := range width {
			if name == l.name || name == s.nodeName(i, n) {
				return true
			}
		}
	}
	return false
}

// nodeName is what the nth server of a level is called: root, region-1, region-2.
func (s *Scenario) nodeName(level, n int) string {
	if level == 0 {
		return s.levels[0].name
	}
	return fmt.Sprintf("%s-%d", s.levels[level].name, n+1)
}

// child is the ith item of a list in the file, for faults.
func child(node *yaml.Node, key string, i int) *yaml.Node {
	for k := 0; k+1 < len(node.Content); k += 2 {
		list := node.Content[k+1]
		if node.Content[k].Value != key {
			continue
		}
		if list.Kind == yaml.MappingNode {
			return child(list, "kinds", i)
		}
		return list.Content[i]
	}
	return node
}

// matches reports whether a happening means the node.
func (h *happening) matches(n *node) bool {
	return h.node == anyNode || h.node == n.name || h.node == n.level
}
