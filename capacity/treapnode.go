package capacity

import "slices"

const (
	// maxEntries and minEntries bound the entries of a node. Large nodes keep the tree small; small ones are
	// searched and summed up quickly. The halves of a full node are far from both bounds.
	maxEntries = 64
	minEntries = 8
)

// A treapNode holds some demands that follow each other in order, with their sums and those of the subtrees
// below.
type treapNode struct {
	entries []entry
	first   sortKey // no entry sorts before it, and all of the previous node do

	wants   float64 // of the entries
	clients int64

	rank                      uint32
	left, right               int32 // roots of the two halves
	leftClients, rightClients int64
	leftWants, rightWants     float64
}

// An entry is a demand in a node. It copies the numbers that the search needs, which saves a cache miss.
type entry struct {
	wants   float64
	clients int32
	demand  int32
}

func (e *entry) wantsPerClient() float64 { return wantsPerClient(e.wants, e.clients) }

func (e *entry) sortKey() sortKey { return sortKey{e.wantsPerClient(), e.demand} }

// newNode makes a node that is in no tree.
func (c *demandTrees) newNode(first sortKey, entries ...entry) int32 {
	k := c.nodes.add()
	n := c.nodes.at(k)
	*n = treapNode{entries: n.entries[:0], first: first} // the memory of a removed node is used again
	if len(entries) > 1 {
		// A node with one entry may stay that small, for a resource with few leases. One that is split off
		// grows.
		n.entries = slices.Grow(n.entries, maxEntries)
	}
	n.entries = append(n.entries, entries...)
	n.recount()
	return k
}

// recount computes the sums of the entries again.
func (n *treapNode) recount() {
	n.wants, n.clients = 0, 0
	for k := range n.entries {
		n.wants += n.entries[k].wants
		n.clients += int64(n.entries[k].clients)
	}
}

// findEntry returns the index of the entry with a key, or where it would be inserted.
func (n *treapNode) findEntry(at sortKey) int {
	low, high := 0, len(n.entries)
	for low < high {
		middle := (low + high) / 2
		if n.entries[middle].sortKey().sortsBefore(at) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (n *treapNode) insertEntry(e entry, at sortKey) {
	n.entries = slices.Insert(n.entries, n.findEntry(at), e)
	// first only moves down. After a removal it is lower than needed, which is still a valid bound.
	if at.sortsBefore(n.first) {
		n.first = at
	}
	n.recount()
}

func (n *treapNode) removeEntry(at sortKey) {
	k := n.findEntry(at)
	n.entries = slices.Delete(n.entries, k, k+1)
	n.recount()
}

func (n *treapNode) leftSubtree() subtree  { return subtree{n.leftWants, n.leftClients, n.left} }
func (n *treapNode) rightSubtree() subtree { return subtree{n.rightWants, n.rightClients, n.right} }

func (n *treapNode) setLeft(h subtree) {
	n.left, n.leftWants, n.leftClients = h.root, h.wants, h.clients
}

func (n *treapNode) setRight(h subtree) {
	n.right, n.rightWants, n.rightClients = h.root, h.wants, h.clients
}
