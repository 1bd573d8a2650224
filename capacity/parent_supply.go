package capacity

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// awaitingParentTemplate is how a resource is shared while the parent has not answered for it. Its clients
// ask every second, to get the answer soon.
func awaitingParentTemplate() *Template {
	return &Template{
		Glob: everything, Description: "the parent has not answered yet",
		Algorithm: Algorithm{
			Kind: FairShare, LeaseLength: 20 * time.Second, RefreshInterval: shortestRefresh,
		},
	}
}

// A supply is what a parent gives of one resource, and what was reported to it.
type supply struct {
	resource   string
	lease      Lease         // from the parent; no expiry before its first answer
	clockAhead time.Duration // the parent's clock
	template   *Template     // made of the last answer; unsupplied before the first

	// reserved is how much the clients may hold together until the parent has answered: what it
	// was told they hold at most. +Inf while no request is on its way.
	reserved float64

	reportedWants float64       // what its clients wanted in the last request; negative: none was sent
	reportedHas   float64       // what they held by the last request
	retryDelay    time.Duration // until the next request while they get less than they want; 0: no retry
	askAt         time.Time     // when to ask for it alone; zero: with all others
	outstanding   bool          // the parent was asked, and has not answered
}

func newSupply(resource string) *supply {
	return &supply{
		resource: resource, template: awaitingParentTemplate(), reserved: math.Inf(1), reportedWants: -1,
	}
}

// hasAnswer reports whether the parent has ever answered for the resource.
func (u *supply) hasAnswer() bool { return !u.lease.Expiry.IsZero() }

// handover is how long before its end a lease of the parent counts as over; a quarter of it for short ones.
// In normal operation it never comes to that. When the parent is lost, it makes sure that clients that
// refresh every second learn what they may use without the parent before their leases, which end with the
// parent's, have run out.
const handover = 2500 * time.Millisecond

// leaseHolds reports whether the parent's lease has not run out.
func (u *supply) leaseHolds(now time.Time) bool {
	return u.lease.Expiry.After(now.Add(min(handover, u.template.Algorithm.LeaseLength/4)))
}

// capacityAt returns what the clients may have together. Once the parent's lease has run out that is what
// they may use without one: the safe capacity of each, or what was granted last if none is configured.
func (u *supply) capacityAt(now time.Time, clients int64) float64 {
	safe := u.template.Safe
	switch {
	case u.template.Algorithm.Kind == Static || u.leaseHolds(now) || safe == nil:
		return u.template.Capacity
	case *safe < 0:
		return math.Inf(1)
	default:
		return *safe * float64(clients)
	}
}

// buildRequest makes the request for the parent, and reserves what it reports. known is for how long all
// holders have been known; 0 says that there may be some that have not reported yet.
func (u *supply) buildRequest(now time.Time, known time.Duration, has, wants float64) Request {
	r := Request{Resource: u.resource, Server: true}
	r.Has = Lease{Expiry: u.lease.Expiry, Refresh: known, Capacity: has}
	if !u.leaseHolds(now) {
		// What they hold was given by this server, and may last as long as any lease.
		r.Has.Expiry = now.Add(u.template.Algorithm.LeaseLength)
	}
	r.Has.Expiry = r.Has.Expiry.Add(u.clockAhead)
	switch {
	case known == 0 || !u.hasAnswer():
		r.Has.Refresh = 0
	// Clients may take more before the answer is here. The report covers that in advance: what is reserved
	// stays taken at the parent, and what clients hold never exceeds it.
	case u.leaseHolds(now):
		r.Has.Capacity = max(has, min(u.lease.Capacity, u.reserved, wants))
		u.reserved = r.Has.Capacity
	}
	u.reportedWants, u.reportedHas = wants, r.Has.Capacity
	return r
}

// applyGrant makes the answer to a request, asked at an instant, what the clients share.
func (u *supply) applyGrant(asked time.Time, g *Grant) {
	ends := g.Lease.Expiry.Add(-g.Ahead)
	algorithm := childAlgorithm(ends.Sub(asked), g)
	// A parent whose clock is ahead, and that does not say so, still counts from when it was asked.
	// A parent whose clock is ahead, and that does not say so, still counts from when it was asked. Without
	// this correction the children would use its lease for too long.
	latest := asked.Add(algorithm.LeaseLength)
	over := max(ends.Sub(latest), 0)
	// An answer without an expiry is a lease of the usual length.
	if g.Lease.Expiry.IsZero() {
		ends, over = latest, 0
	}
	u.lease, u.clockAhead = g.Lease, g.Ahead+over
	u.lease.Expiry = ends.Add(-over)
	if !(u.lease.Capacity >= 0) { // not a number, too
		u.lease.Capacity = 0
	}
	u.outstanding, u.reserved = false, math.Inf(1)
	u.template = &Template{
		Glob: u.resource, Capacity: u.lease.Capacity, Safe: childSafe(g), Algorithm: algorithm,
		Description: "from the parent",
	}
	if each, ok := perClient(algorithm.Parameters); ok && algorithm.Kind == Static {
		u.template.Capacity = each
	}
}

// credibleHas returns how much a lease can be said to have in learning mode. The amount a parent gave is no
// bound: it was given for the clients that have reported so far.
func (r *resource) credibleHas(i int32, capacity float64) float64 {
	if r.supply != nil {
		return math.Inf(1)
	}
	return r.maxAlone(i, capacity)
}

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
