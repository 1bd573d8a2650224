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
	// parentTimeout is how long one call to a parent may take; shorter than usual leases, so that there is
	// time to ask another.
	parentTimeout = 3 * time.Second
	// maxHops is how often one question is sent on from one parent to the next. Two that take each
	// other for the master must not keep it going for ever.
	maxHops = 3
	// batchResources is how many resources are asked for in one call, and batchBytes how many bytes they may have:
	// less than the MiB that a call may have, by the largest size of each.
	batchResources = 1000
	batchBytes     = 1<<20 - 4<<10
	// entrySize and demandSize are the most that a resource without its name, and one priority of it, may
	// have.
	entrySize  = 64
	demandSize = 36
	// maxSplits is how many calls that are refused are made again in halves, of all that are made for one
	// question: enough to find some that a parent does not like among thousands. When it likes none, finding
	// that out takes a minute else, while leases run out.
	maxSplits = 50
)

// A parentClient talks to one of several parents: to the one that answered last, or that this one named as
// the master, and when it fails to the next.
type parentClient struct {
	addresses []string
	options   []grpc.DialOption
	now       func() time.Time
	next      int // of addresses, whose turn it is
	splits    int // that may still be made for the question at hand

	address string // of the connection; empty without one
	conn    *grpc.ClientConn
}

// newCaller makes a caller. Without credentials among the options it speaks plain text.
func newCaller(addresses []string, options []grpc.DialOption, now func() time.Time) *parentClient {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	return &parentClient{addresses: addresses, options: append([]grpc.DialOption{plain}, options...), now: now}
}

// closeConn closes the connection.
func (c *parentClient) closeConn() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.address = nil, ""
}

// connectTo sees to a connection to an address.
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

// A parentRequest is one call to a parent. An answer with a mastership is one of a server that is not the master.
type parentRequest func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error)

// callMaster makes a call, and makes it again where the answer says the master is. After a failure the next
// parent has its turn, at the next call.
func (c *parentClient) callMaster(ctx context.Context, call parentRequest) error {
	address := c.address
	if address == "" {
		address = c.addresses[c.next%len(c.addresses)]
	}
	err := c.followRedirects(ctx, address, call)
	// A parent that understood the question is there; asking another would not help.
	if err != nil && !isRefusal(err) {
		c.closeConn()
		c.next++
	}
	return err
}

// followRedirects follows from one parent to the next until one processes the call.
func (c *parentClient) followRedirects(ctx context.Context, address string, call parentRequest) error {
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
	return fmt.Errorf("parent %s: is the %d. one that names another as the master", c.address, maxHops)
}

// isRefusal reports whether a parent understood a question and will not answer it.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}

// requestAll asks for capacity. When a parent refuses, the rest is asked for without what it refuses; answers and
// an error can come together. What the parent has given something of comes first. The order of the rest is
// drawn by lot, so that the same are not always the last.
func (c *parentClient) requestAll(ctx context.Context, name string, asks []capacity.Request) ([]capacity.Grant, error) {
	c.splits = maxSplits
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	slices.SortStableFunc(asks, func(a, b capacity.Request) int {
		return cmp.Compare(min(b.Has.Refresh, 1), min(a.Has.Refresh, 1))
	})
	var answers []capacity.Grant
	var failed error
	for some := range splitIntoBatches(asks) {
		more, err := c.requestBatch(ctx, name, some)
		answers = append(answers, more...)
		failed = firstOf(failed, err)
		if err != nil && !isRefusal(err) {
			break
		}
	}
	return answers, failed
}

// splitIntoBatches cuts what is asked for into pieces that fit into a call.
func splitIntoBatches(asks []capacity.Request) func(yield func([]capacity.Request) bool) {
	return func(yield func([]capacity.Request) bool) {
		from, size := 0, 0
		for i := range asks {
			more := entrySize + len(asks[i].Resource) + demandSize*len(asks[i].Demands)
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

// requestBatch asks for so much that fits into one call. Of what is refused each half is tried alone, so
// that one resource the parent does not like costs the others nothing.
func (c *parentClient) requestBatch(ctx context.Context, name string, asks []capacity.Request) (
	[]capacity.Grant, error,
) {
	request := capacityRequest(name, asks)
	var answer *doormanpb.GetServerCapacityResponse
	var ahead time.Duration
	err := c.callMaster(ctx, func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
		var header metadata.MD
		asked := c.now()
		var err error
		answer, err = to.GetServerCapacity(requestTime(ctx), request, grpc.Header(&header))
		ahead = clockAhead(header, asked)
		return answer.GetMastership(), err
	})
	if err == nil {
		return grantsOf(answer, ahead), nil
	}
	if !isRefusal(err) {
		return nil, err
	}
	if len(asks) == 1 {
		return nil, fmt.Errorf("resource %q: %w", asks[0].Resource, err)
	}
	c.splits--
	if c.splits < 0 {
		return nil, err
	}
	half := len(asks) / 2
	first, failed := c.requestBatch(ctx, name, asks[:half])
	if failed != nil && !isRefusal(failed) {
		return first, failed
	}
	second, err := c.requestBatch(ctx, name, asks[half:])
	if err != nil && !isRefusal(err) {
		failed = err // the worse of the two
	}
	return append(first, second...), firstOf(failed, err)
}

// releaseResources gives back what nobody here uses any more, as far as the parent can be reached.
func (c *parentClient) releaseResources(ctx context.Context, name string, resources []string) {
	for some := range slices.Chunk(resources, batchResources) {
		request := &doormanpb.ReleaseCapacityRequest{ClientId: &name, ResourceId: some}
		call := func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
			answer, err := to.ReleaseCapacity(ctx, request)
			return answer.GetMastership(), err
		}
		if c.callMaster(ctx, call) != nil {
			return
		}
	}
}

// firstOf is the first of two errors that is one.
func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
