// Package capacity shares limited quantities among many clients, as doorman does: a client says what it
// wants, gets a lease on a share for a while, and limits itself to it. One request every few seconds
// replaces one for each call.
//
// Everything in here is a value that is told the time: no locks, clocks, goroutines or I/O. The servers and
// clients around it are in front/doorman and client/capacity.
package capacity

import "time"

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
	// of its lease they hold.
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

	// Safe is what one client may use without a lease: -1 without limit. SafeConfigured says that the
	// template has it; otherwise it is the capacity divided by the clients.
	Safe           float64
	SafeConfigured bool

	Algorithm *Algorithm // how the resource is shared, for servers below; not to be changed
}

// Limits bound what a server keeps. 0 means the default.
type Limits struct {
	Resources  int // at once; DefaultResources
	Leases     int // at once on one resource; DefaultLeases
	Priorities int // at once on one resource; DefaultPriorities
}
