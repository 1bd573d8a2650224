package capacity

// A subtree is the root of a tree of nodes, with its sums.
type subtree struct {
	wants   float64
	clients int64
	root    int32
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
func (c *demandTrees) subtreeAt(root int32) subtree {
	n := c.nodes.at(root)
	return subtree{
		wants:   n.leftWants + n.wants + n.rightWants,
		clients: n.leftClients + n.clients + n.rightClients,
		root:    root,
	}
}

// stepDown appends a step to the path and returns the subtree that it leads to.
func (c *demandTrees) stepDown(n *treapNode, k int32, right bool) subtree {
	c.path = append(c.path, pathStep{n, k, right})
	if right {
		return n.rightSubtree()
	}
	return n.leftSubtree()
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
	left, right := c.splitTree(tree, n.first)
	n.setLeft(left)
	n.setRight(right)
	return c.updateSums(c.subtreeAt(k))
}

// updateSums attaches a tree at the end of the path and computes the sums above it again. It returns the
// whole tree.
func (c *demandTrees) updateSums(tree subtree) subtree {
	for i := len(c.path) - 1; i >= 0; i-- {
		s := &c.path[i]
		if s.right {
			s.node.setRight(tree)
		} else {
			s.node.setLeft(tree)
		}
		// subtreeAt would look the node up again; the path has its pointer.
		tree = subtree{
			wants:   s.node.leftWants + s.node.wants + s.node.rightWants,
			clients: s.node.leftClients + s.node.clients + s.node.rightClients,
			root:    s.number,
		}
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
		left, right = c.splitTree(top.rightSubtree(), at)
		top.setRight(left)
		return c.subtreeAt(tree.root), right
	}
	left, right = c.splitTree(top.leftSubtree(), at)
	top.setLeft(right)
	return left, c.subtreeAt(tree.root)
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
		a.setRight(c.joinTrees(a.rightSubtree(), right))
		return c.subtreeAt(left.root)
	}
	b.setLeft(c.joinTrees(left, b.leftSubtree()))
	return c.subtreeAt(right.root)
}
