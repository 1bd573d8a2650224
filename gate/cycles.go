package gate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file finds owners that wait for each other: each holds what another one waits for. The server does not
// prevent that, because it knows only what commands say about their owners. It shows the cycle, so that an
// operator can evict one of the owners.

// A Cycle is owners that wait for each other, each for the next, and the last for the first.
type Cycle struct {
	Links []CycleLink
	// Stuck says that no owner outside of the cycle holds anything that the cycle waits for, so that the
	// cycle ends only when one of its own waits or holds does.
	Stuck bool
}

// A CycleLink is an owner that waits at a name which the owner of the next link holds.
type CycleLink struct {
	Owner  gatehouse.Owner // without its purpose, which tells nobody apart
	Key    gatehouse.Key
	Waiter string // the public id of one that waits
	Holder string // the public id of a hold that it waits for
}

// The bounds of one search, so that it takes no longer than a list.
const (
	maxCycleNames = 1000 // names at which owners wait
	maxCycles     = 100
)

// Cycles looks for owners that wait for each other at semaphores and locks, as far as they wait at this
// server. What they hold is known from the store, whichever server has granted it. An owner is its name and
// its host; requests without either have no owner.
func (g *Gate) Cycles(ctx context.Context) ([]Cycle, error) {
	graph := newWaitGraph()
	names := 0
	// A cycle needs a wait for each of its holds, so that only names with a line can be part of one.
	for _, l := range g.heldLines() {
		waiters := l.ownedWaiters()
		if len(waiters) == 0 {
			continue
		}
		if names == maxCycleNames {
			break
		}
		names++
		// From the store, as other servers may have granted what is held.
		d, err := g.Do(ctx, l.key, gatehouse.Command{Op: gatehouse.OpHolders, Amount: gatehouse.MaxListed})
		if err != nil {
			return nil, err
		}
		// It may have been deleted since.
		if d.Report != nil {
			graph.addName(l.key, waiters, d.Report.Holders)
		}
	}
	return graph.findCycles(ctx)
}

// heldLines are the lines at semaphores and locks, in the order of their keys.
func (g *Gate) heldLines() (lines []*line) {
	for i := range g.shards {
		sh := &g.shards[i]
		sh.mu.Lock()
		for key, l := range sh.lines {
			// At all other kinds nothing is held, so that no wait there can close a cycle.
			if key.Kind == gatehouse.Semaphore || key.Kind == gatehouse.Lock {
				lines = append(lines, l)
			}
		}
		sh.mu.Unlock()
	}
	// In the order of a map, each search would find other cycles, and leave out others beyond the bounds.
	slices.SortFunc(lines, func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.key.Kind, b.key.Kind), strings.Compare(a.key.Name, b.key.Name))
	})
	return lines
}

// ownedWaiters are those of a line that say for whom they wait, the first of each owner.
func (l *line) ownedWaiters() map[gatehouse.Owner]control.Ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiters map[gatehouse.Owner]control.Ticket
	l.eachWaiting(func(e control.LineEntry) bool {
		owner, named := identityOf(e.Owner)
		if !named {
			return true
		}
		if waiters == nil {
			waiters = make(map[gatehouse.Owner]control.Ticket)
		}
		// One edge for each owner and name is enough. The first is the one that is served first.
		if _, known := waiters[owner]; !known {
			waiters[owner] = e.Ticket
		}
		return true
	})
	return waiters
}

// identityOf is what tells an owner from others.
func identityOf(o *gatehouse.Owner) (id gatehouse.Owner, named bool) {
	if o == nil {
		return id, false
	}
	id = gatehouse.Owner{Name: o.Name, Host: o.Host}
	return id, id != gatehouse.Owner{}
}

// A waitGraph says which owners wait for which. Its nodes are owners and names: an owner leads to the names
// at which it waits, and a name to its holders. So the graph has an edge for each wait and each hold, and not
// for each pair of the two, of which there may be a thousand times as many.
type waitGraph struct {
	nodes  []waitNode
	owners map[gatehouse.Owner]int // their nodes
	met    int                     // nodes that findKnots has met
	open   []int                   // those of them whose knots are not known yet
}

// nobody is the node of all holders without an owner. It waits nowhere.
const nobody = 0

// A waitNode is an owner or a name.
type waitNode struct {
	owner gatehouse.Owner
	key   gatehouse.Key // of a name
	edges []waitEdge

	met    int // the place in the order in which findKnots met the nodes, from 1
	lowest int // of those that it leads back to
	isOpen bool
	knot   int // the same for all nodes that lead to each other, from 1; 0 if no other one does
}

// A waitEdge is that an owner waits at a name, or that a name is held by an owner.
type waitEdge struct {
	to int
	id uint64 // the ticket of the first that waits, or the fencing token of the hold
}

func newWaitGraph() *waitGraph {
	return &waitGraph{nodes: make([]waitNode, 1), owners: make(map[gatehouse.Owner]int)}
}

// nodeOf is the node of an owner.
func (w *waitGraph) nodeOf(owner *gatehouse.Owner) int {
	id, named := identityOf(owner)
	if !named {
		return nobody
	}
	node, known := w.owners[id]
	if !known {
		node = len(w.nodes)
		w.nodes = append(w.nodes, waitNode{owner: id})
		w.owners[id] = node
	}
	return node
}

