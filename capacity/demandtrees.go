package capacity

// A bandDemand is what one holder wants for its clients of one priority.
type bandDemand struct {
	wants   float64
	clients int32
	band    int32 // of its priority
	next    int32 // of the same holder: its demand at the next lower priority; 0 is none
}

// wantsPerClient is what one client wants. Demands are sorted by it.
func (n *bandDemand) wantsPerClient() float64 { return wantsPerClient(n.wants, n.clients) }

// wantsPerClient divides what a group of clients wants by their number.
func wantsPerClient(wants float64, clients int32) float64 {
	if clients == 1 {
		return wants // usual, and a division on the way down takes as long as the rest
	}
	return wants / float64(clients)
}

// A sortKey is a place in the order of demands. Equal amounts are ordered by the number of the demand.
type sortKey struct {
	perClient float64
	demand    int32
}

// sortsBefore reports whether s comes before other.
func (s sortKey) sortsBefore(other sortKey) bool {
	return s.perClient < other.perClient || s.perClient == other.perClient && s.demand < other.demand
}

// demandTrees holds all demands of one resource, and the trees they are in. Number 0 stands for none.
//
// Demands that share a capacity are kept in order, in nodes of some dozens, and the nodes form a treap: a
// binary search tree by order and a heap by a random rank, which keeps it shallow. A million demands take
// twenty thousand nodes, and that tree stays in the cache of a processor.
//
// All sums are computed again from below whenever something there changes, and never counted up and down, so
// rounding errors do not accumulate.
type demandTrees struct {
	slab[bandDemand]
	nodes     slab[treapNode]
	rankState uint32
	path      []pathStep // of the present change, from the root down
}

func newDemandTrees() demandTrees {
	var c demandTrees
	c.add()
	c.clearTrees()
	return c
}

// clearTrees removes all demands from their trees.
func (c *demandTrees) clearTrees() {
	c.nodes = slab[treapNode]{}
	// Number 0 stands for none, so it is taken and never used.
	c.nodes.add()
}

// newDemand makes a demand that is in no tree yet.
func (c *demandTrees) newDemand(d *Demand, band int32) int32 {
	i := c.add()
	*c.at(i) = bandDemand{wants: d.Wants, clients: int32(d.Clients), band: band}
	return i
}

// insertDemand puts a demand into a tree, and returns the tree with it.
func (c *demandTrees) insertDemand(tree subtree, i int32) subtree {
	n := c.at(i)
	at := sortKey{n.wantsPerClient(), i}
	if tree.root == 0 {
		return c.insertNode(subtree{}, c.newNode(at, nodeEntry{n.wants, n.clients, i}))
	}
	k := c.seekNode(tree, at)
	node := c.nodes.at(k)
	node.insertEntry(nodeEntry{n.wants, n.clients, i}, at)
	if len(node.entries) < maxEntries {
		return c.updateSums(c.subtreeAt(k))
	}
	// The node is full: its upper half becomes a node of its own.
	upper := c.newNode(node.entries[maxEntries/2].sortKey(), node.entries[maxEntries/2:]...)
	node = c.nodes.at(k)
	node.entries = node.entries[:maxEntries/2]
	node.recount()
	return c.insertNode(tree, upper) // k lies on the path, so the sums above it are computed again as well
}

// removeDemand takes a demand out of a tree, and returns the tree without it.
func (c *demandTrees) removeDemand(tree subtree, i int32) subtree {
	at := sortKey{c.at(i).wantsPerClient(), i}
	k := c.seekNode(tree, at)
	node := c.nodes.at(k)
	node.removeEntry(at)
	if len(node.entries) >= minEntries {
		return c.updateSums(c.subtreeAt(k))
	}
	// The node is too small to keep: its entries go to the node before it, or to the front of the one after.
	if tree.root == k && node.left.root == 0 && node.right.root == 0 && len(node.entries) > 0 {
		return c.subtreeAt(k)
	}
	// The entries are copied before the node is freed: insertDemand may hand the same node out again.
	tree = c.updateSums(c.joinTrees(node.left, node.right))
	var few [minEntries]nodeEntry
	n := copy(few[:], node.entries)
	c.nodes.remove(k)
	for _, e := range few[:n] {
		tree = c.insertDemand(tree, e.demand)
	}
	return tree
}
