package capacity

// What a server keeps is weighed, in bytes of memory by estimate, so that a process can bound it together
// with what else it keeps. TestWeight compares it with the heap.
const (
	resourceWeight = 1100
	leaseWeight    = 110
	demandWeight   = 60
	nameWeight     = 16 // beside its bytes
)

// Weight is about how many bytes of memory the resources and leases take.
func (s *Server) Weight() int {
	return len(s.resources)*resourceWeight + s.leases*leaseWeight + s.held*demandWeight + s.names
}

// BoundMemory refuses what would keep more bytes than left says. It is not called by others than Lease.
func (s *Server) BoundMemory(left func() int64) { s.left = left }

// lacksMemory reports whether there is no room for a lease with so many demands more. A lease that is known
// and wants no more than before needs none.
func (s *Server) lacksMemory(r *resource, known bool, more int) bool {
	if s.left == nil || known && more <= 0 {
		return false
	}
	bytes := max(more, 0) * demandWeight
	if !known {
		bytes += leaseWeight
	}
	if r.leases() == 0 {
		bytes += resourceWeight
	}
	return s.left() < int64(bytes)
}
