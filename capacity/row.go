package capacity

import "github.com/gatehousehq/gatehouse/internal/minheap"

// A row is one lease on a resource, with its holder. Times are nanoseconds of the server's own count.
type row struct {
	client string
	expiry int64
	taken  float64 // what counts as taken of the capacity
	given  float64 // what the lease says: less than taken while a server's clients hold more
	claim  int32   // the first, with the highest priority; never 0 while the row is in use
	turn   uint32  // which of its entries among the expiries counts
	server bool
	counts bool   // it is a server that says with each question for how long it has known all its clients
	knew   uint32 // how many seconds that was when it asked last
}

// An expiry says that a row may have run out. A row that was refreshed since keeps its old entry, so a
// refresh costs nothing here; when the entry is due it is put back with the time that counts then.
type expiry struct {
	at   int64
	row  int32
	turn uint32
}

// Before is the order of minheap.
func (e expiry) Before(other expiry) bool { return e.at < other.at }

// find is the row of a client.
func (r *resource) find(client string) (i int32, ok bool) { return r.index.find(client, &r.rows) }

// leases is how many rows there are.
func (r *resource) leases() int { return r.index.used }

// add makes a row for a client that has none.
func (r *resource) add(client string) int32 {
	i := r.rows.add()
	n := r.rows.at(i)
	*n = row{client: client, turn: n.turn + 1, expiry: never}
	r.index.add(client, i)
	r.inOrder.add(i)
	r.names += len(client) + nameWeight
	return i
}

// expect has a row run out after an instant.
func (r *resource) expect(i int32, at int64) {
	n := r.rows.at(i)
	old := n.expiry
	n.expiry = at
	if at >= old {
		return // the entry it has is early enough
	}
	n.turn++
	r.expiries.Push(expiry{at, i, n.turn})
	r.tidy()
}

// tidy drops the entries that count no more, when they are about as many as those that do.
func (r *resource) tidy() {
	if len(r.expiries) <= 2*r.leases()+64 {
		return
	}
	kept := make(minheap.Heap[expiry], 0, r.leases())
	for _, e := range r.expiries {
		if r.counts(e) {
			kept = append(kept, e)
		}
	}
	r.expiries = kept
	r.expiries.Init()
}

// counts reports whether an entry is the one of its row.
func (r *resource) counts(e expiry) bool { return r.rows.at(e.row).turn == e.turn }

// expire forgets rows that ran out before an instant. It looks at so many at most, and returns at how many.
func (r *resource) expire(now int64, most int) (looked int) {
	for ; looked < most && len(r.expiries) > 0 && r.expiries[0].at < now; looked++ {
		e := r.expiries.Pop()
		if !r.counts(e) {
			continue
		}
		if n := r.rows.at(e.row); n.expiry >= now {
			r.expiries.Push(expiry{n.expiry, e.row, e.turn})
			continue
		}
		r.forget(e.row)
	}
	return looked
}

// forget takes a row away with all that it claims and holds.
func (r *resource) forget(i int32) {
	n := r.rows.at(i)
	r.dropClaims(i)
	r.has.change(n.taken, 0)
	r.index.remove(n.client, i)
	r.inOrder.remove(i)
	r.names -= len(n.client) + nameWeight
	*n = row{turn: n.turn + 1}
	r.rows.remove(i)
	r.tidy()
}
