package capacity

import (
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	// shortestRefresh is between two questions to a parent, at least, and the shortest refresh interval.
	shortestRefresh = time.Second
	// longestRetry is the longest a parent is left alone that does not answer; or its refresh interval,
	// where that is shorter, so that there are some tries before its leases have run out.
	longestRetry = 15 * time.Second
	// unansweredRetry is after how long to ask again for resources that got no answer, from a parent that
	// is there; and how often one wants to be asked that has never answered.
	unansweredRetry = 5 * time.Second
	// notable is by what part the wants on a resource must change for the parent to hear of it at once,
	// and not only with the next refresh.
	notable = 0.1
	// perClientParameter names what one client may have of a STATIC resource, for servers below. Of
	// what those are granted they could not tell it.
	perClientParameter = "static_capacity"
)

// An upstream is what a server knows of its parent.
type upstream struct {
	supplies map[string]*supply
	order    []*supply // the same, in the order in which they came
	urgent   []*supply // those that have a time of their own
	unused   []string  // nobody has anything of them any more, and the parent was not told

	full  time.Time // when to ask for all that is not urgent; zero: nothing to ask for
	soon  time.Time // when to ask for the first that is urgent; zero: nothing is
	retry time.Time // not before, after a failure

	asked    time.Time     // when the last question went out
	open     []*supply     // what it was for, while there is no answer
	all      bool          // it was for all that is not urgent
	failures int           // in a row
	every    time.Duration // how often the parent wants to be asked
}

func newUpstream() *upstream {
	return &upstream{supplies: make(map[string]*supply), every: unansweredRetry}
}

// of is the supply of a resource, a new one if need be.
func (u *upstream) of(resource string) *supply {
	if s := u.supplies[resource]; s != nil {
		return s
	}
	s := newSupply(resource)
	u.supplies[resource] = s
	u.order = append(u.order, s)
	return s
}

// notice looks at a resource whose rows have changed. The parent hears at once of a new one, of wants that
// changed notably, and of capacity that was owed to it and has come back.
func (u *upstream) notice(now time.Time, s *supply, has, wants float64) {
	back := s.held > s.lease.Capacity && has <= s.lease.Capacity
	switch {
	case math.Abs(wants-s.told) > notable*max(s.told, 0):
		s.haste = shortestRefresh
	case !back:
		return
	}
	u.hurry(now, s)
}

// hurry has the parent asked about a resource as soon as may be after an instant.
func (u *upstream) hurry(at time.Time, s *supply) {
	if s.soon.IsZero() {
		u.urgent = append(u.urgent, s)
	}
	at = latest(at, u.asked.Add(shortestRefresh), u.retry)
	s.soon = first(s.soon, at)
	u.soon = first(u.soon, at)
}

// next is when to ask; zero while there is nothing to ask.
func (u *upstream) next() time.Time {
	if u.full.IsZero() || !u.soon.IsZero() && u.soon.Before(u.full) {
		return u.soon
	}
	return u.full
}

// due takes those out of the upstream that are to be asked for now.
func (u *upstream) due(now time.Time) []*supply {
	u.all = !u.full.IsZero() && !now.Before(u.full)
	urgent := u.urgent
	u.urgent, u.soon = nil, time.Time{}
	var due []*supply
	for _, s := range urgent {
		if now.Before(s.soon) {
			u.urgent = append(u.urgent, s)
			u.soon = first(u.soon, s.soon)
			continue
		}
		s.soon = time.Time{}
		due = append(due, s)
	}
	if !u.all {
		return due
	}
	due = due[:0]
	for _, s := range u.order {
		if s.soon.IsZero() {
			due = append(due, s)
		}
	}
	return due
}

// drop forgets supplies that are of no use any more; the parent is to be told.
func (u *upstream) drop(unused []*supply) {
	if len(unused) == 0 {
		return
	}
	for _, s := range unused {
		delete(u.supplies, s.resource)
		if s.told >= 0 {
			u.unused = append(u.unused, s.resource)
		}
	}
	u.order = slices.DeleteFunc(u.order, func(s *supply) bool { return u.supplies[s.resource] != s })
	if len(u.order) == 0 {
		u.full = time.Time{}
	}
}

