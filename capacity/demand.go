package capacity

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxWants and maxClients bound one demand. With them the sums over all leases stay finite, and the
	// number of clients stays exact.
	maxWants   = 1e290
	maxClients = math.MaxInt32
)

// cleanDemands returns the demands of a request in the form the trees need: one for each priority, in
// descending order, with finite numbers. NaN is kept; it stands for what was wanted before. The result is
// valid until the next call.
func (s *Server) cleanDemands(demands []Demand) []Demand {
	clean := s.scratch[:0]
	for _, d := range demands {
		d.Clients = min(max(d.Clients, 1), maxClients)
		if !math.IsNaN(d.Wants) {
			d.Wants = min(max(d.Wants, 0), maxWants)
		}
		clean = append(clean, d)
	}
	if len(clean) == 0 {
		clean = append(clean, Demand{Clients: 1})
	}
	if len(clean) > 1 {
		clean = mergeDemands(clean)
	}
	s.scratch = clean
	return clean
}

// mergeDemands sorts demands and merges those of the same priority.
func mergeDemands(demands []Demand) []Demand {
	slices.SortStableFunc(demands, func(a, b Demand) int { return cmp.Compare(b.Priority, a.Priority) })
	kept := demands[:1]
	for _, d := range demands[1:] {
		last := &kept[len(kept)-1]
		if last.Priority != d.Priority {
			kept = append(kept, d)
			continue
		}
		// NaN plus a number is NaN: if one of two demands is unknown, so is their sum.
		last.Clients = min(last.Clients+d.Clients, maxClients)
		last.Wants = min(last.Wants+d.Wants, maxWants)
	}
	return kept
}

// keepEarlierDemands raises the demands of a server that does not know all of its clients yet to what it
// wanted before, at each priority. The missing clients may come back at any moment, and their share should
// not be given away until they do.
func (s *Server) keepEarlierDemands(r *resource, i int32, demands []Demand) []Demand {
	for at := r.records.at(i).firstDemand; at != 0; at = r.demands.at(at).next {
		n := r.demands.at(at)
		before := Demand{r.bandOf(n).priority, int64(n.clients), n.wants}
		k := slices.IndexFunc(demands, func(d Demand) bool { return d.Priority == before.Priority })
		if k < 0 {
			demands = append(demands, before)
			continue
		}
		d := &demands[k]
		d.Clients, d.Wants = max(d.Clients, before.Clients), max(d.Wants, before.Wants)
	}
	// A priority that was appended may belong in front of others.
	slices.SortFunc(demands, func(a, b Demand) int { return cmp.Compare(b.Priority, a.Priority) })
	s.scratch = demands
	return demands
}

// fillUnknownWants replaces NaN by what was wanted before, or by 0 if nothing was.
func (r *resource) fillUnknownWants(first int32, demands []Demand) {
	for k := range demands {
		if d := &demands[k]; math.IsNaN(d.Wants) {
			d.Wants = r.previousWants(first, d.Priority, len(demands) == 1)
		}
	}
}

// previousWants returns what a lease wanted at a priority so far. A lease with a single demand may have
// changed its priority; it still wants what it wanted.
func (r *resource) previousWants(first int32, priority int64, alone bool) float64 {
	for i := first; i != 0; i = r.demands.at(i).next {
		n := r.demands.at(i)
		if r.bandOf(n).priority == priority || alone && n.next == 0 && i == first {
			return n.wants
		}
	}
	return 0
}

// setDemands makes the demands those of a lease. Demands that did not change are not touched, so that an
// ordinary refresh costs no change of a tree.
func (r *resource) setDemands(i int32, demands []Demand) {
	n := r.records.at(i)
	r.fillUnknownWants(n.firstDemand, demands)
	// A change of priorities moves the lease between bands. That is rare, so all of its demands are made
	// again instead of being matched one by one.
	if !r.samePriorities(n.firstDemand, demands) {
		r.dropDemands(i)
		n.firstDemand = r.addDemands(demands)
		return
	}
	at := n.firstDemand
	for k := range demands {
		c := r.demands.at(at)
		if c.wants != demands[k].Wants || int64(c.clients) != demands[k].Clients {
			r.changeDemand(at, &demands[k])
		}
		at = c.next
	}
}

// countDemands returns how many demands a lease has.
func (r *resource) countDemands(row int32) (n int) {
	for i := r.records.at(row).firstDemand; i != 0; i = r.demands.at(i).next {
		n++
	}
	return n
}

func (r *resource) samePriorities(first int32, demands []Demand) bool {
	for k := range demands {
		if first == 0 || r.bandOf(r.demands.at(first)).priority != demands[k].Priority {
			return false
		}
		first = r.demands.at(first).next
	}
	return first == 0
}

// addDemands creates the demands of a lease and returns the first.
func (r *resource) addDemands(demands []Demand) (first int32) {
	// From the last to the first: each demand links to the one after it.
	for k := len(demands) - 1; k >= 0; k-- {
		d := &demands[k]
		b := r.ensureBand(d.Priority)
		i := r.demands.newDemand(d, b.slot)
		r.demands.at(i).next = first
		first = i
		b.adjustTotals(d.Wants, d.Clients, 1)
		r.demandCount++
		r.poolOf(b).addDemand(&r.demands, i)
	}
	return first
}

// changeDemand gives a demand other numbers.
func (r *resource) changeDemand(i int32, d *Demand) {
	c := r.demands.at(i)
	b := r.bandOf(c)
	p := r.poolOf(b)
	// The key of a demand is computed from its numbers, so it leaves the tree before they change.
	p.removeDemand(&r.demands, i)
	b.wants.replace(c.wants, d.Wants)
	b.clients += d.Clients - int64(c.clients)
	c.wants, c.clients = d.Wants, int32(d.Clients)
	p.addDemand(&r.demands, i)
}

// dropDemands removes the demands of a lease.
func (r *resource) dropDemands(row int32) {
	n := r.records.at(row)
	for i := n.firstDemand; i != 0; {
		c := r.demands.at(i)
		b := r.bandOf(c)
		r.poolOf(b).removeDemand(&r.demands, i)
		b.adjustTotals(-c.wants, -int64(c.clients), -1)
		r.demandCount--
		if b.demands == 0 {
			r.dropBand(b)
		}
		// The slab keeps the value of a freed number until the number is used again, so next can still be
		// read.
		r.demands.remove(i)
		i = c.next
	}
	n.firstDemand = 0
}
