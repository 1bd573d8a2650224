package grpc

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/access"
)

// An rpc is one of the protocol's methods. The listeners for gRPC and for HTTP both answer them through
// answerCall.
type rpc int

// The methods of the protocol.
const (
	rpcDiscovery rpc = iota
	rpcGetCapacity
	rpcGetServerCapacity
	rpcReleaseCapacity
	numRPCs
)

var rpcNames = [numRPCs]string{"Discovery", "GetCapacity", "GetServerCapacity", "ReleaseCapacity"}

// newCall returns an empty call from the pool. The caller gives it back with freeCall.
func (s *Server) newCall() *capacityCall { return s.calls.Get().(*capacityCall) }

func (s *Server) freeCall(c *capacityCall) {
	// The slices keep their memory, but not the strings in it, which would stay alive with the pool.
	clear(c.requests)
	clear(c.released)
	clear(c.grants)
	*c = capacityCall{
		requests: c.requests[:0], demands: c.demands[:0], released: c.released[:0], grants: c.grants[:0],
		answers: c.answers,
	}
	s.calls.Put(c)
}

// answerCall checks a call, decides it, and counts it. One whose message could not be read is only counted.
func (s *Server) answerCall(from callEntry, method rpc, c *capacityCall) (to redirect, err error) {
	began := s.now()
	// One deferred function for both, in this order: a call that panicked counts as an internal error.
	defer func() {
		if broken := recover(); broken != nil {
			to, err = redirect{}, s.notePanic(broken)
		}
		s.metrics.countCall(from, method, outcomeOf(to, err), s.now().Sub(began))
	}()
	// Discovery has no fields that could be wrong.
	if err = c.fault; err == nil && method != rpcDiscovery {
		err = c.checkFields()
	}
	if err == nil && s.config.Users != nil {
		err = c.checkUser(method)
	}
	if err != nil {
		return redirect{}, err
	}
	switch method {
	case rpcDiscovery:
		// The address is part of the answer on the master, too.
		address, leading := s.findMaster()
		return redirect{notMaster: !leading, address: address}, nil
	case rpcReleaseCapacity:
		return s.releaseAll(c)
	default:
		return s.leaseAll(c)
	}
}

// notePanic counts and logs a panic in a request, and returns the error to answer. The server goes on.
func (s *Server) notePanic(why any) error {
	s.metrics.panics.Inc()
	s.log.Error("handling a request failed", "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
	return gatehouse.Errorf(gatehouse.CodeInternal, "this request failed inside the server")
}

// The limits of one call.
const (
	maxEntries = 10_000 // resources: decided in less than 10 ms
	maxBands   = 100    // priorities of one server at one resource
	maxAmount  = 1e15   // wanted at once: sums of a million of them are exact to a millionth
	maxClients = 1_000_000_000
)

// A capacityCall is a request and its answer, on their way through the server. Calls are pooled and reuse
// their memory; nothing in one may be kept after freeCall.
type capacityCall struct {
	user     *access.User // nil if rights are off
	client   string       // or server
	server   bool         // the client is a server with clients of its own
	requests []capacity.Request
	demands  []capacity.Demand // of all requests, one after the other
	released []string
	grants   []capacity.Grant // answers to requests
	answers  *answerPool      // of all calls of the server

	decided int   // how many of the requests were, or were refused
	refusal error // of the first that a limit refused; its answer is left out
	fault   error // what was wrong with the message
}

// addRequest appends a request. Its demands are the last ones appended, as many as given.
func (c *capacityCall) addRequest(r capacity.Request, demands int) {
	r.Server = c.server
	r.Demands = c.demands[len(c.demands)-demands:]
	c.requests = append(c.requests, r)
}

// checkFields refuses what no client should send, before anything is decided. Its errors name fields as the
// protocol does. What clients of doorman do send is corrected instead:
//
//   - A want of NaN comes from a limiter that is idle. It means what was wanted before.
//   - A lease with a negative amount, or of no number, is what doorman gave in its worst moments. It counts
//     as one of 0: refusing it would keep the client from ever getting a better one.
func (c *capacityCall) checkFields() error {
	field := "client_id"
	if c.server {
		field = "server_id"
	}
	if fault := gatehouse.NameFault(c.client); fault != "" {
		return invalid("%s %s", field, fault)
	}
	// gRPC has checked this while reading, JSON has not.
	if len(c.requests) > maxEntries {
		return invalid("resource has %d entries, want at most %d", len(c.requests), maxEntries)
	}
	for i := range c.requests {
		r := &c.requests[i]
		if fault := gatehouse.NameFault(r.Resource); fault != "" {
			return invalid("resource[%d].resource_id %s", i, fault)
		}
		if fault := c.checkDemands(r.Demands); fault != "" {
			return invalid("resource[%d].%s", i, fault)
		}
		// The core adds these up, so a NaN or infinity would spoil the sums of the resource.
		r.Has.Capacity = sanitizeHas(r.Has.Capacity)
	}
	return nil
}

// checkDemands says what is wrong with what is wanted, "" if nothing.
func (c *capacityCall) checkDemands(demands []capacity.Demand) string {
	if len(demands) > maxBands {
		return fmt.Sprintf("wants has %d bands, want at most %d", len(demands), maxBands)
	}
	for i := range demands {
		d := &demands[i]
		band := ""
		if c.server {
			band = fmt.Sprintf("wants[%d].", i)
		}
		// Shares are per client, so there must be one at least.
		if d.Clients < 1 || d.Clients > maxClients {
			return fmt.Sprintf("%snum_clients is %d, want 1 to %d", band, d.Clients, maxClients)
		}
		// Only NaN differs from itself. A server adds up its clients' wants, so it has no excuse for one.
		idle := d.Wants != d.Wants && !c.server
		if !idle && !(d.Wants >= 0 && d.Wants <= maxAmount) {
			return fmt.Sprintf("%swants is %v, want 0 to %v", band, d.Wants, maxAmount)
		}
	}
	return ""
}

// sanitizeHas returns the amount that a client can hold, by what it says it has.
func sanitizeHas(claim float64) float64 {
	if !(claim > 0) || math.IsInf(claim, 0) {
		return 0
	}
	return min(claim, maxAmount)
}

func invalid(format string, args ...any) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, format, args...)
}
