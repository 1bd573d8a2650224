package capacity

// A pool is a tree of demands that share one capacity: all of a resource, or those of one priority if higher
// priorities are served first. What follows from the demands and the capacity for all of them is computed
// once and kept until one of the two changes; a refresh that wants what it wanted before needs no search.
type pool struct {
	tree subtree

	solved     bool // the rest holds, for the capacity of
	solvedKind AlgorithmKind
	solvedFor  float64
	level      float64 // fair share: what each client gets that wants as much
	equal      float64 // proportional share: what each client would get if all got the same
	leftover   float64 // proportional share: how much of what is wanted above that can be had
}

// addDemand puts a demand into the pool.
func (p *pool) addDemand(c *demandTrees, i int32) {
	p.tree = c.insertDemand(p.tree, i)
	p.solved = false
}

// removeDemand takes a demand out of the pool.
func (p *pool) removeDemand(c *demandTrees, i int32) {
	p.tree = c.removeDemand(p.tree, i)
	p.solved = false
}

// demandTarget returns what a demand gets of a capacity once every client has its share. It is never above
// what it wants, and all targets together are no more than the capacity, rounding aside.
func (p *pool) demandTarget(kind AlgorithmKind, capacity float64, c *demandTrees, i int32) float64 {
	n := c.at(i)
	switch kind {
	case FairShare:
		p.ensureSolved(kind, capacity, c)
		return fairShare(n, p.level)
	case ProportionalShare:
		p.ensureSolved(kind, capacity, c)
		return proportionalShare(n, p.equal, p.leftover)
	case Static:
		return staticShare(n, capacity)
	default:
		return n.wants
	}
}

// ensureSolved computes the level or the proportions, unless the kept ones still hold.
func (p *pool) ensureSolved(kind AlgorithmKind, capacity float64, c *demandTrees) {
	// A shared pool is solved for the same capacity by lease after lease, until a demand changes.
	if p.solved && p.solvedFor == capacity && p.solvedKind == kind {
		return
	}
	p.solved, p.solvedFor, p.solvedKind = true, capacity, kind
	if kind == FairShare {
		p.level = waterLevel(c, p.tree, capacity)
		return
	}
	p.equal, p.leftover = proportionalLevels(c, p.tree, capacity)
}
