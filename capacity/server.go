// Package capacity shares limited quantities among many clients, as doorman does: a client says what it
// wants, gets a lease on a share for a while, and limits itself to it. One request every few seconds
// replaces one for each call.
//
// Everything in here is a value that is told the time: no locks, clocks, goroutines or I/O. The servers and
// clients around it are in internal/front/grpc and client/lease.
package capacity

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// A Demand is what the clients of one priority want together.
type Demand struct {
	Priority int64   // the highest is served first, where the algorithm asks for that
	Clients  int64   // how many they are, at least 1; a client by itself is 1
	Wants    float64 // 0 and more; NaN means what was wanted before, or 0
}

// A Lease is an amount, for a while.
type Lease struct {
	Expiry   time.Time     // when it ends; the zero time means no lease at all
	Refresh  time.Duration // after which its holder should ask again
	Capacity float64
}

// A Request asks for a share of one resource. It is expected to be valid: no empty resource, no negative
// or infinite number, at least one demand, and each with at least one client.
type Request struct {
	Resource string

	// Has is the lease the client says it holds. A server that has clients of its own says how much
	// of its lease they hold, and in place of the refresh interval for how long it has known all of them:
	// 0 while it does not.
	Has Lease

	// Demands are what is wanted: one of a client, one for each priority of a server.
	Demands []Demand

	// Server says that it comes from a server with clients of its own. What those hold stays taken
	// until the server says they gave it back, even if its lease shrinks before.
	Server bool
}

// A Grant answers a Request.
type Grant struct {
	Resource string
	Lease    Lease

	// Ahead is how far ahead the clock is by which the lease's expiry is told, as far as whoever was
	// granted the lease could find out. A Server leaves it 0.
	Ahead time.Duration

	// Safe is what one client may use without a lease: -1 without limit. SafeConfigured says that the
	// template has it; otherwise it is the capacity divided by the clients.
	Safe           float64
	SafeConfigured bool

	Algorithm *Algorithm // how the resource is shared, for servers below; not to be changed

	// Learning is how long the server goes on, at most, to give clients what they say they hold and
	// nothing more, because it does not know yet who holds what; 0 when it shares out what there is.
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

// ErrNotMaster is what a server answers that does not lead.
var ErrNotMaster = gatehouse.Errorf(gatehouse.CodeUnavailable,
	"server: not the master, want the request there")

// A Server decides who gets how much, while it leads. Its methods are not safe for concurrent use, take
// O(log n) for n leases unless they say otherwise, and do not panic, whatever they are given.
type Server struct {
	limits Limits
	lookup
	resources map[string]*resource
	inOrder   sorted[*resource]
	held      int // demands of all leases
	leases    int
	names     int                // what the names of clients weigh
	left      func() int64       // how many bytes there are for more; nil without a limit
	wakes     minheap.Heap[wake] // when resources have something to forget
	up        *upstream          // what is known of its parent; nil without one

	leading bool
	until   time.Time // the zero time: for ever
	began   int64     // when it became master

	restored bool                  // told of all leases there were before it
	awaited  map[string]*reporters // by resource, those of them that have not reported
	awaits   int64                 // until when, at the latest
	base     time.Time             // instant 0 of all int64
	demands  []Demand              // of the request at hand
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
	s.forget()
	return s
}

// at is an instant in nanoseconds of the server's own count. It is kept so far from the ends of int64
// that a lease can be added to it, and any other instant taken away from that.
func (s *Server) at(now time.Time) int64 {
	if s.base.IsZero() {
		s.base = now
	}
	return min(max(int64(now.Sub(s.base)), -1<<61), 1<<61)
}

// Lead makes the server master from now until an instant, the zero time meaning for ever. It forgets
// every lease and begins to learn.
func (s *Server) Lead(now, until time.Time) {
	s.forget()
	s.leading, s.until, s.began = true, until, s.at(now)
}

// Extend lets a master lead on until an instant, the zero time meaning for ever. Nothing is forgotten, also
// if its time was up: that is for those who know that nobody else led meanwhile. After Resign it is nothing.
func (s *Server) Extend(until time.Time) { s.until = until }

// Resign ends the mastership and forgets every lease.
func (s *Server) Resign() {
	s.forget()
	s.leading = false
}

func (s *Server) forget() {
	for _, r := range s.resources {
		r.gone = true
	}
	s.resources, s.wakes, s.held = make(map[string]*resource), nil, 0
	s.leases, s.names = 0, 0
	s.inOrder = sorted[*resource]{name: func(r *resource) string { return r.id }}
	s.restored, s.awaited = false, nil
	if s.up != nil {
		s.up = newUpstream()
	}
}

// Leading reports whether the server is master.
func (s *Server) Leading(now time.Time) bool {
	return s.leading && (s.until.IsZero() || now.Before(s.until))
}

// Configure replaces the templates, which have no faults and are not changed from now on. Every resource
// takes over its new template at once, also how long it learns. Leases that were given stay as they are. To
// a server with a parent its own templates are nothing.
//
// It takes O(resources + templates), and O(n log n) for the n leases of a resource whose priorities became
// strict or are no more.
func (s *Server) Configure(_ time.Time, t Templates) {
	s.lookup = newLookup(t)
	for id, r := range s.resources {
		if found := s.find(id); found != nil && r.up == nil {
			r.adopt(found)
		}
	}
}

// Release gives a lease back at once. Unknown names are nothing to it.
func (s *Server) Release(now time.Time, client, resource string) {
	if !s.Leading(now) {
		return
	}
	s.reported(client, resource)
	r := s.resources[resource]
	if r == nil {
		return
	}
	if i, ok := r.find(client); ok {
		r.forget(i)
		s.settle(now, r)
	}
}

// settle is called after the rows of a resource have changed.
func (s *Server) settle(now time.Time, r *resource) {
	s.held += r.demands - r.counted.demands
	s.leases += r.leases() - r.counted.leases
	s.names += r.names - r.counted.names
	r.counted = tally{r.demands, r.leases(), r.names}
	if s.up != nil {
		s.up.notice(now, r.up, r.has.value(), r.wants())
	}
	if r.leases() == 0 {
		delete(s.resources, r.id)
		s.inOrder.remove(r)
		r.gone = true
		return
	}
	s.wake(r)
}