// sent notes that a question goes out.
func (u *upstream) sent(now time.Time, asked []*supply) {
	u.open = asked
	for _, s := range asked {
		s.open = true
		u.asked = now
	}
}

// answered looks at what a resource was given. One whose wants have just changed and that gets less asks
// again soon, then later and later: the parent may have to ask its own parent first, or to wait until
// others have given back.
func (u *upstream) answered(now time.Time, s *supply) {
	if s.haste == 0 {
		return
	}
	if s.lease.Capacity >= s.told || s.haste >= s.lease.Refresh {
		s.haste = 0
		return
	}
	u.hurry(now.Add(s.haste), s)
	s.haste *= 2
}

// settled plans the next question after answers, the first of which wants to be asked again after a while.
// That is 0 when a parent that is there answered nothing.
func (u *upstream) settled(now time.Time, wait time.Duration) (next time.Time) {
	u.failures, u.retry = 0, time.Time{}
	for _, s := range u.open {
		again := unansweredRetry
		if s.holds(now) {
			again = min(again, interval(now, s.lease))
		}
		if s.open {
			u.hurry(now.Add(again), s)
		}
	}
	switch {
	case wait > 0:
		u.every = wait
		u.plan(now.Add(wait))
	case u.all:
		u.plan(now.Add(unansweredRetry))
	}
	u.close()
	return u.next()
}

// failed plans the next question after one that got no answer.
func (u *upstream) failed(now time.Time) {
	u.failures++
	u.retry = now.Add(min(pause(u.failures), u.every))
	for _, s := range u.open {
		u.hurry(u.retry, s)
	}
	u.soon = latest(u.soon, u.retry)
	if !u.full.IsZero() {
		u.full = latest(u.full, u.retry)
	}
	u.close()
}

// plan has all that is not urgent asked for at an instant, or before if that was planned.
func (u *upstream) plan(at time.Time) {
	if u.all {
		u.full = time.Time{}
	}
	u.full = first(u.full, at)
}

// close ends the question at hand.
func (u *upstream) close() {
	for _, s := range u.open {
		s.open = false
	}
	u.open, u.all = nil, false
}

// pause is how long to leave the parent alone after so many failures in a row.
func pause(failures int) time.Duration {
	grown := math.Pow(1.5, float64(min(failures, 20)-1))
	return min(time.Duration(float64(shortestRefresh)*grown), longestRetry)
}

// interval is after how long to ask the parent again: at its refresh interval, and before half of the
// lease is over, so that the leases of clients, which end with it, are never short.
func interval(now time.Time, lease Lease) time.Duration {
	return max(min(lease.Refresh, lease.Expiry.Sub(now)/2), shortestRefresh)
}

// childAlgorithm is how a server shares what its parent gave it for so long. Its clients refresh twice as
// often as it does itself.
func childAlgorithm(length time.Duration, g *Grant) Algorithm {
	a := Algorithm{Kind: FairShare, LeaseLength: length, RefreshInterval: g.Lease.Refresh}
	if g.Algorithm != nil {
		a = *g.Algorithm
	}
	a.LeaseLength = max(a.LeaseLength.Truncate(time.Second), shortestRefresh)
	a.RefreshInterval = (a.RefreshInterval / 2).Truncate(time.Second)
	a.RefreshInterval = min(max(a.RefreshInterval, shortestRefresh), a.LeaseLength)
	return a
}

// childSafe is the safe capacity of the parent's answer, nil when none is configured.
func childSafe(g *Grant) *float64 {
	safe := g.Safe
	switch {
	case !g.SafeConfigured || math.IsNaN(safe):
		return nil
	case safe < 0 || math.IsInf(safe, 1):
		safe = -1
	}
	return &safe
}

// perClient is what the parameters say that one client may have of a STATIC resource.
func perClient(parameters []Parameter) (each float64, ok bool) {
	for _, p := range parameters {
		if p.Name != perClientParameter {
			continue
		}
		each, err := strconv.ParseFloat(p.Value, 64)
		return each, err == nil && each >= 0
	}
	return 0, false
}

// first is the earlier of two instants, the zero time being none.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest is the last of some instants.
func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}
