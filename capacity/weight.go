package capacity

// The weights estimate the memory of what a server keeps, in bytes, so that a process can bound it together
// with what else it keeps. TestWeight compares them with the heap.
const (
	resourceWeight = 1100
	leaseWeight    = 110
	demandWeight   = 60
	nameWeight     = 16 // beside its bytes
)

// Weight returns about how many bytes of memory the resources and leases take.
func (s *Server) Weight() int {
	return len(s.resources)*resourceWeight + s.leaseCount*leaseWeight +
		s.demandCount*demandWeight + s.nameBytes
}

// BoundMemory makes Lease refuse what would take more bytes than left returns. Only Lease calls left.
func (s *Server) BoundMemory(left func() int64) { s.memoryLeft = left }

// lacksMemory reports whether there is no room for a lease with a number of additional demands. A known lease
// that wants no more than before needs none.
func (s *Server) lacksMemory(r *resource, known bool, more int) bool {
	if s.memoryLeft == nil || known && more <= 0 {
		return false
	}
	bytes := max(more, 0) * demandWeight
	if !known {
		bytes += leaseWeight
	}
	// The resource was made for this request.
	if r.leaseCount() == 0 {
		bytes += resourceWeight
	}
	return s.memoryLeft() < int64(bytes)
}
