package grpc

import (
	"fmt"
	"runtime/debug"

	"github.com/gatehousehq/gatehouse"
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
	c.reset()
	s.calls.Put(c)
}

// answerCall checks a call, decides it, and counts it. One whose message could not be read is only counted.
func (s *Server) answerCall(from entry, method rpc, c *capacityCall) (to redirect, err error) {
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
