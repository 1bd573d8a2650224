// Package capacity shares limited quantities among many clients, as doorman does: a client says what it
// wants, gets a lease on a share for a while, and limits itself to it. One request every few seconds
// replaces one for each call.
//
// All types are values that are given the time: no locks, clocks, goroutines or I/O. The servers and
// clients around it are in internal/front/grpc and client/lease.
package capacity

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// A Demand is what the clients of one priority want together.
type Demand struct {
	Priority int64   `json:"priority"`    // the highest is served first, where the algorithm asks for that
	Clients  int64   `json:"num_clients"` // how many they are, at least 1; a client by itself is 1
	Wants    float64 `json:"wants"`       // 0 and more; NaN means what was wanted before, or 0
}

// A Lease is an amount that may be used for a while.
type Lease struct {
	Expiry   time.Time     // when it ends; the zero time means no lease at all
	Refresh  time.Duration // after which its holder should ask again
	Capacity float64
}

// A Request asks for a share of one resource. It is expected to be valid: no empty resource, no negative or
// infinite number, at least one demand, and each with at least one client.
type Request struct {
	Resource string

	// Has is the lease the client says it holds. A server that has clients of its own reports how much of its
	// lease they hold, and in place of the refresh interval for how long it has known all of them: 0 while it
	// does not.
	Has Lease

	// Demands are what is wanted: one of a client, one for each priority of a server.
	Demands []Demand

	// Server says that the request comes from a server with clients of its own. What those hold stays taken
	// until the server reports that they gave it back, even if its lease shrinks before.
	Server bool
}

// A Grant answers a Request.
type Grant struct {
	Resource string
	Lease    Lease

	// Ahead is by how much the clock that the lease's expiry refers to is ahead, as far as the receiver could
	// find out. A Server leaves it 0.
	Ahead time.Duration

	// Safe is what one client may use without a lease: -1 without limit. SafeConfigured says that the
	// template has it; otherwise it is the capacity divided by the clients.
	Safe           float64
	SafeConfigured bool

	Algorithm *Algorithm // how the resource is shared, for servers below; not to be changed

	// Learning is for how long, at most, the server stays in learning mode: it gives clients what they say
	// they hold and nothing more, because it does not know yet which client holds what. It is 0 otherwise.
	Learning time.Duration
}

// Limits bound what a server keeps. 0 means the default.
type Limits struct {
	Resources  int // at once; DefaultResources
	Leases     int // at once on one resource; DefaultLeases
	Priorities int // at once on one resource; DefaultPriorities

	// Demands are those of all leases at once: one of a client, one for each priority of a server.
	// 10,000,000 if that is not less than Leases; some 1.6 GB, besides the names of clients.
	Demands int

	LeasesTotal int // at once on all resources together; DefaultLeasesTotal
}

// The default limits.
const (
	DefaultResources  = 100_000   // some 130 MB with one lease each
	DefaultLeases     = 2_000_000 // some 320 MB, besides the names of clients
	DefaultPriorities = 100       // a request walks over all of them

	DefaultLeasesTotal = 5_000_000

	defaultDemands = 10_000_000
)

// ErrNotMaster is the error of a server that does not lead.
var ErrNotMaster = gatehouse.Errorf(gatehouse.CodeUnavailable,
	"server: not the master, want the request there")

// A Server decides which client gets how much, while it leads. Its methods are not safe for concurrent use,
// take O(log n) for n leases unless they say otherwise, and do not panic, whatever they are given.
//
//	               Lead                 templates, or a parent's answer
//	not leading ---------> learning mode ---------------------------> sharing
//	     ^                      |     leases of before have ended        |
//	     |        Resign        |        or have been reported           |
//	     +----------------------+----------------------------------------+
type Server struct {
	limits Limits
	templateIndex
	resources   map[string]*resource
	byName      sortedList[*resource]
	demandCount int // demands of all leases
	leaseCount  int
	nameBytes   int                      // bytes of the names of clients
	memoryLeft  func() int64             // bytes free for more; nil without a limit
	wakes       minheap.Heap[expiryWake] // when resources may have leases to forget
	parent      *upstream                // nil without a parent

	leading    bool
	leadsUntil time.Time // the zero time: forever
	ledSince   int64     // when it became master

	restored     bool                       // Restore was called
	awaited      map[string]*awaitedHolders // by resource
	awaitedUntil int64                      // the last expiry of their leases
	epoch        time.Time                  // instant 0 of all times of type int64
	scratch      []Demand                   // cleanDemands' result
}

