package capacity

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

const (
	// maxLeaseLength bounds leases, and so the count of nanoseconds: some 36 years.
	maxLeaseLength = time.Duration(1 << 60)
	// maxHasLength bounds how far in the future a client may say its lease ends, while this server does not
	// know how long leases are.
	maxHasLength = time.Hour
	// negligible is the part by which a grant may be below what its holder should have, because of rounding.
	negligible = 1e-9
)

// Lease decides what a client gets, and records it. The strings of the request are kept.
//
// Once all clients that hold more than their share have asked again, every client gets its share. Until then
// a grant is bounded by what is free, so that at no time more is given than there is.
//
// It fails with [ErrNotMaster], with CodeUnavailable before there are templates, and with CodeExhausted at
// one of the limits.
func (s *Server) Lease(now time.Time, client string, q *Request) (Grant, error) {
	if !s.Leading(now) {
		return Grant{}, ErrNotMaster
	}
	// The order matters from here on: what has run out is removed before limits are checked, and limits are
	// checked before anything is changed, so a refused request leaves no trace.
	demands := s.cleanDemands(q.Demands)
	r, err := s.ensureResource(q.Resource)
	if err != nil {
		return Grant{}, err
	}
	r.expireLeases(s.nanosecondsAt(now), maxExpiredPerLease)
	i, known := r.findLease(client)
	// A server that has just begun may not have heard of all of its clients yet.
	if known && q.Server && reportsLearning(q) {
		demands = s.keepEarlierDemands(r, i, demands)
	}
	// updateResource also runs on failure: a resource made for this request alone is removed again.
	if err := s.checkLimits(r, i, known, demands); err != nil {
		s.updateResource(now, r)
		return Grant{}, err
	}
	if !known {
		i = r.addLease(client)
	}
	r.setDemands(i, demands)
	g := s.decideGrant(now, r, i, q)
	// A server in learning mode has not really said what it holds.
	if !q.Server || !reportsLearning(q) {
		s.noteReported(client, q.Resource)
	}
	s.updateResource(now, r)
	return g, nil
}

// ensureResource returns the resource with a name, and makes it if there is none.
func (s *Server) ensureResource(id string) (*resource, error) {
	if r := s.resources[id]; r != nil {
		return r, nil
	}
	count := len(s.resources)
	if s.parent != nil { // of those that are gone the parent may not know it yet
		count = max(count, len(s.parent.supplies))
	}
	if count >= s.limits.Resources {
		return nil, gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s is new, and the server has %d, want at most %[2]d", quote(id), s.limits.Resources)
	}
	// With a parent the template comes from the parent, one for each resource; otherwise the first match
	// counts.
	r := newResource(id)
	if s.parent != nil {
		r.supply = s.parent.ensureSupply(id)
		r.setTemplate(r.supply.template)
	} else if t := s.findTemplate(id); t != nil {
		r.setTemplate(t)
	} else {
		return nil, gatehouse.Errorf(gatehouse.CodeUnavailable,
			"resource %s has no template, want the server configured", quote(id))
	}
	s.resources[id] = r
	s.byName.add(r)
	return r, nil
}

// checkLimits fails if the limits do not allow the demands, of a known lease or of a new one.
func (s *Server) checkLimits(r *resource, i int32, known bool, demands []Demand) error {
	if n := len(r.bands) + r.countNewBands(demands); n > s.limits.Priorities {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: %d priorities, want at most %d at once", quote(r.id), n, s.limits.Priorities)
	}
	// A known lease replaces its demands, so only the additional ones count. A new one also needs room for a
	// lease.
	more := len(demands)
	switch {
	case known:
		more -= r.countDemands(i)
	case r.leaseCount() >= s.limits.Leases:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s has %d leases, want at most %[2]d at once", quote(r.id), s.limits.Leases)
	case s.leaseCount >= s.limits.LeasesTotal:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: the server has %d leases, want at most %[2]d at once", quote(r.id),
			s.limits.LeasesTotal)
	}
	if s.lacksMemory(r, known, more) {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: the server has no memory for more, want a lease later", quote(r.id))
	}
	if more > 0 && s.demandCount+more > s.limits.Demands {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"resource %s: %d demands on the server, want at most %d at once", quote(r.id), s.demandCount+more,
			s.limits.Demands)
	}
	return nil
}

