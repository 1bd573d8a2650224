package capacity

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// A resource is all leases on one name, and how they are shared.
type resource struct {
	id       string
	template *Template
	strict   bool    // the higher priority is served first
	supply   *supply // what this server's parent gives; nil without a parent

	byClient clientIndex       // rows by client
	byName   sortedList[int32] // rows by client, in order
	records  slab[leaseRecord]
	expiries minheap.Heap[expiry]
	wakeAt   int64 // when the server looks at it; never if it does not
	removed  bool  // not the server's any more

	demands   demandTrees
	bands     []*band     // by priority, the highest first
	bandSlots slab[*band] // the same, by the number that demands keep
	pool                  // of all demands, unless strict
	has       exactSum    // what is taken by all rows

	demandCount int // of all leases
	nameBytes   int // bytes of the names of its clients
	counted     resourceCounts
}

// resourceCounts are the numbers of a resource that its server has included in its own totals.
type resourceCounts struct{ demands, leases, nameBytes int }

func newResource(id string) *resource {
	r := &resource{id: id, byClient: newClientIndex(), demands: newDemandTrees(), wakeAt: never}
	r.byName.nameOf = func(i int32) string { return r.records.at(i).client }
	return r
}

// setTemplate changes the template at once. Leases that were given stay.
func (r *resource) setTemplate(t *Template) {
	r.template = t
	if strict := t.Algorithm.Strict(); strict != r.strict {
		r.rebuildPools(strict)
	}
}

// clientCount returns the number of clients behind all leases.
func (r *resource) clientCount() int64 {
	var n int64
	for _, b := range r.bands {
		n += b.clients
	}
	return n
}

// totalWants returns what they want together.
func (r *resource) totalWants() float64 {
	total := 0.0
	for _, b := range r.bands {
		total += b.wants.value()
	}
	return total
}

// capacityAt returns what there is to share now; +Inf without limit.
func (r *resource) capacityAt(now time.Time) float64 {
	c := r.template.Capacity
	if r.supply != nil {
		c = r.supply.capacityAt(now, r.clientCount())
	}
	if !(c >= 0) { // not a number, too
		return 0
	}
	return c
}

// freeFor returns what one lease may have of a capacity besides what all others have taken.
func (r *resource) freeFor(now time.Time, i int32, capacity float64) float64 {
	// While a request to the parent is on its way, only what it reports as held may be held: the parent may
	// have given the rest to others.
	if u := r.supply; u != nil && u.leaseHolds(now) {
		capacity = min(capacity, u.reserved)
	}
	return max(0, capacity-r.has.without(r.records.at(i).taken))
}

// sharesCapacity reports whether the capacity is one for all together, and not one for each client, or none.
func (r *resource) sharesCapacity() bool {
	kind := r.template.Algorithm.Kind
	return kind == FairShare || kind == ProportionalShare
}

// leaseTarget returns what a lease gets of a capacity once every client has its share.
func (r *resource) leaseTarget(i int32, capacity float64) float64 {
	kind, at := r.template.Algorithm.Kind, r.records.at(i).firstDemand
	total := 0.0
	// Without strict priorities all demands compete in one pool.
	if !r.strict || !r.sharesCapacity() {
		for ; at != 0; at = r.demands.at(at).next {
			total += r.demandTarget(kind, capacity, &r.demands, at)
		}
		return total
	}
	// Bands are in descending order, as are the demands of a lease. Each band leaves to the lower ones what
	// it does not want.
	for _, b := range r.bands {
		if at == 0 {
			break
		}
		if n := r.demands.at(at); n.band == b.slot {
			total += b.demandTarget(kind, capacity, &r.demands, at)
			at = n.next
		}
		capacity = max(0, capacity-b.wants.value())
	}
	return total
}

// leaseWants returns what a lease wants at all of its priorities.
func (r *resource) leaseWants(i int32) float64 {
	total := 0.0
	for at := r.records.at(i).firstDemand; at != 0; at = r.demands.at(at).next {
		total += r.demands.at(at).wants
	}
	return total
}

// maxAlone returns what a lease could have of a capacity if there were no others.
func (r *resource) maxAlone(i int32, capacity float64) float64 {
	switch r.template.Algorithm.Kind {
	case FairShare, ProportionalShare:
		return capacity
	case Static:
		return r.leaseTarget(i, capacity)
	default:
		return math.Inf(1)
	}
}

// setTaken records what a lease has from now on.
func (r *resource) setTaken(i int32, given, taken float64) {
	n := r.records.at(i)
	r.has.replace(n.taken, taken)
	n.given, n.taken = given, taken
}

// safeCapacity returns what one client may use without a lease, and whether the template says so.
func (r *resource) safeCapacity(capacity float64) (amount float64, configured bool) {
	if s := r.template.Safe; s != nil {
		return *s, true
	}
	if math.IsInf(capacity, 1) {
		return -1, false
	}
	// doorman's default: the capacity in equal parts, whatever the algorithm.
	return capacity / float64(max(r.clientCount(), 1)), false
}

// excessAbove returns by how much what is taken exceeds a capacity.
func (r *resource) excessAbove(capacity float64) float64 {
	if !r.sharesCapacity() || math.IsInf(capacity, 1) {
		return 0
	}
	return max(0, r.has.value()-capacity)
}
