package capacity

import "slices"

const (
	// mostEntries and leastEntries are how many claims a chunk may have: so many that few chunks are made,
	// and so few that one is soon looked through. Halves of a full chunk are far from both.
	mostEntries  = 64
	leastEntries = 8
)

// A chunk is some claims that follow each other in order, with their sums and those of the chunks below.
type chunk struct {
	entries []entry
	first   spot // no entry is before, and all of the chunk before are

	wants   float64 // of the entries
	clients int64

	rank                      uint32
	left, right               int32 // roots of the two halves
	leftClients, rightClients int64
	leftWants, rightWants     float64
}

// An entry is a claim in a chunk. It repeats what is looked at.
type entry struct {
	wants   float64
	clients int32
	i       int32
}

func (e *entry) each() float64 { return each(e.wants, e.clients) }

func (e *entry) spot() spot { return spot{e.each(), e.i} }

// newChunk makes a chunk in no tree.
func (c *claims) newChunk(first spot, entries ...entry) int32 {
	k := c.chunks.add()
	n := c.chunks.at(k)
	*n = chunk{entries: n.entries[:0], first: first} // what a removed one had is used again
	if len(entries) > 1 {
		n.entries = slices.Grow(n.entries, mostEntries)
	}
	n.entries = append(n.entries, entries...)
	n.count()
	return k
}

// count makes the sums of the entries anew.
func (n *chunk) count() {
	n.wants, n.clients = 0, 0
	for k := range n.entries {
		n.wants += n.entries[k].wants
		n.clients += int64(n.entries[k].clients)
	}
}

// find is where the entry at a spot is, or would be.
func (n *chunk) find(at spot) int {
	low, high := 0, len(n.entries)
	for low < high {
		middle := (low + high) / 2
		if n.entries[middle].spot().before(at) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (n *chunk) insert(e entry, at spot) {
	n.entries = slices.Insert(n.entries, n.find(at), e)
	if at.before(n.first) {
		n.first = at
	}
	n.count()
}

func (n *chunk) remove(at spot) {
	k := n.find(at)
	n.entries = slices.Delete(n.entries, k, k+1)
	n.count()
}

func (n *chunk) leftHalf() half  { return half{n.leftWants, n.leftClients, n.left} }
func (n *chunk) rightHalf() half { return half{n.rightWants, n.rightClients, n.right} }

func (n *chunk) setLeft(h half) {
	n.left, n.leftWants, n.leftClients = h.root, h.wants, h.clients
}

func (n *chunk) setRight(h half) {
	n.right, n.rightWants, n.rightClients = h.root, h.wants, h.clients
}
