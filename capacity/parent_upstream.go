package capacity

import (
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	// shortestRefresh is the least time between two requests to a parent, and the shortest refresh interval.
	shortestRefresh = time.Second
	// longestRetry is the longest pause after failures; or the parent's refresh interval if that is shorter,
	// so that there are several attempts before its leases have run out.
	longestRetry = 15 * time.Second
	// unansweredRetry is after how long to ask again for resources that got no answer, from a parent that
	// does answer, and the interval of a parent that has never answered.
	unansweredRetry = 5 * time.Second
	// notableChange is the relative change of the wants on a resource from which the parent is asked at once,
	// and not only with the next refresh.
	notableChange = 0.1
	// perClientParameter names what one client may have of a STATIC resource, for servers below, which cannot
	// tell it from what they are granted.
	perClientParameter = "static_capacity"
)

// An upstream is what a server knows of its parent. Requests leave for two reasons: the regular refresh,
// which is for all resources at once, and single resources scheduled for a time of their own.
type upstream struct {
	supplies  map[string]*supply
	order     []*supply // the same, in the order in which they came
	scheduled []*supply // those with a time of their own
	unused    []string  // no client holds a lease on them, and the parent has not been told

	fullAskAt     time.Time // when to ask for all that are not scheduled; zero: never
	nextScheduled time.Time // when to ask for the first that is scheduled; zero: none is
	notBefore     time.Time // the earliest next request, after a failure

	askedAt        time.Time     // when the last request was sent
	outstanding    []*supply     // what it was for, until it is answered
	asksAll        bool          // it was for all that are not scheduled
	failures       int           // in a row
	parentInterval time.Duration // how often the parent wants to be asked
}

func newUpstream() *upstream {
	return &upstream{supplies: make(map[string]*supply), parentInterval: unansweredRetry}
}

// ensureSupply returns the supply of a resource, and makes it if there is none.
func (u *upstream) ensureSupply(resource string) *supply {
	if s := u.supplies[resource]; s != nil {
		return s
	}
	s := newSupply(resource)
	u.supplies[resource] = s
	u.order = append(u.order, s)
	return s
}

// noteChange looks at a resource whose leases have changed. The parent is asked at once about a new resource,
// about wants that changed notably, and when capacity that had to be given back has come back.
func (u *upstream) noteChange(now time.Time, s *supply, has, wants float64) {
	// The parent cut the lease below what clients held. Only when they hold no more than the lease may it
	// hand the difference to others, so it should know as soon as that is so.
	back := s.reportedHas > s.lease.Capacity && has <= s.lease.Capacity
	switch {
	case math.Abs(wants-s.reportedWants) > notableChange*max(s.reportedWants, 0):
		s.retryDelay = shortestRefresh
	case !back:
		return
	}
	u.askSoon(now, s)
}

// askSoon schedules a request for a resource as soon as possible after an instant.
func (u *upstream) askSoon(at time.Time, s *supply) {
	if s.askAt.IsZero() {
		u.scheduled = append(u.scheduled, s)
	}
	// Not within a second of the last request, nor while the parent is left alone after a failure.
	at = latest(at, u.askedAt.Add(shortestRefresh), u.notBefore)
	s.askAt = earliest(s.askAt, at)
	u.nextScheduled = earliest(u.nextScheduled, at)
}

// nextAsk returns when to ask; zero while there is nothing to ask.
func (u *upstream) nextAsk() time.Time {
	if u.fullAskAt.IsZero() || !u.nextScheduled.IsZero() && u.nextScheduled.Before(u.fullAskAt) {
		return u.nextScheduled
	}
	return u.fullAskAt
}

// takeDue returns the supplies to be asked for now, and unschedules them.
func (u *upstream) takeDue(now time.Time) []*supply {
	u.asksAll = !u.fullAskAt.IsZero() && !now.Before(u.fullAskAt)
	urgent := u.scheduled
	u.scheduled, u.nextScheduled = nil, time.Time{}
	var due []*supply
	for _, s := range urgent {
		if now.Before(s.askAt) {
			u.scheduled = append(u.scheduled, s)
			u.nextScheduled = earliest(u.nextScheduled, s.askAt)
			continue
		}
		s.askAt = time.Time{}
		due = append(due, s)
	}
	if !u.asksAll {
		return due
	}
	// A full refresh replaces the list: it has all resources except those that are scheduled for later, which
	// were deliberately put off.
	due = due[:0]
	for _, s := range u.order {
		if s.askAt.IsZero() {
			due = append(due, s)
		}
	}
	return due
}

// dropUnused forgets supplies that are of no use any more. Those that the parent knows of are to be released
// there.
func (u *upstream) dropUnused(unused []*supply) {
	if len(unused) == 0 {
		return
	}
	for _, s := range unused {
		delete(u.supplies, s.resource)
		if s.reportedWants >= 0 {
			u.unused = append(u.unused, s.resource)
		}
	}
	// One pass for all of them: a delete for each would take quadratic time when all clients leave at once.
	u.order = slices.DeleteFunc(u.order, func(s *supply) bool { return u.supplies[s.resource] != s })
	if len(u.order) == 0 {
		u.fullAskAt = time.Time{}
	}
}

