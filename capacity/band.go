package capacity

import (
	"cmp"
	"slices"
)

// A band is all there is of one priority.
type band struct {
	priority int64
	slot     int32 // in resource.slots
	claims   int
	clients  int64
	wants    sum
	pool     // of this band alone, where the higher priority is served first
}

func (b *band) count(wants float64, clients int64, claims int) {
	b.wants.add(wants)
	b.clients += clients
	b.claims += claims
}

// seek is where the band of a priority is, or would be. The highest is the first.
func (r *resource) seek(priority int64) (k int, found bool) {
	return slices.BinarySearchFunc(r.bands, priority, func(b *band, priority int64) int {
		return cmp.Compare(priority, b.priority)
	})
}

// band is the band of a priority, a new one if need be.
func (r *resource) band(priority int64) *band {
	k, found := r.seek(priority)
	if !found {
		b := &band{priority: priority, slot: r.slots.add()}
		*r.slots.at(b.slot) = b
		r.bands = slices.Insert(r.bands, k, b)
	}
	return r.bands[k]
}

// bandOf is the band a claim is of.
func (r *resource) bandOf(n *claim) *band { return *r.slots.at(n.band) }

// dropBand takes a band away that has no claims any more.
func (r *resource) dropBand(b *band) {
	k, _ := r.seek(b.priority)
	r.bands = slices.Delete(r.bands, k, k+1)
	*r.slots.at(b.slot) = nil
	r.slots.remove(b.slot)
}

// poolOf is the pool in which the claims of a band are.
func (r *resource) poolOf(b *band) *pool {
	if r.strict {
		return &b.pool
	}
	return &r.pool
}

// regroup puts all claims into other pools, because the template now says otherwise whether the higher
// priority is served first.
func (r *resource) regroup(strict bool) {
	r.strict, r.pool = strict, pool{}
	r.claims.clear()
	for _, b := range r.bands {
		b.pool = pool{}
	}
	for i := range r.inOrder.all {
		for at := r.rows.at(i).claim; at != 0; at = r.claims.at(at).next {
			r.poolOf(r.bandOf(r.claims.at(at))).enter(&r.claims, at)
		}
	}
}

// newBands is how many priorities of the demands are new to the resource.
func (r *resource) newBands(demands []Demand) int {
	n := 0
	for k := range demands {
		if _, found := r.seek(demands[k].Priority); !found {
			n++
		}
	}
	return n
}
