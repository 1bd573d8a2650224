package grpc

import (
	"fmt"
	"runtime/debug"

	"github.com/gatehousehq/gatehouse"
)

// An rpc is one of the protocol's methods. Each door that knows them answers through answer.
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

// newCall returns a call to be filled, and given back by free.
func (s *Server) newCall() *capacityCall { return s.calls.Get().(*capacityCall) }

func (s *Server) freeCall(c *capacityCall) {
	c.reset()
	s.calls.Put(c)
}

// answerCall checks a call, decides it, and counts it. One whose message was faulty is only counted.
func (s *Server) answerCall(from entry, method rpc, c *capacityCall) (to redirect, err error) {
	began := s.now()
	defer func() {
		if broken := recover(); broken != nil {
			to, err = redirect{}, s.notePanic(broken)
		}
		s.metrics.countCall(from, method, outcomeOf(to, err), s.now().Sub(began))
	}()
	if err = c.fault; err == nil && method != rpcDiscovery {
		err = c.checkFields()
	}
	if err != nil {
		return redirect{}, err
	}
	switch method {
	case rpcDiscovery:
		address, leading := s.findMaster()
		return redirect{notMaster: !leading, address: address}, nil
	case rpcReleaseCapacity:
		return s.releaseAll(c)
	default:
		return s.leaseAll(c)
	}
}

// notePanic notes that a request made the server stumble, which must not end it.
func (s *Server) notePanic(why any) error {
	s.metrics.panics.Inc()
	s.log.Error("answering a request failed", "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
	return gatehouse.Errorf(gatehouse.CodeInternal, "server failed at this request")
}
