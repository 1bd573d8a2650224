package capacity

import "slices"

// sums are of some demands.
type sums struct {
	wants   float64
	clients int64
}

func (s sums) plus(t sums) sums { return sums{s.wants + t.wants, s.clients + t.clients} }

// A subtree is the root of a tree of nodes, with its sums.
type subtree struct {
	sums
	root int32
}

// A treapNode holds some demands that follow each other in order, with their sums and those of the subtrees
// below.
type treapNode struct {
	entries []nodeEntry
	first   sortKey // no entry sorts before it, and all of the previous node do
	sums            // of the entries

	rank        uint32
	left, right subtree
}

// A pathStep goes down from a node to one of its subtrees.
type pathStep struct {
	node   *treapNode
	number int32
	right  bool
}

// nextRank returns the next pseudo-random rank. The same calls get the same ranks, so a simulation can be
// repeated.
func (c *demandTrees) nextRank() uint32 {
	c.rankState += 0x9e3779b9
	// A multiplicative hash of a counter: cheap, and well spread.
	x := c.rankState
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// subtreeAt returns the tree with a root.
func (c *demandTrees) subtreeAt(root int32) subtree { return c.nodes.at(root).asSubtree(root) }

// asSubtree returns the tree with the node, of that number, as its root.
func (n *treapNode) asSubtree(number int32) subtree {
	return subtree{n.left.plus(n.sums).plus(n.right.sums), number}
}

// stepDown appends a step to the path and returns the subtree that it leads to.
func (c *demandTrees) stepDown(n *treapNode, k int32, right bool) subtree {
	c.path = append(c.path, pathStep{n, k, right})
	if right {
		return n.right
	}
	return n.left
}

// seekNode finds the node for a key: the last that does not begin after it, or the first of all. The path
// leads there. The tree must not be empty.
func (c *demandTrees) seekNode(tree subtree, at sortKey) int32 {
	c.path = c.path[:0]
	found, length := int32(0), 0
	last := tree.root
	for tree.root != 0 {
		last = tree.root
		n := c.nodes.at(last)
		right := !at.sortsBefore(n.first)
		if right {
			found, length = last, len(c.path)
		}
		tree = c.stepDown(n, last, right)
	}
	// The key comes before all nodes. The first node takes it, which is where the search ended.
	if found == 0 {
		found, length = last, len(c.path)-1
	}
	c.path = c.path[:length]
	return found
}

// insertNode puts a node into a tree, and returns the tree with it.
func (c *demandTrees) insertNode(tree subtree, k int32) subtree {
	n := c.nodes.at(k)
	n.rank = c.nextRank()
	c.path = c.path[:0]
	// Go down as long as the nodes have higher ranks. There the new node takes the place of a subtree, which
	// is split into what comes before it and what comes after.
	for tree.root != 0 {
		top := c.nodes.at(tree.root)
		if top.rank < n.rank {
			break
		}
		tree = c.stepDown(top, tree.root, top.first.sortsBefore(n.first))
	}
	n.left, n.right = c.splitTree(tree, n.first)
	return c.updateSums(c.subtreeAt(k))
}

// updateSums attaches a tree at the end of the path and computes the sums above it again. It returns the
// whole tree.
func (c *demandTrees) updateSums(tree subtree) subtree {
	for i := len(c.path) - 1; i >= 0; i-- {
		s := &c.path[i]
		if s.right {
			s.node.right = tree
		} else {
			s.node.left = tree
		}
		// subtreeAt would look the node up again; the path has its pointer.
		tree = s.node.asSubtree(s.number)
	}
	return tree
}

// splitTree cuts a tree in two: the nodes that begin before a key, and the others.
func (c *demandTrees) splitTree(tree subtree, at sortKey) (left, right subtree) {
	if tree.root == 0 {
		return subtree{}, subtree{}
	}
	top := c.nodes.at(tree.root)
	if top.first.sortsBefore(at) {
		top.right, right = c.splitTree(top.right, at)
		return top.asSubtree(tree.root), right
	}
	left, top.left = c.splitTree(top.left, at)
	return left, top.asSubtree(tree.root)
}

// joinTrees makes one tree of two, the first of which comes before the second.
func (c *demandTrees) joinTrees(left, right subtree) subtree {
	switch {
	case left.root == 0:
		return right
	case right.root == 0:
		return left
	}
	a, b := c.nodes.at(left.root), c.nodes.at(right.root)
	// The root with the higher rank stays on top.
	if a.rank > b.rank {
		a.right = c.joinTrees(a.right, right)
		return a.asSubtree(left.root)
	}
	b.left = c.joinTrees(left, b.left)
	return b.asSubtree(right.root)
}

const (
	// maxEntries and minEntries bound the entries of a node. Large nodes keep the tree small; small ones are
	// searched and summed up quickly. The halves of a full node are far from both bounds.
	maxEntries = 64
	minEntries = 8
)

// A nodeEntry is a demand in a node. It copies the numbers that the search needs, which saves a cache miss.
type nodeEntry struct {
	wants   float64
	clients int32
	demand  int32
}

func (e *nodeEntry) wantsPerClient() float64 { return wantsPerClient(e.wants, e.clients) }

func (e *nodeEntry) sums() sums { return sums{e.wants, int64(e.clients)} }

func (e *nodeEntry) sortKey() sortKey { return sortKey{e.wantsPerClient(), e.demand} }

// newNode makes a node that is in no tree.
func (c *demandTrees) newNode(first sortKey, entries ...nodeEntry) int32 {
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
	n.sums = sums{}
	for k := range n.entries {
		n.sums = n.plus(n.entries[k].sums())
	}
}

// sumWhile returns the sums of the first demands in order, up to the one at which isBelow first says no. It
// is asked about what one client wants, and the sums of all demands before; after a no it must always say no.
func (c *demandTrees) sumWhile(all subtree, isBelow func(before sums, perClient float64) bool) sums {
	var below, beforeLow sums
	low := int32(0) // the last node that begins below
	for k := all.root; k != 0; {
		n := c.nodes.at(k)
		before := below.plus(n.left.sums)
		if !isBelow(before, n.first.perClient) {
			k = n.left.root
			continue
		}
		low, beforeLow = k, before
		below = before.plus(n.sums)
		k = n.right.root
	}
	// The end lies between two entries of this node: walk over them one by one.
	below = beforeLow
	for _, e := range c.nodes.at(low).entries {
		if !isBelow(below, e.wantsPerClient()) {
			break
		}
		below = below.plus(e.sums())
	}
	return below
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

func (n *treapNode) insertEntry(e nodeEntry, at sortKey) {
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
