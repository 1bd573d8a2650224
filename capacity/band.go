package capacity

import (
	"cmp"
	"slices"
)

// A band is one priority band of a resource: the sums over the demands of all leases at that priority.
type band struct {
	priority int64
	slot     int32 // in resource.slots
	demands  int
	clients  int64
	wants    exactSum
	pool     // of this band alone, if strict priorities are on
}

// adjustTotals adds to the totals of the band. Negative arguments take a demand away.
func (b *band) adjustTotals(wants float64, clients int64, demands int) {
	b.wants.add(wants)
	b.clients += clients
	b.demands += demands
}

// seekBand returns the index in r.bands at which the band of a priority is, or would be inserted. Bands are
// in descending order of priority.
func (r *resource) seekBand(priority int64) (k int, found bool) {
	return slices.BinarySearchFunc(r.bands, priority, func(b *band, priority int64) int {
		return cmp.Compare(priority, b.priority)
	})
}

// ensureBand returns the band of a priority, and creates it if there is none.
func (r *resource) ensureBand(priority int64) *band {
	k, found := r.seekBand(priority)
	if !found {
		b := &band{priority: priority, slot: r.bandSlots.add()}
		*r.bandSlots.at(b.slot) = b
		r.bands = slices.Insert(r.bands, k, b)
	}
	return r.bands[k]
}

// bandOf returns the band a demand belongs to.
func (r *resource) bandOf(n *bandDemand) *band { return *r.bandSlots.at(n.band) }

// dropBand removes a band that has no demands left.
func (r *resource) dropBand(b *band) {
	k, _ := r.seekBand(b.priority)
	r.bands = slices.Delete(r.bands, k, k+1)
	*r.bandSlots.at(b.slot) = nil
	r.bandSlots.remove(b.slot)
}

// poolOf returns the pool that holds the demands of a band.
func (r *resource) poolOf(b *band) *pool {
	if r.strict {
		return &b.pool
	}
	return &r.pool
}

// rebuildPools moves all demands to other pools, after a template has switched strict priorities on or off.
// It takes O(n log n) for n demands.
func (r *resource) rebuildPools(strict bool) {
	r.strict, r.pool = strict, pool{}
	r.demands.clearTrees()
	for _, b := range r.bands {
		b.pool = pool{}
	}
	// The old trees are gone as a whole, so every demand is inserted again instead of being removed first.
	// The walk is by client name: map order would make the shape of the trees differ from run to run.
	for i := range r.byName.all {
		for at := r.records.at(i).firstDemand; at != 0; at = r.demands.at(at).next {
			r.poolOf(r.bandOf(r.demands.at(at))).addDemand(&r.demands, at)
		}
	}
}

// countNewBands returns how many of the demands have a priority that is new to the resource.
func (r *resource) countNewBands(demands []Demand) int {
	n := 0
	for k := range demands {
		if _, found := r.seekBand(demands[k].Priority); !found {
			n++
		}
	}
	return n
}
