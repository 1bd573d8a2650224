package capacity

import (
	"math"
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

// maxHeld returns how much of it may be held at once: no more than what was reported to the parent, as long
// as that has not answered. It may have given the rest to others.
func (u *supply) maxHeld(now time.Time) float64 {
	if !u.leaseHolds(now) {
		return math.Inf(1)
	}
	return u.reserved
}

// leaseEnd returns when leases of clients end at the latest: no lease outlives the parent's. It is zero once
// the parent's has run out, which is then no bound any more.
func (u *supply) leaseEnd(now time.Time) time.Time {
	if !u.leaseHolds(now) {
		return time.Time{}
	}
	return u.lease.Expiry
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