// addName adds the waits at a name and its holders.
func (w *waitGraph) addName(
	key gatehouse.Key, waiters map[gatehouse.Owner]control.Ticket, holders []gatehouse.HolderEntry,
) {
	name := len(w.nodes)
	w.nodes = append(w.nodes, waitNode{key: key})
	// The order of the edges says which of several shortest cycles is found: it must not be that of a map.
	byTicket := func(a, b gatehouse.Owner) int { return cmp.Compare(waiters[a], waiters[b]) }
	for _, owner := range slices.SortedFunc(maps.Keys(waiters), byTicket) {
		w.addEdge(w.nodeOf(&owner), name, uint64(waiters[owner]))
	}
	for i := range holders {
		w.addEdge(name, w.nodeOf(&holders[i].Owner), holders[i].Fence)
	}
}

func (w *waitGraph) addEdge(from, to int, id uint64) {
	n := &w.nodes[from]
	n.edges = append(n.edges, waitEdge{to, id})
}

// findCycles finds one cycle for each owner that is in any, the shortest, and each cycle once.
func (w *waitGraph) findCycles(ctx context.Context) (cycles []Cycle, err error) {
	for node := range w.nodes {
		if w.nodes[node].met == 0 {
			w.findKnots(node)
		}
	}
	found := make(map[gatehouse.Owner]bool)
	for node := range w.nodes {
		// Only nodes in some cycle are followed, so that no search is in vain.
		n := &w.nodes[node]
		if n.knot == 0 || n.key.Kind != 0 || found[n.owner] || len(cycles) == maxCycles {
			continue
		}
		// One search may visit all that is held and waited for, and there may be maxCycles of them.
		if err := ctx.Err(); err != nil {
			return nil, gatehouse.Errorf(gatehouse.CodeTimeout, "looking for cycles: %w", err)
		}
		links := w.shortestCycle(node)
		inside := make(map[int]bool)
		for _, link := range links {
			found[link.Owner], inside[w.owners[link.Owner]] = true, true
		}
		cycles = append(cycles, Cycle{Links: links, Stuck: w.isClosed(inside)})
	}
	return cycles, nil
}

// findKnots finds which of the nodes that one leads to lead to each other, by the algorithm of Tarjan. It
// calls itself no more than twice for each name.
func (w *waitGraph) findKnots(node int) {
	w.met++
	n := &w.nodes[node]
	n.met, n.lowest, n.isOpen = w.met, w.met, true
	w.open = append(w.open, node)
	for _, e := range n.edges {
		to := &w.nodes[e.to]
		if to.met == 0 {
			w.findKnots(e.to)
		}
		// A node that is not open is in a knot that is complete, from which no way leads back here.
		if to.isOpen {
			n.lowest = min(n.lowest, to.lowest)
		}
	}
	if n.lowest < n.met {
		return // the first of its knot ends that
	}
	// The first of a knot that was met: what was met since, and is still open, belongs to it.
	at := slices.Index(w.open, node)
	for _, one := range w.open[at:] {
		w.nodes[one].isOpen = false
		// No node leads to itself, since owners lead to names and names
		// to owners. So one alone is in no cycle.
		if len(w.open)-at > 1 {
			w.nodes[one].knot = n.met
		}
	}
	w.open = w.open[:at]
}

// A waitStep is an edge, and the node that it leads from.
type waitStep struct {
	from int
	waitEdge
}

// shortestCycle is the shortest way from an owner that is in some cycle back to it.
func (w *waitGraph) shortestCycle(from int) []CycleLink {
	cameBy := make(map[int]waitStep)
	queue := []int{from}
	// Breadth first, so that the first way found is the shortest.
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, e := range w.nodes[node].edges {
			// Most lead out of the knot, and back into it never.
			if w.nodes[e.to].knot != w.nodes[from].knot {
				continue
			}
			if _, known := cameBy[e.to]; known {
				continue
			}
			cameBy[e.to] = waitStep{node, e}
			if e.to == from {
				return w.traceBack(cameBy, from)
			}
			queue = append(queue, e.to)
		}
	}
	// Not reached: each node of a knot leads back to itself.
	return nil
}

// traceBack is the way that leads back to an owner, from its own link on.
func (w *waitGraph) traceBack(cameBy map[int]waitStep, to int) (links []CycleLink) {
	for at := to; ; {
		// Owners and names take turns on the way, so that two steps back, a hold and a wait, are one link.
		hold := cameBy[at]
		wait := cameBy[hold.from]
		links = append(links, CycleLink{
			Owner: w.nodes[wait.from].owner, Key: w.nodes[hold.from].key,
			Waiter: gatehouse.WaiterID(wait.id), Holder: gatehouse.HolderID(hold.id),
		})
		at = wait.from
		if at == to {
			break
		}
	}
	slices.Reverse(links)
	return links
}

// isClosed reports whether some owners wait only for each other.
func (w *waitGraph) isClosed(inside map[int]bool) bool {
	names := make(map[int]bool)
	for owner := range inside {
		for _, wait := range w.nodes[owner].edges {
			names[wait.to] = true
		}
	}
	for name := range names {
		for _, hold := range w.nodes[name].edges {
			// The node of holders without an owner is never inside: such a
			// holder waits for no one, and can end.
			if !inside[hold.to] {
				return false
			}
		}
	}
	return true
}
