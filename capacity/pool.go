package capacity

// A pool is a tree of claims that share one capacity: all of a resource, or, where the higher priority is
// served first, those of one priority. What follows from the claims and the capacity for everybody is
// kept until one of the two changes; a refresh that wants what it wanted before costs no search.
type pool struct {
	tree half

	solved   bool // the rest holds, for the capacity of
	kind     Kind
	of       float64
	level    float64 // fair share: what each client gets that wants as much
	equal    float64 // proportional share: what each client would get if all got the same
	leftover float64 // proportional share: how much of what is wanted above that can be had
}

// enter puts a claim into the pool.
func (p *pool) enter(c *claims, i int32) {
	p.tree = c.insert(p.tree, i)
	p.solved = false
}

// leave takes a claim out of the pool.
func (p *pool) leave(c *claims, i int32) {
	p.tree = c.remove(p.tree, i)
	p.solved = false
}

// target is what a claim gets of a capacity once everybody has what is theirs. It is never above what it
// wants, and all targets together are no more than the capacity, rounding aside.
func (p *pool) target(kind Kind, capacity float64, c *claims, i int32) float64 {
	n := c.at(i)
	switch kind {
	case FairShare:
		p.solve(kind, capacity, c)
		return fairShare(n, p.level)
	case ProportionalShare:
		p.solve(kind, capacity, c)
		return proportionalShare(n, p.equal, p.leftover)
	case Static:
		return staticShare(n, capacity)
	default:
		return n.wants
	}
}

func (p *pool) solve(kind Kind, capacity float64, c *claims) {
	if p.solved && p.of == capacity && p.kind == kind {
		return
	}
	p.solved, p.of, p.kind = true, capacity, kind
	if kind == FairShare {
		p.level = waterLevel(c, p.tree, capacity)
		return
	}
	p.equal, p.leftover = proportions(c, p.tree, capacity)
}
