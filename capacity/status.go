package capacity

import (
	"time"
)

// A Status describes one resource.
type Status struct {
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
func (s *Server) Find(now time.Time, resource string) (Status, bool) {
	r := s.inspect(now, resource)
	if r == nil {
		return Status{}, false
	}
	return s.status(now, r), true
}

// Resources describes up to most resources whose names come after a name, in the order of names.
func (s *Server) Resources(now time.Time, after string, most int) []Status {
	if !s.Leading(now) {
		return nil
	}
	s.Expire(now)
	page := s.inOrder.after(after, most)
	all := make([]Status, 0, len(page))
	for _, r := range page {
		all = append(all, s.status(now, r))
	}
	return all
}

// Leases lists up to most leases on a resource whose clients come after a name, in the order of names.
func (s *Server) Leases(now time.Time, resource, after string, most int) []Holding {
	r := s.inspect(now, resource)
	if r == nil {
		return nil
	}
	page := r.inOrder.after(after, most)
	all := make([]Holding, 0, len(page))
	for _, i := range page {
		all = append(all, s.holding(now, r, i))
	}
	return all
}

// inspect is a resource, without what has run out as far as one Expire comes; nil when there is none.
func (s *Server) inspect(now time.Time, resource string) *resource {
	if !s.Leading(now) {
		return nil
	}
	s.Expire(now)
	return s.resources[resource]
}

func (s *Server) status(now time.Time, r *resource) Status {
	at, capacity := s.at(now), r.capacity(now)
	t := Status{
		ID: r.id, Template: r.template, Capacity: capacity, Has: r.has.value(), Wants: r.wants(),
		Excess: r.excess(capacity), Clients: r.clients(), Leases: int64(r.leases()),
	}
	if until, is := s.learns(at, r); is {
		t.Learning, t.LearnsUntil = true, now.Add(time.Duration(until-at))
	}
	if r.unsupplied() {
		t.Capacity, t.Learning = 0, true
	} else if r.up != nil {
		t.ParentExpiry = r.up.lease.Expiry
	}
	return t
}

func (s *Server) holding(now time.Time, r *resource, i int32) Holding {
	n := r.rows.at(i)
	left := time.Duration(n.expiry - s.at(now))
	h := Holding{Client: n.client, Server: n.server, Taken: n.taken}
	h.Lease = Lease{Expiry: now.Add(left), Refresh: r.template.Algorithm.RefreshInterval, Capacity: n.given}
	for at := n.claim; at != 0; at = r.claims.at(at).next {
		c := r.claims.at(at)
		d := Demand{Priority: r.bandOf(c).priority, Clients: int64(c.clients), Wants: c.wants}
		h.Demands = append(h.Demands, d)
	}
	return h
}
