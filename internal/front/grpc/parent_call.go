package grpc

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

const (
	// parentTimeout bounds one call to a parent. It is shorter than usual leases, so that there is time to
	// ask another.
	parentTimeout = 3 * time.Second
	// maxHops is how many parents one request visits. Two that take each other for the master must not keep
	// it going forever.
	maxHops = 3
	// batchResources is how many resources one call asks for, and batchBytes how many bytes they may have,
	// by the largest size of each: less than the MiB that a message may have.
	batchResources = 1000
	batchBytes     = 1<<20 - 4<<10
	// entrySize and demandSize are the most that a resource without its name, and one priority of it, may
	// take.
	entrySize  = 64
	demandSize = 36
	// maxSplits is how many refused calls are made again in halves, among all for one request: enough to
	// find a few bad resources among thousands. When the parent refuses all of them, finding that out would
	// take a minute, while leases run out.
	maxSplits = 50
)

// A parentClient sends requests to one of several parents: to the one that answered last or that this one
// named as the master. After a failure it goes on to the next.
type parentClient struct {
	addresses []string
	options   []grpc.DialOption
	now       func() time.Time
	next      int // index into addresses, modulo their number
	splits    int // halvings still allowed for the present request

	address string // of the connection; empty without one
	conn    *grpc.ClientConn
}

// newParentClient returns a client that is not connected yet. Without credentials among the options it speaks
// plain text.
func newParentClient(addresses []string, options []grpc.DialOption, now func() time.Time) *parentClient {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	options = append([]grpc.DialOption{plain}, options...)
	return &parentClient{addresses: addresses, options: options, now: now}
}

// closeConn closes the connection, if there is one.
func (c *parentClient) closeConn() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.address = nil, ""
}

// connectTo makes the connection one to the address.
func (c *parentClient) connectTo(address string) (err error) {
	if c.conn != nil && c.address == address {
		return nil
	}
	c.closeConn()
	c.conn, err = grpc.NewClient(address, c.options...)
	if err != nil {
		return fmt.Errorf("parent %s: %w", address, err)
	}
	c.address = address
	return nil
}

// A parentRequest is one call to a parent. It returns a mastership if that server is not the master.
type parentRequest func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error)

// callMaster makes a call, and makes it again where the answer says the master is. After a failure the next
// call goes to the next parent.
func (c *parentClient) callMaster(ctx context.Context, call parentRequest) error {
	address := c.address
	if address == "" {
		// No connection: at the start, and after a failure.
		address = c.addresses[c.next%len(c.addresses)]
	}
	err := c.followRedirects(ctx, address, call)
	// A parent that refused the request is there; asking another would not help.
	if err != nil && !isRefusal(err) {
		// gRPC would keep trying the broken connection with pauses of its own.
		c.closeConn()
		c.next++
	}
	return err
}

// followRedirects makes the call at one parent after the other, until one is the master.
func (c *parentClient) followRedirects(ctx context.Context, address string, call parentRequest) error {
	// One timeout for all of them together: see parentTimeout.
	ctx, cancel := context.WithTimeout(ctx, parentTimeout)
	defer cancel()
	for range maxHops {
		if err := c.connectTo(address); err != nil {
			return err
		}
		master, err := call(ctx, doormanpb.NewCapacityClient(c.conn))
		switch {
		case err != nil:
			return fmt.Errorf("parent %s: %w", address, err)
		case master == nil:
			return nil
		case master.GetMasterAddress() == "":
			return fmt.Errorf("parent %s: is not the master and knows of none", address)
		}
		address = master.GetMasterAddress()
	}
	// c.address, because address is already the next one.
	return fmt.Errorf("parent %s: is the %d. one that names another as the master", c.address, maxHops)
}

// isRefusal reports whether a parent understood a request and will not answer it.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}

