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

// This file finds owners that wait for each other: each holds what another one waits for. Nobody is kept from
// that by this server, which knows only what commands say about their owners; it is shown, so that somebody
// can evict one of them.

// A Cycle is owners that wait for each other, each for the next, and the last for the first.
type Cycle struct {
	Links []CycleLink
	// Stuck says that nobody outside of the cycle holds anything that one of it waits for, so that it ends
	// only when a wait or a hold of it does.
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
// server: what they hold is known from the store, whichever server has granted it. An owner is its name and
// its host. One without either is nobody.
func (g *Gate) Cycles(ctx context.Context) ([]Cycle, error) {
	graph := &waitGraph{edges: make(map[gatehouse.Owner][]waitEdge)}
	for _, l := range g.heldLines() {
		waiters := l.ownedWaiters()
		if len(waiters) == 0 {
			continue
		}
		if len(graph.names) == maxCycleNames {
			break
		}
		graph.names = append(graph.names, l.key)
		d, err := g.Do(ctx, l.key, gatehouse.Command{Op: gatehouse.OpHolders, Amount: gatehouse.MaxListed})
		if err != nil {
			return nil, err
		}
		// It may have been deleted since.
		if d.Report != nil {
			graph.addName(l.key, waiters, d.Report.Holders)
		}
	}
	return graph.findCycles(), nil
}

// heldLines are the lines at semaphores and locks, in the order of their keys.
func (g *Gate) heldLines() (lines []*line) {
	for i := range g.shards {
		sh := &g.shards[i]
		sh.mu.Lock()
		for key, l := range sh.lines {
			if key.Kind == gatehouse.Semaphore || key.Kind == gatehouse.Lock {
				lines = append(lines, l)
			}
		}
		sh.mu.Unlock()
	}
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

// A waitGraph is who waits for whom.
type waitGraph struct {
	names []gatehouse.Key
	edges map[gatehouse.Owner][]waitEdge
	order []gatehouse.Owner // those with edges, in the order in which they were found
}

// A waitEdge is that an owner waits for a hold of another one, or of one that is nobody.
type waitEdge struct {
	to    gatehouse.Owner
	named bool
	link  CycleLink
}

// addName adds who waits at a name for those who hold it.
func (w *waitGraph) addName(
	key gatehouse.Key, waiters map[gatehouse.Owner]control.Ticket, holders []gatehouse.HolderEntry,
) {
	byTicket := func(a, b gatehouse.Owner) int { return cmp.Compare(waiters[a], waiters[b]) }
	for _, owner := range slices.SortedFunc(maps.Keys(waiters), byTicket) {
		if w.edges[owner] == nil {
			w.order = append(w.order, owner)
		}
		for i := range holders {
			to, named := identityOf(&holders[i].Owner)
			w.edges[owner] = append(w.edges[owner], waitEdge{to, named, CycleLink{
				Owner: owner, Key: key, Waiter: gatehouse.WaiterID(uint64(waiters[owner])),
				Holder: gatehouse.HolderID(holders[i].Fence),
			}})
		}
	}
}

// findCycles finds one cycle for each owner that is in any, the shortest, and each cycle once.
func (w *waitGraph) findCycles() (cycles []Cycle) {
	found := make(map[gatehouse.Owner]bool)
	for _, owner := range w.order {
		if found[owner] || len(cycles) == maxCycles {
			continue
		}
		links := w.shortestCycle(owner)
		if links == nil {
			continue
		}
		inside := make(map[gatehouse.Owner]bool)
		for _, link := range links {
			found[link.Owner], inside[link.Owner] = true, true
		}
		cycles = append(cycles, Cycle{Links: links, Stuck: w.isClosed(inside)})
	}
	return cycles
}

// shortestCycle is the shortest way from an owner back to it; nil when there is none.
func (w *waitGraph) shortestCycle(from gatehouse.Owner) []CycleLink {
	cameBy := make(map[gatehouse.Owner]waitEdge)
	queue := []gatehouse.Owner{from}
	// Breadth first, so that the first way found is the shortest.
	for len(queue) > 0 {
		owner := queue[0]
		queue = queue[1:]
		for _, e := range w.edges[owner] {
			if _, known := cameBy[e.to]; known || !e.named {
				continue
			}
			cameBy[e.to] = e
			if e.to == from {
				return traceBack(cameBy, from)
			}
			queue = append(queue, e.to)
		}
	}
	return nil
}

// traceBack is the way that leads back to an owner, from its own link on.
func traceBack(cameBy map[gatehouse.Owner]waitEdge, to gatehouse.Owner) (links []CycleLink) {
	for at := to; ; {
		link := cameBy[at].link
		links = append(links, link)
		at = link.Owner
		if at == to {
			break
		}
	}
	slices.Reverse(links)
	return links
}

// isClosed reports whether some owners wait for nobody but each other.
func (w *waitGraph) isClosed(inside map[gatehouse.Owner]bool) bool {
	for owner := range inside {
		for _, e := range w.edges[owner] {
			if !e.named || !inside[e.to] {
				return false
			}
		}
	}
	return true
}
