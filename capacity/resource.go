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
	up       *supply // what this server's parent gives; nil without a parent

	index    index         // rows by client
	inOrder  sorted[int32] // rows by client, in order
	rows     slab[row]
	expiries minheap.Heap[expiry]
	wakes    int64 // when the server looks at it; never: not at all
	gone     bool  // not the server's any more

	claims claims
	bands  []*band     // by priority, the highest first
	slots  slab[*band] // the same, where their claims find them
	pool               // of all claims, unless strict
	has    sum         // what is taken by all rows

	demands int // how many claims there are
	names   int // what those of its clients weigh
	counted tally
}

// A tally is what of a resource is in the sums of its server.
type tally struct{ demands, leases, names int }

func newResource(id string) *resource {
	r := &resource{id: id, index: newIndex(), claims: newClaims(), wakes: never}
	r.inOrder.name = func(i int32) string { return r.rows.at(i).client }
	return r
}

// adopt makes a template that of the resource, at once. Leases that were given stay.
func (r *resource) adopt(t *Template) {
	r.template = t
	if strict := t.Algorithm.Strict(); strict != r.strict {
		r.regroup(strict)
	}
}

// clients is how many there are behind all leases.
func (r *resource) clients() int64 {
	var n int64
	for _, b := range r.bands {
		n += b.clients
	}
	return n
}

// wants is what they want together.
func (r *resource) wants() float64 {
	total := 0.0
	for _, b := range r.bands {
		total += b.wants.value()
	}
	return total
}

// capacity is what there is to share now; +Inf without limit.
func (r *resource) capacity(now time.Time) float64 {
	c := r.template.Capacity
	if r.up != nil {
		c = r.up.capacity(now, r.clients())
	}
	if !(c >= 0) { // not a number, too
		return 0
	}
	return c
}

// free is what one row may have of a capacity besides what all others have taken.
func (r *resource) free(now time.Time, i int32, capacity float64) float64 {
	if r.up != nil {
		capacity = min(capacity, r.up.most(now))
	}
	return max(0, capacity-r.has.without(r.rows.at(i).taken))
}

// shared reports whether the capacity is one for all together, and not one for each client, or none.
func (r *resource) shared() bool {
	kind := r.template.Algorithm.Kind
	return kind == FairShare || kind == ProportionalShare
}

// target is what a row gets of a capacity once everybody has what is theirs.
func (r *resource) target(i int32, capacity float64) float64 {
	kind, at := r.template.Algorithm.Kind, r.rows.at(i).claim
	total := 0.0
	if !r.strict || !r.shared() {
		for ; at != 0; at = r.claims.at(at).next {
			total += r.pool.target(kind, capacity, &r.claims, at)
		}
		return total
	}
	for _, b := range r.bands {
		if at == 0 {
			break
		}
		if n := r.claims.at(at); n.band == b.slot {
			total += b.target(kind, capacity, &r.claims, at)
			at = n.next
		}
		capacity = max(0, capacity-b.wants.value())
	}
	return total
}

// wanted is what a row wants.
func (r *resource) wanted(i int32) float64 {
	total := 0.0
	for at := r.rows.at(i).claim; at != 0; at = r.claims.at(at).next {
		total += r.claims.at(at).wants
	}
	return total
}

// most is what a row may have at most of a capacity, were it alone.
func (r *resource) most(i int32, capacity float64) float64 {
	switch r.template.Algorithm.Kind {
	case FairShare, ProportionalShare:
		return capacity
	case Static:
		return r.target(i, capacity)
	default:
		return math.Inf(1)
	}
}

// take books what a row has from now on.
func (r *resource) take(i int32, given, taken float64) {
	n := r.rows.at(i)
	r.has.change(n.taken, taken)
	n.given, n.taken = given, taken
}

// safe is what one client may use without a lease, and whether the template says so.
func (r *resource) safe(capacity float64) (amount float64, configured bool) {
	if s := r.template.Safe; s != nil {
		return *s, true
	}
	if math.IsInf(capacity, 1) {
		return -1, false
	}
	return capacity / float64(max(r.clients(), 1)), false
}

// excess is how far more is taken than there is to share.
func (r *resource) excess(capacity float64) float64 {
	if !r.shared() || math.IsInf(capacity, 1) {
		return 0
	}
	return max(0, r.has.value()-capacity)
}
