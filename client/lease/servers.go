package lease

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// servers finds the one that is master, and sends requests to it. Only sendRequests uses it, except for
// masterAddress.
type servers struct {
	config     Config
	metrics    *metrics
	conn       doormanpb.Conn
	lastMaster atomic.Pointer[string] // the address of the server that answered last
}

// A capacityReply is what a server granted.
type capacityReply struct {
	grants []lease.Grant
	clock  time.Time // the server's, when requestCapacity was called; zero if it did not say
}

// maxHops is how many redirects one request follows at most, so that servers which redirect to each other do
// not keep it going forever.
const maxHops = 5

func (s *servers) masterAddress() string {
	if at := s.lastMaster.Load(); at != nil {
		return *at
	}
	return ""
}

// A serverCall sends one request to one server. It returns which server to ask instead, nil when it was
// answered.
type serverCall func(
	ctx context.Context, at doormanpb.CapacityClient,
) (elsewhere *doormanpb.Mastership, err error)

// callMaster makes the call at the master: the server that answered last, then those of the Config in turn,
// and each server they redirect to, at once. It asks no server twice.
func (s *servers) callMaster(ctx context.Context, method string, do serverCall) error {
	// The addresses still to try. A redirect goes to the front, since it most likely names the master.
	queue := slices.Concat(slices.DeleteFunc([]string{s.masterAddress()}, isEmpty), s.config.Servers)
	var tried []string
	var failure error
	for hops := maxHops; len(queue) > 0 && ctx.Err() == nil; {
		address := queue[0]
		queue = queue[1:]
		if slices.Contains(tried, address) {
			continue
		}
		tried = append(tried, address)
		elsewhere, err := s.tryServer(ctx, address, method, do)
		switch {
		case err != nil:
			failure = gatehouse.Errorf(gatehouse.CodeUnavailable, "server %s: %s: %w", address, method, err)
		// Answered: this is the master, which the next request asks first.
		case elsewhere == nil:
			s.lastMaster.Store(&address)
			return nil
		default:
			failure = gatehouse.Errorf(gatehouse.CodeUnavailable,
				"server %s: is not the master, and sends to %q", address, elsewhere.GetMasterAddress())
			// An empty address means that this server knows no master. The others are tried; one of them
			// may.
			if to := elsewhere.GetMasterAddress(); to != "" && hops > 0 {
				queue = append([]string{to}, queue...)
				hops--
			}
		}
	}
	// No server answered. The next request begins with fresh connections, and from the servers of the
	// Config.
	s.close()
	if failure == nil {
		failure = gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", method, ctx.Err())
	}
	return failure
}

func isEmpty(address string) bool { return address == "" }

// tryServer makes the call at one server, within Timeout. A connection over which a call failed is not used
// again: gRPC would pause before it reconnects, in addition to the client's own pause.
func (s *servers) tryServer(
	ctx context.Context, address, method string, do serverCall,
) (*doormanpb.Mastership, error) {
	to, err := s.conn.Connect(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	defer s.metrics.startRequest(address, method)()
	elsewhere, err := do(ctx, to)
	if err != nil {
		s.metrics.countFailure(address, method)
		s.close()
	}
	return elsewhere, err
}

// close closes the connection, if there is one, and forgets the master.
func (s *servers) close() {
	s.conn.Close()
	s.lastMaster.Store(nil)
}

// findMaster asks for the master, and remembers it.
func (s *servers) findMaster(ctx context.Context) error {
	return s.callMaster(ctx, "Discovery",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			response, err := at.Discovery(ctx, &doormanpb.DiscoveryRequest{})
			// The master has answered, which a call says by nil.
			if err != nil || response.GetIsMaster() {
				return nil, err
			}
			return response.GetMastership(), nil
		})
}

// requestCapacity sends the requests, in one message.
func (s *servers) requestCapacity(ctx context.Context, requests []lease.Request) (capacityReply, error) {
	message := requestMessage(s.config.ID, requests)
	began := s.config.Now()
	var reply capacityReply
	err := s.callMaster(doormanpb.AskTime(ctx), "GetCapacity",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			var header metadata.MD
			// Negative or zero. The holder wants the server's clock at the time it made the requests, and
			// servers that were tried before this one may have taken long.
			earlier := began.Sub(s.config.Now())
			response, err := at.GetCapacity(ctx, message, grpc.Header(&header))
			if err != nil || response.GetMastership() != nil {
				return response.GetMastership(), err
			}
			reply = capacityReply{grants: grantsOf(response), clock: doormanpb.TimeIn(header)}
			if !reply.clock.IsZero() {
				reply.clock = reply.clock.Add(earlier)
			}
			return nil, nil
		})
	return reply, err
}

// releaseResources gives the resources back. Only the master knows their holders. If a new one does not
// know either, they are free already.
func (s *servers) releaseResources(ctx context.Context, resources []string) error {
	message := &doormanpb.ReleaseCapacityRequest{ClientId: &s.config.ID, ResourceId: resources}
	return s.callMaster(ctx, "ReleaseCapacity",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			response, err := at.ReleaseCapacity(ctx, message)
			return response.GetMastership(), err
		})
}

// requestMessage makes one message of all requests. Fields that the protocol requires are set even when they
// are 0.
func requestMessage(client string, requests []lease.Request) *doormanpb.GetCapacityRequest {
	message := &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: make([]*doormanpb.ResourceRequest, len(requests)),
	}
	for i := range requests {
		r := &requests[i]
		message.Resource[i] = &doormanpb.ResourceRequest{
			ResourceId: &r.Resource, Priority: &r.Demands[0].Priority, Has: doormanpb.NewLease(r.Has),
			Wants: &r.Demands[0].Wants,
		}
	}
	return message
}

// grantsOf returns the grants of a reply. One without a lease is left out, so that the lease before it stays
// in force.
func grantsOf(response *doormanpb.GetCapacityResponse) []lease.Grant {
	grants := make([]lease.Grant, 0, len(response.GetResponse()))
	for _, r := range response.GetResponse() {
		if r.GetGets() == nil {
			continue
		}
		g := lease.Grant{Resource: r.GetResourceId(), Lease: doormanpb.LeaseOf(r.GetGets())}
		g.Safe = math.NaN() // means: the server did not say
		// An explicit 0 is an amount: nothing may be used without a lease.
		if r.SafeCapacity != nil {
			g.Safe = r.GetSafeCapacity()
		}
		grants = append(grants, g)
	}
	return grants
}
