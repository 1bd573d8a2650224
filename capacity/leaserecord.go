package capacity

// A leaseRecord is one lease on a resource, with its holder. Times are nanoseconds since the server's epoch.
type leaseRecord struct {
	client        string
	expiry        int64
	taken         float64 // what counts as taken of the capacity
	given         float64 // what the lease says: less than taken while a server's clients hold more
	firstDemand   int32   // the first, with the highest priority; never 0 while the row is in use
	generation    uint32  // which of its entries among the expiries is valid
	server        bool
	sendsKnownFor bool   // its holder is a server whose requests say for how long it has known its clients
	knownFor      uint32 // that time, in seconds, in its last request
}

// An expiry says when a lease may have run out. A lease that is refreshed keeps its old entry, so a refresh
// costs nothing here; when the entry comes up, it is put back with the time that is valid then.
type expiry struct {
	at         int64
	record     int32
	generation uint32
}

// Before orders expiries by time, for minheap.
func (e expiry) Before(other expiry) bool { return e.at < other.at }

// findLease returns the lease of a client.
func (r *resource) findLease(client string) (i int32, ok bool) {
	return r.byClient.findClient(client, &r.records)
}

// leaseCount returns the number of leases.
func (r *resource) leaseCount() int { return r.byClient.used }

// addLease makes a lease for a client that has none.
func (r *resource) addLease(client string) int32 {
	i := r.records.add()
	n := r.records.at(i)
	// The slab hands out numbers again. A new generation makes expiries of the former lease void.
	*n = leaseRecord{client: client, generation: n.generation + 1, expiry: never}
	r.byClient.add(client, i)
	r.byName.add(i)
	r.nameBytes += len(client) + nameWeight
	return i
}

// setExpiry makes a lease run out after an instant.
func (r *resource) setExpiry(i int32, at int64) {
	n := r.records.at(i)
	old := n.expiry
	n.expiry = at
	if at >= old {
		return // the entry it has is early enough
	}
	// The lease ends earlier than before, when the template has become shorter. The old entry would come up
	// too late, so a new one takes its place.
	n.generation++
	r.expiries.Push(expiry{at, i, n.generation})
	r.compactExpiries()
}

// compactExpiries drops void entries once they outnumber the valid ones. Each compaction is paid for by as
// many pushes, so the cost per push is constant.
func (r *resource) compactExpiries() {
	if len(r.expiries) > 2*r.leaseCount()+64 {
		r.expiries.Filter(r.isCurrent)
	}
}

// isCurrent reports whether an entry is the valid one of its lease.
func (r *resource) isCurrent(e expiry) bool { return r.records.at(e.record).generation == e.generation }

// expireLeases removes leases that ran out before an instant. It looks at most entries, at most, and returns
// at how many.
func (r *resource) expireLeases(now int64, most int) (looked int) {
	for ; looked < most && len(r.expiries) > 0 && r.expiries[0].at < now; looked++ {
		e := r.expiries.Pop()
		if !r.isCurrent(e) {
			continue
		}
		// The lease was refreshed meanwhile.
		if n := r.records.at(e.record); n.expiry >= now {
			r.expiries.Push(expiry{n.expiry, e.record, e.generation})
			continue
		}
		r.removeLease(e.record)
	}
	return looked
}

// removeLease removes a lease with its demands, and gives back what it has taken.
func (r *resource) removeLease(i int32) {
	n := r.records.at(i)
	r.dropDemands(i)
	r.has.replace(n.taken, 0)
	r.byClient.remove(n.client, i)
	r.byName.remove(i)
	r.nameBytes -= len(n.client) + nameWeight
	*n = leaseRecord{generation: n.generation + 1}
	r.records.remove(i)
	r.compactExpiries()
}