// requestAll asks for capacity, in batches. When a parent refuses some resources, it asks for the rest
// without them; so grants and an error can come together. Resources with a lease of the parent come first.
// The rest is in random order, so that the last ones are not always the same.
func (c *parentClient) requestAll(
	ctx context.Context, name string, asks []capacity.Request,
) ([]capacity.Grant, error) {
	c.splits = maxSplits
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	// In a request Refresh says for how long this server has known all of its clients, which is above 0
	// only for what the parent has granted before. So min(…, 1) makes two groups, 1 before 0; the sort is
	// stable and keeps the random order within both.
	slices.SortStableFunc(asks, func(a, b capacity.Request) int {
		return cmp.Compare(min(b.Has.Refresh, 1), min(a.Has.Refresh, 1))
	})
	var answers []capacity.Grant
	var failed error
	for some := range splitIntoBatches(asks) {
		more, err := c.requestBatch(ctx, name, some)
		answers = append(answers, more...)
		failed = firstOf(failed, err)
		// A parent that is not there will not answer the next batch either.
		if err != nil && !isRefusal(err) {
			break
		}
	}
	return answers, failed
}

// splitIntoBatches cuts requests into pieces that each fit into a call.
func splitIntoBatches(asks []capacity.Request) func(yield func([]capacity.Request) bool) {
	return func(yield func([]capacity.Request) bool) {
		from, size := 0, 0
		for i := range asks {
			more := entrySize + len(asks[i].Resource) + demandSize*len(asks[i].Demands)
			// A single resource that is too large goes alone, and is refused by the parent.
			if i-from == batchResources || i > from && size+more > batchBytes {
				if !yield(asks[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += more
		}
		if from < len(asks) {
			yield(asks[from:])
		}
	}
}

// requestBatch asks for a batch that fits into one call. If it is refused, each half is tried alone, so that
// one resource which the parent refuses does not cost the others their capacity.
func (c *parentClient) requestBatch(ctx context.Context, name string, asks []capacity.Request) (
	[]capacity.Grant, error,
) {
	request := capacityRequest(name, asks)
	var answer *doormanpb.GetServerCapacityResponse
	var ahead time.Duration
	call := func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
		var header metadata.MD
		// Read again for each server, after any redirect.
		asked := c.now()
		var err error
		answer, err = to.GetServerCapacity(requestTime(ctx), request, grpc.Header(&header))
		ahead = clockAhead(header, asked)
		return answer.GetMastership(), err
	}
	err := c.callMaster(ctx, call)
	if err == nil {
		return grantsOf(answer, ahead), nil
	}
	if !isRefusal(err) {
		return nil, err
	}
	if len(asks) == 1 {
		// Found: this is a resource that the parent refuses.
		return nil, fmt.Errorf("resource %q: %w", asks[0].Resource, err)
	}
	c.splits--
	if c.splits < 0 {
		return nil, err
	}
	half := len(asks) / 2
	first, failed := c.requestBatch(ctx, name, asks[:half])
	// The parent has gone; the second half would only wait for another timeout.
	if failed != nil && !isRefusal(failed) {
		return first, failed
	}
	second, err := c.requestBatch(ctx, name, asks[half:])
	if err != nil && !isRefusal(err) {
		failed = err // a failure matters more than a refusal of the first half
	}
	return append(first, second...), firstOf(failed, err)
}

// releaseResources gives back what no client of this server uses any more, if the parent can be reached.
func (c *parentClient) releaseResources(ctx context.Context, name string, resources []string) {
	for some := range slices.Chunk(resources, batchResources) {
		request := &doormanpb.ReleaseCapacityRequest{ClientId: &name, ResourceId: some}
		call := func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			answer, err := to.ReleaseCapacity(ctx, request)
			return answer.GetMastership(), err
		}
		// No second attempt: what is not given back ends by itself.
		if c.callMaster(ctx, call) != nil {
			return
		}
	}
}

// firstOf returns the first error that is not nil.
func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
