package capacity

import (
	"math"
	"time"
)

// unsupplied is how a resource is shared of which the parent has not said anything yet. Its clients ask
// every second, to hear soon what the parent said.
func unsupplied() *Template {
	return &Template{
		Glob: everything, Description: "the parent has not answered yet",
		Algorithm: Algorithm{
			Kind: FairShare, LeaseLength: 20 * time.Second, RefreshInterval: shortestRefresh,
		},
	}
}

// A supply is what a parent gives of one resource, and what it was told.
type supply struct {
	resource string
	lease    Lease         // from the parent; no expiry before its first answer
	ahead    time.Duration // the parent's clock
	template *Template     // made of the last answer; unsupplied before the first

	// promised is how much the clients may hold together until the parent has answered: what it
	// was told they hold at most. +Inf while no question is open.
	promised float64

	told  float64       // what its clients wanted when the parent was asked last; negative: never asked
	held  float64       // what the parent was told that they hold
	haste time.Duration // until when to ask again while they get less than they want; 0: no haste
	soon  time.Time     // when to ask for it before all others are; zero: not
	open  bool          // the parent was asked, and has not answered
}

func newSupply(resource string) *supply {
	return &supply{resource: resource, template: unsupplied(), promised: math.Inf(1), told: -1}
}

// answered reports whether the parent ever said anything about the resource.
func (u *supply) answered() bool { return !u.lease.Expiry.IsZero() }

// handover is how long before its end a lease of the parent's counts as over; a quarter of short ones. In
// calm it never comes to that. When the parent is lost, clients that refresh every second are so given what
// they may have without it before their leases, which end with the parent's, have run out.
const handover = 2500 * time.Millisecond

// holds reports whether the parent's lease has not run out.
func (u *supply) holds(now time.Time) bool {
	return u.lease.Expiry.After(now.Add(min(handover, u.template.Algorithm.LeaseLength/4)))
}

// capacity is what the clients may have together. When the parent's lease has run out that is what
// they may use without one: the safe capacity of each, and where none is configured what was granted last.
func (u *supply) capacity(now time.Time, clients int64) float64 {
	safe := u.template.Safe
	switch {
	case u.template.Algorithm.Kind == Static || u.holds(now) || safe == nil:
		return u.template.Capacity
	case *safe < 0:
		return math.Inf(1)
	default:
		return *safe * float64(clients)
	}
}

// most is how much of it may be held at once: no more than what the parent was told, as long as it has
// not answered. It may have given the rest to others.
func (u *supply) most(now time.Time) float64 {
	if !u.holds(now) {
		return math.Inf(1)
	}
	return u.promised
}

// until is when leases of clients end at the latest; no lease outlives the parent's. It is zero when
// the parent's has run out, and no bound any more.
func (u *supply) until(now time.Time) time.Time {
	if !u.holds(now) {
		return time.Time{}
	}
	return u.lease.Expiry
}

// ask makes the question for the parent, and the promise that goes with it. All holders are known for so
// long; 0 says that there may be some who have not reported yet.
func (u *supply) ask(now time.Time, known time.Duration, has, wants float64) Request {
	r := Request{Resource: u.resource, Server: true}
	r.Has = Lease{Expiry: u.lease.Expiry, Refresh: known, Capacity: has}
	if !u.holds(now) {
		// What they hold was given here, and may last as long as any lease.
		r.Has.Expiry = now.Add(u.template.Algorithm.LeaseLength)
	}
	r.Has.Expiry = r.Has.Expiry.Add(u.ahead)
	switch {
	case known == 0 || !u.answered():
		r.Has.Refresh = 0
	case u.holds(now):
		// Clients may take some more of it before the answer is here.
		r.Has.Capacity = max(has, min(u.lease.Capacity, u.promised, wants))
		u.promised = r.Has.Capacity
	}
	u.told, u.held = wants, r.Has.Capacity
	return r
}

// take makes the answer to a question asked at an instant what the clients share.
func (u *supply) take(asked time.Time, g *Grant) {
	ends := g.Lease.Expiry.Add(-g.Ahead)
	algorithm := childAlgorithm(ends.Sub(asked), g)
	// A parent whose clock is ahead, and that does not say so, still counts from when it was asked.
	latest := asked.Add(algorithm.LeaseLength)
	over := max(ends.Sub(latest), 0)
	if g.Lease.Expiry.IsZero() {
		ends, over = latest, 0
	}
	u.lease, u.ahead = g.Lease, g.Ahead+over
	u.lease.Expiry = ends.Add(-over)
	if !(u.lease.Capacity >= 0) { // not a number, too
		u.lease.Capacity = 0
	}
	u.open, u.promised = false, math.Inf(1)
	u.template = &Template{
		Glob: u.resource, Capacity: u.lease.Capacity, Safe: childSafe(g), Algorithm: algorithm,
		Description: "from the parent",
	}
	if each, ok := perClient(algorithm.Parameters); ok && algorithm.Kind == Static {
		u.template.Capacity = each
	}
}

// believed is how much a row can be said to have while the resource learns. Of what a parent gives that
// is no bound: it was given for the clients that have reported so far.
func (r *resource) believed(i int32, capacity float64) float64 {
	if r.up != nil {
		return math.Inf(1)
	}
	return r.most(i, capacity)
}
