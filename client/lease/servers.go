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

// servers finds the one that is master, and sends requests to it. Only sendRequests uses it, except for
// masterAddress.
type servers struct {
	config     Config
	metrics    *metrics
	address    string // that conn is to
	conn       *grpc.ClientConn
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

// connectTo makes conn a connection to the address.
func (s *servers) connectTo(address string) error {
	if s.conn != nil && s.address == address {
		return nil
	}
	s.close()
	// The options of the user come later, so their credentials replace these.
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{plain}, s.config.Dial...)...)
	if err != nil {
		return err
	}
	s.address, s.conn = address, conn
	return nil
}

// close closes the connection, if there is one.
func (s *servers) close() {
	if s.conn != nil {
		_ = s.conn.Close() // an error changes nothing
	}
	s.conn = nil
	s.lastMaster.Store(nil)
}

// findMaster asks for the master, and remembers it.
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

// clockHeader is the metadata in which a server says what time it is, in ms since 1970. The protocol itself
// has only the second at which a lease ends, which means nothing to a client whose clock is wrong.
const clockHeader = "gatehouse-time"

// requestCapacity sends the requests, in one message.
func (s *servers) requestCapacity(ctx context.Context, requests []lease.Request) (capacityReply, error) {
	message := requestMessage(s.config.ID, requests)
	began := s.config.Now()
	var reply capacityReply
	err := s.callMaster(metadata.AppendToOutgoingContext(ctx, clockHeader, "?"), "GetCapacity",
		func(ctx context.Context, at doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			var header metadata.MD
			// Negative or zero. The holder wants the server's clock at the time it made the requests, and
			// servers that were tried before this one may have taken long.
			earlier := began.Sub(s.config.Now())
			response, err := at.GetCapacity(ctx, message, grpc.Header(&header))
			if err != nil || response.GetMastership() != nil {
				return response.GetMastership(), err
			}
			reply = capacityReply{grants: grantsOf(response), clock: clockOf(header, earlier)}
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
