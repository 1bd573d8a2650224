package capacity

import (
	"cmp"
	"math"
	"slices"
)

const (
	// mostWants and mostClients are what one demand may be of, at most. So the sums over all
	// leases are finite, and the number of clients is exact.
	mostWants   = 1e290
	mostClients = math.MaxInt32
)

// cleaned are the demands of a request as the tree can take them: of each priority one, the highest
// first, with finite numbers. NaN is left for what was wanted before. The result holds until the next call.
func (s *Server) cleaned(demands []Demand) []Demand {
	clean := s.demands[:0]
	for _, d := range demands {
		d.Clients = min(max(d.Clients, 1), mostClients)
		if !math.IsNaN(d.Wants) {
			d.Wants = min(max(d.Wants, 0), mostWants)
		}
		clean = append(clean, d)
	}
	if len(clean) == 0 {
		clean = append(clean, Demand{Clients: 1})
	}
	if len(clean) > 1 {
		clean = merged(clean)
	}
	s.demands = clean
	return clean
}

// merged sorts demands and makes one of those with the same priority.
func merged(demands []Demand) []Demand {
	slices.SortStableFunc(demands, func(a, b Demand) int { return cmp.Compare(b.Priority, a.Priority) })
	kept := demands[:1]
	for _, d := range demands[1:] {
		last := &kept[len(kept)-1]
		if last.Priority != d.Priority {
			kept = append(kept, d)
			continue
		}
		last.Clients = min(last.Clients+d.Clients, mostClients)
		last.Wants = min(last.Wants+d.Wants, mostWants)
	}
	return kept
}

// remembered are the demands of a server that does not know all of its clients yet, with what it is known
// here to have wanted before: of each priority no less than that. The others may come back any moment.
func (s *Server) remembered(r *resource, i int32, demands []Demand) []Demand {
	for at := r.rows.at(i).claim; at != 0; at = r.claims.at(at).next {
		n := r.claims.at(at)
		before := Demand{r.bandOf(n).priority, int64(n.clients), n.wants}
		k := slices.IndexFunc(demands, func(d Demand) bool { return d.Priority == before.Priority })
		if k < 0 {
			demands = append(demands, before)
			continue
		}
		d := &demands[k]
		d.Clients, d.Wants = max(d.Clients, before.Clients), max(d.Wants, before.Wants)
	}
	slices.SortFunc(demands, func(a, b Demand) int { return cmp.Compare(b.Priority, a.Priority) })
	s.demands = demands
	return demands
}

// recall puts what was wanted before in place of NaN, and 0 where nothing was.
func (r *resource) recall(first int32, demands []Demand) {
	for k := range demands {
		if d := &demands[k]; math.IsNaN(d.Wants) {
			d.Wants = r.wantedBefore(first, d.Priority, len(demands) == 1)
		}
	}
}

// wantedBefore is what the claims of a holder want at a priority. A client by itself may have changed its
// priority; it wants what it wanted.
func (r *resource) wantedBefore(first int32, priority int64, alone bool) float64 {
	for i := first; i != 0; i = r.claims.at(i).next {
		n := r.claims.at(i)
		if r.bandOf(n).priority == priority || alone && n.next == 0 && i == first {
			return n.wants
		}
	}
	return 0
}

// enter makes the demands those of a row. Where they are what they were, nothing is touched.
func (r *resource) enter(i int32, demands []Demand) {
	n := r.rows.at(i)
	r.recall(n.claim, demands)
	if !r.samePriorities(n.claim, demands) {
		r.dropClaims(i)
		n.claim = r.addClaims(demands)
		return
	}
	at := n.claim
	for k := range demands {
		c := r.claims.at(at)
		if c.wants != demands[k].Wants || int64(c.clients) != demands[k].Clients {
			r.changeClaim(at, &demands[k])
		}
		at = c.next
	}
}

// demandsOf is how many claims a row has.
func (r *resource) demandsOf(row int32) (n int) {
	for i := r.rows.at(row).claim; i != 0; i = r.claims.at(i).next {
		n++
	}
	return n
}

func (r *resource) samePriorities(first int32, demands []Demand) bool {
	for k := range demands {
		if first == 0 || r.bandOf(r.claims.at(first)).priority != demands[k].Priority {
			return false
		}
		first = r.claims.at(first).next
	}
	return first == 0
}

// addClaims makes the claims of a row and returns the first.
func (r *resource) addClaims(demands []Demand) (first int32) {
	for k := len(demands) - 1; k >= 0; k-- {
		d := &demands[k]
		b := r.band(d.Priority)
		i := r.claims.make(d, b.slot)
		r.claims.at(i).next = first
		first = i
		b.count(d.Wants, d.Clients, 1)
		r.demands++
		r.poolOf(b).enter(&r.claims, i)
	}
	return first
}

// changeClaim gives a claim other numbers.
func (r *resource) changeClaim(i int32, d *Demand) {
	c := r.claims.at(i)
	b := r.bandOf(c)
	p := r.poolOf(b)
	p.leave(&r.claims, i)
	b.wants.change(c.wants, d.Wants)
	b.clients += d.Clients - int64(c.clients)
	c.wants, c.clients = d.Wants, int32(d.Clients)
	p.enter(&r.claims, i)
}

// dropClaims takes the claims of a row away.
func (r *resource) dropClaims(row int32) {
	n := r.rows.at(row)
	for i := n.claim; i != 0; {
		c := r.claims.at(i)
		b := r.bandOf(c)
		r.poolOf(b).leave(&r.claims, i)
		b.count(-c.wants, -int64(c.clients), -1)
		r.demands--
		if b.claims == 0 {
			r.dropBand(b)
		}
		r.claims.slab.remove(i)
		i = c.next
	}
	n.claim = 0
}
