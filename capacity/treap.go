package capacity

// A half is a tree of chunks with its sums.
type half struct {
	wants   float64
	clients int64
	root    int32
}

// A step goes down from a chunk to one of its halves.
type step struct {
	n     *chunk
	k     int32
	right bool
}

// draw is the next rank. The same calls draw the same ranks, so a simulation can be repeated.
func (c *claims) draw() uint32 {
	c.drawn += 0x9e3779b9
	x := c.drawn
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// whole is the tree with a root.
func (c *claims) whole(root int32) half {
	n := c.chunks.at(root)
	return half{
		wants:   n.leftWants + n.wants + n.rightWants,
		clients: n.leftClients + n.clients + n.rightClients,
		root:    root,
	}
}

// down notes a step and returns the tree that it leads to.
func (c *claims) down(n *chunk, k int32, right bool) half {
	c.path = append(c.path, step{n, k, right})
	if right {
		return n.rightHalf()
	}
	return n.leftHalf()
}

// seek finds the chunk of a spot: the last that does not begin after it, or the first of all. The path leads
// there. The tree must not be empty.
func (c *claims) seek(tree half, at spot) int32 {
	c.path = c.path[:0]
	found, length := int32(0), 0
	last := tree.root
	for tree.root != 0 {
		last = tree.root
		n := c.chunks.at(last)
		right := !at.before(n.first)
		if right {
			found, length = last, len(c.path)
		}
		tree = c.down(n, last, right)
	}
	if found == 0 {
		found, length = last, len(c.path)-1
	}
	c.path = c.path[:length]
	return found
}

// plant puts a chunk into a tree, and returns the tree with it.
func (c *claims) plant(tree half, k int32) half {
	n := c.chunks.at(k)
	n.rank = c.draw()
	c.path = c.path[:0]
	for tree.root != 0 {
		top := c.chunks.at(tree.root)
		if top.rank < n.rank {
			break
		}
		tree = c.down(top, tree.root, top.first.before(n.first))
	}
	left, right := c.split(tree, n.first)
	n.setLeft(left)
	n.setRight(right)
	return c.ascend(c.whole(k))
}

// ascend hangs a tree at the end of the path and makes the sums above it anew. It returns the whole tree.
func (c *claims) ascend(tree half) half {
	for i := len(c.path) - 1; i >= 0; i-- {
		s := &c.path[i]
		if s.right {
			s.n.setRight(tree)
		} else {
			s.n.setLeft(tree)
		}
		tree = half{
			wants:   s.n.leftWants + s.n.wants + s.n.rightWants,
			clients: s.n.leftClients + s.n.clients + s.n.rightClients,
			root:    s.k,
		}
	}
	return tree
}

// split cuts a tree in two: the chunks that begin before a spot, and those after.
func (c *claims) split(tree half, at spot) (left, right half) {
	if tree.root == 0 {
		return half{}, half{}
	}
	top := c.chunks.at(tree.root)
	if top.first.before(at) {
		left, right = c.split(top.rightHalf(), at)
		top.setRight(left)
		return c.whole(tree.root), right
	}
	left, right = c.split(top.leftHalf(), at)
	top.setLeft(right)
	return left, c.whole(tree.root)
}

// join makes one tree of two, the first of which comes before the second.
func (c *claims) join(left, right half) half {
	switch {
	case left.root == 0:
		return right
	case right.root == 0:
		return left
	}
	a, b := c.chunks.at(left.root), c.chunks.at(right.root)
	if a.rank > b.rank {
		a.setRight(c.join(a.rightHalf(), right))
		return c.whole(left.root)
	}
	b.setLeft(c.join(left, b.leftHalf()))
	return c.whole(right.root)
}
