package lease

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// servers finds the one that is master, and talks to it. Only loop uses it, but for master.
type servers struct {
	config     Config
	metrics    *metrics
	address    string // of conn
	conn       *grpc.ClientConn
	lastMaster atomic.Pointer[string] // the address that answered last
}

// An capacityReply is what a server granted.
type capacityReply struct {
	grants []lease.Grant
	clock  time.Time // the server's when ask was called; the zero time if it did not say
}

// maxHops is how many servers one request visits at most beside those of the Config, so that servers that
// send it on for ever do not.
const maxHops = 5

func (s *servers) masterAddress() string {
	if at := s.lastMaster.Load(); at != nil {
		return *at
	}
	return ""
}

// A serverCall sends one request to one server. It returns where to go instead, nil when it was answered.
type serverCall func(ctx context.Context, at doormanpb.CapacityClient) (elsewhere *doormanpb.Mastership, err error)

// callMaster makes the call at the master: the server that answered last, then those of the Config in turn, and
// wherever they send it, at once, but at no server twice.
func (s *servers) callMaster(ctx context.Context, method string, do serverCall) error {
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
		case elsewhere == nil:
			s.lastMaster.Store(&address)
			return nil
		default:
			failure = gatehouse.Errorf(gatehouse.CodeUnavailable,
				"server %s: is not the master, and sends to %q", address, elsewhere.GetMasterAddress())
			if to := elsewhere.GetMasterAddress(); to != "" && hops > 0 {
				queue = append([]string{to}, queue...)
				hops--
			}
		}
	}
	s.close()
	if failure == nil {
		failure = gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", method, ctx.Err())
	}
	return failure
}

func isEmpty(address string) bool { return address == "" }

// tryServer makes the call at one server, and no longer than Timeout. A connection over which a call failed is
// not used again, so that no pause of its own is added to ours.
func (s *servers) tryServer(ctx context.Context, address, method string, do serverCall) (*doormanpb.Mastership, error) {
	if err := s.connectTo(address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	defer s.metrics.startRequest(address, method)()
	elsewhere, err := do(ctx, doormanpb.NewCapacityClient(s.conn))
	if err != nil {
		s.metrics.countFailure(address, method)
		s.close()
	}
	return elsewhere, err
}

// connectTo makes conn one to the address.
func (s *servers) connectTo(address string) error {
	if s.conn != nil && s.address == address {
		return nil
	}
	s.close()
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{plain}, s.config.Dial...)...)
	if err != nil {
		return err
	}
	s.address, s.conn = address, conn
	return nil
}

// close ends the connection there is.
func (s *servers) close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing can be done about it
	}
	s.conn = nil
	s.lastMaster.Store(nil)
}

// findMaster finds the master.
func (s *servers) findMaster(ctx context.Context) error {
	return s.callMaster(ctx, "Discovery",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			response, err := at.Discovery(ctx, &doormanpb.DiscoveryRequest{})
			if err != nil || response.GetIsMaster() {
				return nil, err
			}
			return response.GetMastership(), nil
		})
}

// clockHeader is where a server says what time it is, in ms since 1970. The protocol itself has only the
// second at which a lease ends, which means nothing to a client whose clock is off.
const clockHeader = "gatehouse-time"

// requestCapacity makes the requests.
func (s *servers) requestCapacity(ctx context.Context, requests []lease.Request) (capacityReply, error) {
	message := requestMessage(s.config.ID, requests)
	began := s.config.Now()
	var a capacityReply
	err := s.callMaster(metadata.AppendToOutgoingContext(ctx, clockHeader, "?"), "GetCapacity",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			var header metadata.MD
			earlier := began.Sub(s.config.Now()) // other servers may have taken their time
			response, err := at.GetCapacity(ctx, message, grpc.Header(&header))
			if err != nil || response.GetMastership() != nil {
				return response.GetMastership(), err
			}
			a = capacityReply{grants: grantsOf(response), clock: clockOf(header, earlier)}
			return nil, nil
		})
	return a, err
}

// releaseResources gives the resources back. A server that is not the master does not know about them; the one
// that is may not either, which is as good.
func (s *servers) releaseResources(ctx context.Context, resources []string) error {
	message := &doormanpb.ReleaseCapacityRequest{ClientId: &s.config.ID, ResourceId: resources}
	return s.callMaster(ctx, "ReleaseCapacity",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			response, err := at.ReleaseCapacity(ctx, message)
			return response.GetMastership(), err
		})
}
