package capacity

// A claim is what one holder wants for its clients of one priority.
type claim struct {
	wants   float64
	clients int32
	band    int32 // of its priority
	next    int32 // of the same holder: its claim with the next lower priority; 0 is none
}

// each is what one client wants, the order of claims.
func (n *claim) each() float64 { return each(n.wants, n.clients) }

func each(wants float64, clients int32) float64 {
	if clients == 1 {
		return wants // usual, and a division on the way down takes as long as the rest
	}
	return wants / float64(clients)
}

// A spot is a place in the order of claims. Those that want the same are in the order of their numbers.
type spot struct {
	each float64
	i    int32
}

// before reports whether a spot comes before another.
func (s spot) before(other spot) bool {
	return s.each < other.each || s.each == other.each && s.i < other.i
}

// claims are the claims of one resource, and the trees they are in. Number 0 is none.
//
// Claims that share a capacity are in order, in chunks of some dozens, and the chunks in a treap: a binary
// tree by order and a heap by a rank drawn by lot, which keeps it shallow. A million claims are
// twenty thousand chunks, and the tree of those stays in the cache of a processor.
//
// All sums are made anew from below whenever something there changes, and never counted up and down, so
// they do not drift.
type claims struct {
	slab[claim]
	chunks slab[chunk]
	drawn  uint32
	path   []step // of the change at hand, from the root down
}

func newClaims() claims {
	var c claims
	c.add()
	c.clear()
	return c
}

// clear takes all claims out of their trees.
func (c *claims) clear() {
	c.chunks = slab[chunk]{}
	c.chunks.add()
}

// make makes a claim that is in no tree yet.
func (c *claims) make(d *Demand, band int32) int32 {
	i := c.add()
	*c.at(i) = claim{wants: d.Wants, clients: int32(d.Clients), band: band}
	return i
}

// insert puts a claim into a tree, and returns the tree with it.
func (c *claims) insert(tree half, i int32) half {
	n := c.at(i)
	at := spot{n.each(), i}
	if tree.root == 0 {
		return c.plant(half{}, c.newChunk(at, entry{n.wants, n.clients, i}))
	}
	k := c.seek(tree, at)
	chunk := c.chunks.at(k)
	chunk.insert(entry{n.wants, n.clients, i}, at)
	if len(chunk.entries) < mostEntries {
		return c.ascend(c.whole(k))
	}
	upper := c.newChunk(chunk.entries[mostEntries/2].spot(), chunk.entries[mostEntries/2:]...)
	chunk = c.chunks.at(k)
	chunk.entries = chunk.entries[:mostEntries/2]
	chunk.count()
	return c.plant(tree, upper) // k is on its way, so the sums above that are made anew, too
}

// remove takes a claim out of a tree, and returns the tree without it.
func (c *claims) remove(tree half, i int32) half {
	at := spot{c.at(i).each(), i}
	k := c.seek(tree, at)
	chunk := c.chunks.at(k)
	chunk.remove(at)
	if len(chunk.entries) >= leastEntries {
		return c.ascend(c.whole(k))
	}
	// Too few to be worth a chunk: they go to the one before, or come first in the one after.
	if tree.root == k && chunk.left == 0 && chunk.right == 0 && len(chunk.entries) > 0 {
		return c.whole(k)
	}
	tree = c.ascend(c.join(chunk.leftHalf(), chunk.rightHalf()))
	var few [leastEntries]entry
	n := copy(few[:], chunk.entries)
	c.chunks.remove(k)
	for _, e := range few[:n] {
		tree = c.insert(tree, e.i)
	}
	return tree
}
