package capacity

import (
	"time"
)

// A ResourceStatus describes one resource.
type ResourceStatus struct {
	ID       string
	Template *Template // how it is shared; not to be changed

	Capacity    float64 // at present; +Inf without limit
	Has, Wants  float64 // the sums over all leases; Has is what counts as taken
	Excess      float64 // how far Has is above Capacity, else 0
	Clients     int64   // behind all leases
	Leases      int64
	Learning    bool      // repeats what clients say they hold
	LearnsUntil time.Time // at the latest, while Learning

	// ParentExpiry is when the lease of this server's own parent ends; zero without one.
	ParentExpiry time.Time
}

// A Holding is one lease with its holder.
type Holding struct {
	Client  string
	Lease   Lease
	Demands []Demand
	Server  bool    // the holder has clients of its own
	Taken   float64 // what counts as taken: more than the lease while a server's clients hold more
}

// Find describes a resource. It takes time in proportion to its priorities.
func (s *Server) Find(now time.Time, resource string) (ResourceStatus, bool) {
	r := s.inspectResource(now, resource)
	if r == nil {
		return ResourceStatus{}, false
	}
	return s.describeResource(now, r), true
}

// Resources describes at most most resources whose names come after a name, in the order of names.
func (s *Server) Resources(now time.Time, after string, most int) []ResourceStatus {
	if !s.Leading(now) {
		return nil
	}
	s.Expire(now)
	page := s.byName.pageAfter(after, most)
	all := make([]ResourceStatus, 0, len(page))
	for _, r := range page {
		all = append(all, s.describeResource(now, r))
	}
	return all
}

// Leases lists at most most leases on a resource whose clients come after a name, in the order of names.
func (s *Server) Leases(now time.Time, resource, after string, most int) []Holding {
	r := s.inspectResource(now, resource)
	if r == nil {
		return nil
	}
	page := r.byName.pageAfter(after, most)
	all := make([]Holding, 0, len(page))
	for _, i := range page {
		all = append(all, s.describeLease(now, r, i))
	}
	return all
}

// inspectResource returns a resource after removing what has run out, as far as one Expire goes; nil if there
// is none.
func (s *Server) inspectResource(now time.Time, resource string) *resource {
	if !s.Leading(now) {
		return nil
	}
	s.Expire(now)
	return s.resources[resource]
}

func (s *Server) describeResource(now time.Time, r *resource) ResourceStatus {
	at, capacity := s.nanosecondsAt(now), r.capacityAt(now)
	t := ResourceStatus{
		ID: r.id, Template: r.template, Capacity: capacity, Has: r.has.value(), Wants: r.totalWants(),
		Excess: r.excessAbove(capacity), Clients: r.clientCount(), Leases: int64(r.leaseCount()),
	}
	if until, is := s.learningEnd(at, r.id, r.template); is {
		t.Learning, t.LearnsUntil = true, now.Add(time.Duration(until-at))
	}
	// The placeholder template has no meaning for a reader: nothing is known of the capacity yet.
	if r.awaitsParent() {
		t.Capacity, t.Learning = 0, true
	} else if r.supply != nil {
		t.ParentExpiry = r.supply.lease.Expiry
	}
	return t
}

func (s *Server) describeLease(now time.Time, r *resource, i int32) Holding {
	n := r.records.at(i)
	// Times inside are relative to the epoch; the caller gets an instant of its own clock.
	left := time.Duration(n.expiry - s.nanosecondsAt(now))
	h := Holding{Client: n.client, Server: n.server, Taken: n.taken}
	h.Lease = Lease{Expiry: now.Add(left), Refresh: r.template.Algorithm.RefreshInterval, Capacity: n.given}
	for at := n.firstDemand; at != 0; at = r.demands.at(at).next {
		c := r.demands.at(at)
		d := Demand{Priority: r.bandOf(c).priority, Clients: int64(c.clients), Wants: c.wants}
		h.Demands = append(h.Demands, d)
	}
	return h
}