// noteSent notes that a request is sent.
func (u *upstream) noteSent(now time.Time, asked []*supply) {
	u.outstanding = asked
	for _, s := range asked {
		s.outstanding = true
		u.askedAt = now
	}
}

// noteAnswer looks at what a resource was given. One whose wants have just changed and that gets less is
// asked for again soon, then less and less often: the parent may have to ask its own parent first, or to wait
// until others have given back.
func (u *upstream) noteAnswer(now time.Time, s *supply) {
	if s.retryDelay == 0 {
		return
	}
	if s.lease.Capacity >= s.reportedWants || s.retryDelay >= s.lease.Refresh {
		s.retryDelay = 0
		return
	}
	u.askSoon(now.Add(s.retryDelay), s)
	s.retryDelay *= 2
}

// planAfterAnswers plans the next request after answers. wait is the shortest interval among them; 0 if a
// parent that is there answered for nothing.
func (u *upstream) planAfterAnswers(now time.Time, wait time.Duration) (next time.Time) {
	u.failures, u.notBefore = 0, time.Time{}
	for _, s := range u.outstanding {
		again := unansweredRetry
		if s.leaseHolds(now) {
			again = min(again, askInterval(now, s.lease))
		}
		// This one got no answer, and must be renewed in time for its present lease.
		if s.outstanding {
			u.askSoon(now.Add(again), s)
		}
	}
	switch {
	case wait > 0:
		u.parentInterval = wait
		u.planFullAsk(now.Add(wait))
	case u.asksAll:
		u.planFullAsk(now.Add(unansweredRetry))
	}
	u.endRequest()
	return u.nextAsk()
}

// planAfterFailure plans the next request after one that got no answer.
func (u *upstream) planAfterFailure(now time.Time) {
	u.failures++
	// The parent's own interval bounds the pause, so that its lease survives some failures.
	u.notBefore = now.Add(min(retryPause(u.failures), u.parentInterval))
	for _, s := range u.outstanding {
		u.askSoon(u.notBefore, s)
	}
	u.nextScheduled = latest(u.nextScheduled, u.notBefore)
	if !u.fullAskAt.IsZero() {
		u.fullAskAt = latest(u.fullAskAt, u.notBefore)
	}
	u.endRequest()
}

// planFullAsk plans a request for all that is not scheduled, at an instant or earlier if that was planned.
func (u *upstream) planFullAsk(at time.Time) {
	// The request at hand was the planned one. Otherwise the plan stands, and the earlier time counts.
	if u.asksAll {
		u.fullAskAt = time.Time{}
	}
	u.fullAskAt = earliest(u.fullAskAt, at)
}

// endRequest notes that no request is on its way any more.
func (u *upstream) endRequest() {
	for _, s := range u.outstanding {
		s.outstanding = false
	}
	u.outstanding, u.asksAll = nil, false
}

// retryPause returns how long to leave the parent alone after a number of failures in a row.
func retryPause(failures int) time.Duration {
	grown := math.Pow(1.5, float64(min(failures, 20)-1))
	return min(time.Duration(float64(shortestRefresh)*grown), longestRetry)
}

// askInterval returns after how long to ask the parent again: at its refresh interval, and before half of the
// lease is over, so that the leases of clients, which end with it, are never short.
func askInterval(now time.Time, lease Lease) time.Duration {
	return max(min(lease.Refresh, lease.Expiry.Sub(now)/2), shortestRefresh)
}

// childAlgorithm returns how a server shares what its parent gave it for a length of time. Its clients
// refresh twice as often as it does itself.
func childAlgorithm(length time.Duration, g *Grant) Algorithm {
	a := Algorithm{Kind: FairShare, LeaseLength: length, RefreshInterval: g.Lease.Refresh}
	if g.Algorithm != nil {
		a = *g.Algorithm
	}
	// Halving the refresh interval at each level leaves time for a change to travel down before leases end.
	a.LeaseLength = max(a.LeaseLength.Truncate(time.Second), shortestRefresh)
	a.RefreshInterval = (a.RefreshInterval / 2).Truncate(time.Second)
	// A lease may be shorter than twice the least interval. Then its end bounds the interval.
	a.RefreshInterval = min(max(a.RefreshInterval, shortestRefresh), a.LeaseLength)
	return a
}

// childSafe returns the safe capacity of the parent's answer, nil if none is configured.
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

// perClient returns what the parameters say that one client may have of a STATIC resource.
func perClient(parameters []AlgorithmParameter) (each float64, ok bool) {
	for _, p := range parameters {
		if p.Name != perClientParameter {
			continue
		}
		each, err := strconv.ParseFloat(p.Value, 64)
		return each, err == nil && each >= 0
	}
	return 0, false
}

// earliest returns the earlier of two instants; the zero time means none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest returns the latest of some instants.
func latest(instants ...time.Time) time.Time { return slices.MaxFunc(instants, time.Time.Compare) }
