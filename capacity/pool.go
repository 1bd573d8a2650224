package capacity

import "math"

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
		// Each client gets up to the capacity, however many there are.
		return min(n.wants, capacity*float64(n.clients))
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

// waterLevel returns how much each client may have at most, so that all together have the capacity. Think of
// the demands as vessels, each as wide as it has clients and as high as what each of those wants, into which
// the capacity is poured. It is +Inf if there is enough for all.
//
// With 100 for clients that want 5, 22, 24, 27 and 100 it is 24.5: 5 + 22 + 24 + 24.5 + 24.5.
func waterLevel(c *demandTrees, all subtree, capacity float64) float64 {
	if all.wants <= capacity {
		return math.Inf(1)
	}
	// The vessels that are full are the first in order. What they hold is taken off, and the rest of the
	// capacity stands equally high in the others.
	full := c.sumWhile(all, func(before sums, perClient float64) bool {
		// If all before this one were full and the rest stood as high as it, would the capacity be used up?
		// Then the level is below it, else at or above it.
		return before.wants+perClient*float64(all.clients-before.clients) < capacity
	})
	open := all.clients - full.clients
	if open <= 0 {
		return math.Inf(1) // only rounding says that there is not enough
	}
	return max(0, (capacity-full.wants)/float64(open))
}

// fairShare returns what a demand gets at a water level.
func fairShare(n *bandDemand, level float64) float64 {
	if n.wantsPerClient() <= level {
		return n.wants
	}
	return min(n.wants, level*float64(n.clients))
}

// proportionalLevels returns what each client would get if all got the same, and which part of their excess
// wants those get that want more: what others leave of their equal share, divided by all that is wanted above
// it.
//
// With 120 for clients that want 1000, 50 and 10 the equal share is 40. The last leaves 30; 960 and 10 are
// wanted above; so the first gets 40 + 960 × 30/970 = 69.69, the second 40 + 10 × 30/970 = 40.31.
func proportionalLevels(c *demandTrees, all subtree, capacity float64) (equal, leftover float64) {
	if all.wants <= capacity {
		return 0, 1
	}
	equal = capacity / float64(all.clients)
	// Those who want less than an equal share.
	modest := c.sumWhile(all, func(_ sums, perClient float64) bool { return perClient < equal })
	extra := max(0, equal*float64(modest.clients)-modest.wants)
	need := all.wants - modest.wants - equal*float64(all.clients-modest.clients)
	if need <= extra {
		return equal, 1
	}
	return equal, extra / need
}

// proportionalShare returns what a demand gets.
func proportionalShare(n *bandDemand, equal, leftover float64) float64 {
	deserved := equal * float64(n.clients)
	if leftover >= 1 || n.wants <= deserved {
		return n.wants
	}
	return min(n.wants, deserved+(n.wants-deserved)*leftover)
}
