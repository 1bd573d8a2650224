package capacity

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// maxRequestDelay is the longest time by which a request may be overtaken by a later one of the same server.
const maxRequestDelay = 2 * time.Minute

// reportsLearning reports whether a requesting server does not know all of its clients yet.
func reportsLearning(q *Request) bool { return q.Has.Refresh == 0 && !q.Has.Expiry.IsZero() }

// isLate reports whether a request was sent before one that has been answered already, or is a duplicate of
// that one. Its connection may have broken on the way, and what was sent still arrives; or a proxy repeats
// it.
func (n *leaseRecord) isLate(q *Request) bool {
	// The refresh interval field of a server's request carries for how long it has known all its clients,
	// which only grows: it serves as a sequence number in seconds.
	behind := time.Duration(n.knownFor)*time.Second - q.Has.Refresh
	// Requests within one second look alike. A duplicate must not lower what the server keeps, so an equal
	// number is late, unless the server never counted up: then it does not send this number at all.
	if behind == 0 {
		return n.sendsKnownFor
	}
	return behind > 0 && behind < maxRequestDelay // a server that started again is further behind
}

// amountKept returns how much of the capacity the clients of a server keep, whatever it is granted: what it
// says they hold. It is no less than before where they may hold more than that.
func (s *Server) amountKept(now time.Time, r *resource, i int32, q *Request) float64 {
	if q.Has.Expiry.IsZero() {
		return 0
	}
	n := r.records.at(i)
	before := n.taken
	holds := 0.0
	if c := q.Has.Capacity; c > 0 { // not if it is no number
		holds = c
	}
	// While this server learns, a first report is the only source there is, so it may exceed what was
	// recorded. Later a server cannot have more than it was given here.
	if r.awaitsParent() || s.isLearning(s.nanosecondsAt(now), r) { // it does not know which client has what
		holds = min(validHas(q, now), r.credibleHas(i, r.capacityAt(now)))
	} else {
		holds = min(holds, before)
	}
	// Such a report may leave clients out. Trusting a smaller number would hand their share to others.
	if reportsLearning(q) || n.isLate(q) {
		return max(holds, before)
	}
	knows := uint32(min(q.Has.Refresh/time.Second, math.MaxUint32))
	n.sendsKnownFor = n.sendsKnownFor || n.knownFor > 0 && knows > n.knownFor
	n.knownFor = knows
	return holds
}

// algorithmForChildren returns the algorithm that is sent to servers below. For STATIC it carries what one
// client may have, because a server cannot derive that from what it is granted in total.
func (r *resource) algorithmForChildren() *Algorithm {
	a := &r.template.Algorithm
	if a.Kind != Static {
		return a
	}
	// The template's own parameters are shared with all other grants, so they are cloned before the change.
	with := *a
	with.Parameters = slices.DeleteFunc(slices.Clone(a.Parameters), func(p AlgorithmParameter) bool {
		return p.Name == perClientParameter
	})
	each := strconv.FormatFloat(r.template.Capacity, 'g', -1, 64)
	with.Parameters = append(with.Parameters, AlgorithmParameter{perClientParameter, each})
	return &with
}
