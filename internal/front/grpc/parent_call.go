package grpc

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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
	conn      doormanpb.Conn
	now       func() time.Time
	next      int // index into addresses, modulo their number
	splits    int // halvings still allowed for the present request
}

// A parentRequest is one call to a parent. It returns a mastership if that server is not the master.
type parentRequest func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error)

// callMaster makes a call, and makes it again where the answer says the master is. After a failure the next
// call goes to the next parent.
func (c *parentClient) callMaster(ctx context.Context, call parentRequest) error {
	// There is no connection at the start, and after a failure.
	address := cmp.Or(c.conn.Address(), c.addresses[c.next%len(c.addresses)])
	err := c.followRedirects(ctx, address, call)
	// A parent that refused the request is there; asking another would not help.
	if err != nil && !isRefusal(err) {
		// gRPC would keep trying the broken connection with pauses of its own.
		c.conn.Close()
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
		var master *doormanpb.Mastership
		to, err := c.conn.Connect(address)
		if err == nil {
			master, err = call(ctx, to)
		}
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
	// Not address, which is already the next one.
	return fmt.Errorf("parent %s: is the %d. one that names another as the master", c.conn.Address(), maxHops)
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
		failed = cmp.Or(failed, err)
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
		answer, err = to.GetServerCapacity(doormanpb.AskTime(ctx), request, grpc.Header(&header))
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
	return append(first, second...), cmp.Or(failed, err)
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

// capacityRequest makes the message to a parent. Numbers above what any server accepts are cut to that.
func capacityRequest(name string, asks []capacity.Request) *doormanpb.GetServerCapacityRequest {
	message := &doormanpb.GetServerCapacityRequest{ServerId: &name}
	for i := range asks {
		ask := &asks[i]
		has := ask.Has
		has.Capacity = sanitizeHas(has.Capacity)
		entry := &doormanpb.ServerCapacityResourceRequest{
			ResourceId: &ask.Resource, Has: doormanpb.NewLease(has),
		}
		for _, d := range ask.Demands {
			// A sum over many clients may exceed what one request may ask for, and would be refused.
			entry.Wants = append(entry.Wants, &doormanpb.PriorityBandAggregate{
				Priority:   new(d.Priority),
				NumClients: new(min(d.Clients, maxClients)),
				Wants:      new(min(d.Wants, maxAmount)),
			})
		}
		message.Resource = append(message.Resource, entry)
	}
	return message
}

// grantsOf returns the grants of a parent whose clock is ahead by that much.
func grantsOf(message *doormanpb.GetServerCapacityResponse, ahead time.Duration) []capacity.Grant {
	answers := make([]capacity.Grant, 0, len(message.GetResponse()))
	// A resource without a lease becomes a grant of nothing that has ended.
	for _, entry := range message.GetResponse() {
		answer := capacity.Grant{
			Resource: entry.GetResourceId(), Lease: doormanpb.LeaseOf(entry.GetGets()), Ahead: ahead,
			// An explicit 0 differs from a field that is not there.
			Safe: entry.GetSafeCapacity(), SafeConfigured: entry.SafeCapacity != nil,
		}
		if block := entry.GetAlgorithm(); block != nil {
			answer.Algorithm = parentAlgorithm(block)
		}
		answers = append(answers, answer)
	}
	return answers
}

// parentAlgorithm returns the algorithm that a parent uses for a resource. One that this server does not
// know is treated as FAIR_SHARE, which never grants more than there is.
func parentAlgorithm(block *doormanpb.Algorithm) *capacity.Algorithm {
	algorithm := &capacity.Algorithm{
		Kind:            capacity.FairShare,
		LeaseLength:     doormanpb.ForSeconds(block.GetLeaseLength()),
		RefreshInterval: doormanpb.ForSeconds(block.GetRefreshInterval()),
	}
	// The numbers of the kinds are the protocol's, so those that both know need no table.
	if kind := block.GetKind(); kind >= 0 && kind <= doormanpb.Algorithm_FAIR_SHARE {
		algorithm.Kind = capacity.AlgorithmKind(kind)
	}
	if block.LearningModeDuration != nil {
		learning := doormanpb.ForSeconds(block.GetLearningModeDuration())
		algorithm.Learning = &learning
	}
	for _, p := range block.GetParameters() {
		algorithm.Parameters = append(algorithm.Parameters,
			capacity.AlgorithmParameter{Name: p.GetName(), Value: p.GetValue()})
	}
	return algorithm
}

// clockAhead returns how far ahead a parent's clock is, for a call that began at asked. The parent may have
// read it later, so a lease seems a little shorter than it is, and never longer. It is 0 for a parent that
// does not say the time, as doorman's does not.
func clockAhead(header metadata.MD, asked time.Time) time.Duration {
	if said := doormanpb.TimeIn(header); !said.IsZero() {
		return said.Sub(asked)
	}
	return 0
}
