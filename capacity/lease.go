package capacity

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

const (
	// longestLease bounds leases, and so the count of nanoseconds: some 36 years.
	longestLease = time.Duration(1 << 60)
	// longestClaim bounds how far in the future a client may say its lease ends, while nobody here knows
	// how long leases are.
	longestClaim = time.Hour
	// negligible is by what part a grant may be below what its holder should have, because of rounding.
	negligible = 1e-9
)

// Lease decides what a client gets, and books it. The strings of the request are kept.
//
// Once all have asked again that hold more than their share, everybody gets theirs. Until then a grant is
// bounded by what is free, so at no time is more given than there is.
//
// It fails with [ErrNotMaster], with CodeUnavailable before there are templates, and with CodeExhausted at
// one of the limits.
func (s *Server) Lease(now time.Time, client string, q *Request) (Grant, error) {
	if !s.Leading(now) {
		return Grant{}, ErrNotMaster
	}
	demands := s.cleaned(q.Demands)
	r, err := s.resource(q.Resource)
	if err != nil {
		return Grant{}, err
	}
	r.expire(s.at(now), mostForgottenByLease)
	i, known := r.find(client)
	if known && q.Server && learning(q) {
		demands = s.remembered(r, i, demands)
	}
	if err := s.room(r, i, known, demands); err != nil {
		s.settle(now, r)
		return Grant{}, err
	}
	if !known {
		i = r.add(client)
	}
	r.enter(i, demands)
	g := s.decide(now, r, i, q)
	if !q.Server || !learning(q) {
		s.reported(client, q.Resource)
	}
	s.settle(now, r)
	return g, nil
}

// resource is the resource with a name, a new one if need be.
func (s *Server) resource(id string) (*resource, error) {
	if r := s.resources[id]; r != nil {
		return r, nil
	}
	count := len(s.resources)
	if s.up != nil { // of those that are gone the parent may not know it yet
		count = max(count, len(s.up.supplies))
	}
	if count >= s.limits.Resources {
		return nil, gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s is new, and the server has %d, want at most %[2]d", quote(id), s.limits.Resources)
	}
	r := newResource(id)
	if s.up != nil {
		r.up = s.up.of(id)
		r.adopt(r.up.template)
	} else if t := s.find(id); t != nil {
		r.adopt(t)
	} else {
		return nil, gatehouse.Errorf(gatehouse.CodeUnavailable,
			"resource %s has no template, want the server configured", quote(id))
	}
	s.resources[id] = r
	s.inOrder.add(r)
	return r, nil
}

// room fails when the limits do not allow the demands, of the row that is known or of a new one.
func (s *Server) room(r *resource, i int32, known bool, demands []Demand) error {
	if n := len(r.bands) + r.newBands(demands); n > s.limits.Priorities {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: %d priorities, want at most %d at once", quote(r.id), n, s.limits.Priorities)
	}
	more := len(demands)
	switch {
	case known:
		more -= r.demandsOf(i)
	case r.leases() >= s.limits.Leases:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s has %d leases, want at most %[2]d at once", quote(r.id), s.limits.Leases)
	case s.leases >= s.limits.LeasesTotal:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: the server has %d leases, want at most %[2]d at once", quote(r.id),
			s.limits.LeasesTotal)
	}
	if s.lacksMemory(r, known, more) {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: the server has no memory for more, want a lease later", quote(r.id))
	}
	if more > 0 && s.held+more > s.limits.Demands {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: %d demands on the server, want at most %d at once", quote(r.id), s.held+more,
			s.limits.Demands)
	}
	return nil
}

// decide finds what a row gets, whose demands are entered, and books it.
func (s *Server) decide(now time.Time, r *resource, i int32, q *Request) Grant {
	capacity, wants := r.capacity(now), r.wanted(i)
	claimed := claimedBy(q, now)
	length := min(max(r.template.Algorithm.LeaseLength, time.Second), longestLease)
	var given, target float64
	at := s.at(now)
	until, learns := s.learns(at, r)
	switch {
	case r.unsupplied():
		given = min(claimed, wants)
		target = given
		if given > 0 {
			length = min(q.Has.Expiry.Sub(now), longestClaim)
		}
	case learns:
		given = min(claimed, wants, r.believed(i, capacity))
		target = given
		if r.up != nil && !r.up.holds(now) && given > 0 {
			length = min(length, q.Has.Expiry.Sub(now)) // the parent may give it to others from then on
		}
	default:
		target = min(r.target(i, capacity), wants)
		given = target
		if r.shared() {
			given = min(target, r.free(now, i, capacity))
		}
	}
	taken := given
	if q.Server {
		taken = max(given, s.keeps(now, r, i, q))
	}
	r.take(i, given, taken)
	r.rows.at(i).server = q.Server
	length = r.book(now, at, i, length)

	g := Grant{Resource: q.Resource, Algorithm: &r.template.Algorithm}
	if q.Server {
		g.Algorithm = r.passed()
	}
	g.Lease = Lease{Expiry: now.Add(length), Capacity: given}
	g.Lease.Refresh = r.refresh(length, given < target*(1-negligible))
	g.Safe, g.SafeConfigured = r.safe(capacity)
	if learns {
		g.Learning = time.Duration(until - at)
	}
	return g
}

// claimedBy is how much the holder says it has by a lease that has not run out.
func claimedBy(q *Request, now time.Time) float64 {
	if c := q.Has.Capacity; c > 0 && q.Has.Expiry.After(now) {
		return min(c, mostWants)
	}
	return 0
}

// book notes when a row runs out: after length, and not after the parent's lease. It returns how long
// that is.
func (r *resource) book(now time.Time, at int64, i int32, length time.Duration) time.Duration {
	if r.up != nil {
		if until := r.up.until(now); !until.IsZero() {
			length = min(length, until.Sub(now))
		}
	}
	r.expect(i, at+int64(length))
	return length
}

// refresh is after how long the holder should ask again: in time to do so before its lease, which has so
// long to go, is over. Who gets less than its share because others have not given it back yet asks
// twice as often.
func (r *resource) refresh(left time.Duration, short bool) time.Duration {
	every := r.template.Algorithm.RefreshInterval
	if short {
		every /= 2
	}
	every = min(every, left-time.Second)
	return max(every.Truncate(time.Second), time.Second)
}

// unsupplied reports whether this server's parent has not said anything about the resource yet.
func (r *resource) unsupplied() bool { return r.up != nil && !r.up.answered() }