// NewServer makes a server that does not lead yet and has no templates.
func NewServer(limits Limits) *Server {
	orDefault := func(limit *int, value int) {
		if *limit <= 0 {
			*limit = value
		}
	}
	orDefault(&limits.Resources, DefaultResources)
	orDefault(&limits.Leases, DefaultLeases)
	orDefault(&limits.Priorities, DefaultPriorities)
	orDefault(&limits.LeasesTotal, DefaultLeasesTotal)
	orDefault(&limits.Demands, max(defaultDemands, limits.Leases))
	s := &Server{limits: limits}
	s.forgetAll()
	return s
}

// nanosecondsAt returns an instant in nanoseconds since the server's epoch, its first call. It is kept so far
// from the ends of int64 that a lease can be added to it, and any other instant subtracted from the sum.
func (s *Server) nanosecondsAt(now time.Time) int64 {
	if s.epoch.IsZero() {
		s.epoch = now
	}
	return min(max(int64(now.Sub(s.epoch)), -1<<61), 1<<61)
}

// Lead makes the server master from now until an instant; the zero time means forever. It forgets every lease
// and enters learning mode.
func (s *Server) Lead(now, until time.Time) {
	s.forgetAll()
	s.leading, s.leadsUntil, s.ledSince = true, until, s.nanosecondsAt(now)
}

// Extend lets a master lead until another instant; the zero time means forever. Nothing is forgotten, even if
// its time was up: the caller must know that no other server led meanwhile. After Resign it has no effect.
func (s *Server) Extend(until time.Time) { s.leadsUntil = until }

// Resign ends the mastership and forgets every lease.
func (s *Server) Resign() {
	s.forgetAll()
	s.leading = false
}

func (s *Server) forgetAll() {
	// Wakes of these resources may be on their way to Expire, which skips removed ones.
	for _, r := range s.resources {
		r.removed = true
	}
	s.resources, s.wakes, s.demandCount = make(map[string]*resource), nil, 0
	s.leaseCount, s.nameBytes = 0, 0
	s.byName = sortedList[*resource]{nameOf: func(r *resource) string { return r.id }}
	s.restored, s.awaited = false, nil
	if s.parent != nil {
		s.parent = newUpstream()
	}
}

// Leading reports whether the server is master.
func (s *Server) Leading(now time.Time) bool {
	return s.leading && (s.leadsUntil.IsZero() || now.Before(s.leadsUntil))
}

// Configure replaces the templates, which must have no faults and not be changed from now on. Every resource
// takes over its new template at once, including how long it learns. Leases that were given stay as they are.
// A server with a parent ignores its own templates.
//
// It takes O(resources + templates), and O(n log n) for the n leases of a resource whose priorities became
// strict or stopped being so.
func (s *Server) Configure(_ time.Time, t Templates) {
	s.templateIndex = newTemplateIndex(t)
	for id, r := range s.resources {
		// No match cannot be with templates without faults; then the resource keeps its old one.
		if found := s.findTemplate(id); found != nil && r.supply == nil {
			r.setTemplate(found)
		}
	}
}

// Release gives a lease back at once. Unknown names have no effect.
func (s *Server) Release(now time.Time, client, resource string) {
	if !s.Leading(now) {
		return
	}
	// A client that gives back what it got from the last master counts as having reported, even though this
	// server never gave it a lease.
	s.noteReported(client, resource)
	r := s.resources[resource]
	if r == nil {
		return
	}
	if i, ok := r.findLease(client); ok {
		r.removeLease(i)
		s.updateResource(now, r)
	}
}

// updateResource brings the server's totals, wakes and parent up to date after the leases of a resource have
// changed, and removes the resource if it has none left.
func (s *Server) updateResource(now time.Time, r *resource) {
	// Totals are corrected by the difference to what was counted last, so callers need not say what changed.
	s.demandCount += r.demandCount - r.counted.demands
	s.leaseCount += r.leaseCount() - r.counted.leases
	s.nameBytes += r.nameBytes - r.counted.nameBytes
	r.counted = resourceCounts{r.demandCount, r.leaseCount(), r.nameBytes}
	if s.parent != nil {
		s.parent.noteChange(now, r.supply, r.has.value(), r.totalWants())
	}
	if r.leaseCount() == 0 {
		delete(s.resources, r.id)
		s.byName.remove(r)
		r.removed = true
		return
	}
	s.scheduleWake(r)
}