// decideGrant decides what a lease gets, whose demands are set, and records it.
//
// target is what the lease gets once every client has its share, given what it gets now. There are three
// cases:
//
//	no answer from the parent yet    repeat what the client says it has
//	learning mode                    repeat that too, up to the capacity
//	otherwise                        the share, as far as it is free
func (s *Server) decideGrant(now time.Time, r *resource, i int32, q *Request) Grant {
	capacity, wants, has := r.capacityAt(now), r.leaseWants(i), validHas(q, now)
	length := min(max(r.template.Algorithm.LeaseLength, time.Second), maxLeaseLength)
	var given, target float64
	at := s.nanosecondsAt(now)
	until, learns := s.learningEnd(at, r.id, r.template)
	switch {
	case r.awaitsParent():
		// Nothing is known of the capacity, and not even for how long leases are given: the lease keeps the
		// end its holder reported, within an hour.
		given = min(has, wants)
		target = given
		if given > 0 {
			length = min(q.Has.Expiry.Sub(now), maxHasLength)
		}
	case learns:
		given = min(has, wants, r.credibleHas(i, capacity))
		target = given
		// The clients reported a lease that was given by the master before, within the parent's. Once the
		// parent's lease has run out, this server cannot prolong theirs.
		if r.supply != nil && !r.supply.leaseHolds(now) && given > 0 {
			length = min(length, q.Has.Expiry.Sub(now)) // the parent may give it to others from then on
		}
	default:
		// For a shared capacity the share may still be in the hands of others, which give it back with their
		// next refresh. Static shares and none need not wait for others.
		target = min(r.leaseTarget(i, capacity), wants)
		given = target
		if r.sharesCapacity() {
			given = min(target, r.freeFor(now, i, capacity))
		}
	}
	// What the clients of a server hold stays taken even if the server is granted less: they will get their
	// smaller leases later.
	taken := given
	if q.Server {
		taken = max(given, s.amountKept(now, r, i, q))
	}
	r.setTaken(i, given, taken)
	r.records.at(i).server = q.Server
	length = r.setLeaseEnd(now, at, i, length)

	g := Grant{Resource: q.Resource, Algorithm: &r.template.Algorithm}
	if q.Server {
		g.Algorithm = r.algorithmForChildren()
	}
	g.Lease = Lease{Expiry: now.Add(length), Capacity: given}
	g.Lease.Refresh = r.refreshInterval(length, given < target*(1-negligible))
	g.Safe, g.SafeConfigured = r.safeCapacity(capacity)
	if learns {
		g.Learning = time.Duration(until - at)
	}
	return g
}

// validHas returns how much the holder says it has by a lease that has not run out.
func validHas(q *Request, now time.Time) float64 {
	if c := q.Has.Capacity; c > 0 && q.Has.Expiry.After(now) {
		return min(c, maxWants)
	}
	return 0
}

// setLeaseEnd sets when a lease runs out: after length, and not after the parent's lease. It returns how long
// that is.
func (r *resource) setLeaseEnd(now time.Time, at int64, i int32, length time.Duration) time.Duration {
	// Once the parent's lease has run out, it is no bound any more.
	if u := r.supply; u != nil && u.leaseHolds(now) {
		length = min(length, u.lease.Expiry.Sub(now))
	}
	r.setExpiry(i, at+int64(length))
	return length
}

// refreshInterval returns after how long the holder should ask again: in time to do so before its lease, of
// which left remains, is over. A holder that gets less than its share because others have not given it back
// yet asks twice as often.
func (r *resource) refreshInterval(left time.Duration, short bool) time.Duration {
	every := r.template.Algorithm.RefreshInterval
	if short {
		every /= 2
	}
	every = min(every, left-time.Second)
	return max(every.Truncate(time.Second), time.Second)
}

// awaitsParent reports whether this server's parent has not answered for the resource yet.
func (r *resource) awaitsParent() bool { return r.supply != nil && !r.supply.hasAnswer() }
