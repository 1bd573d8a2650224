package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// templates share by name; nothing is learned, since there are no leases when the server starts.
const templates = `resources:
  - identifier_glob: "fair*"
    capacity: 50000000
    algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 60, learning_mode_duration: 0}
  - identifier_glob: "*"
    capacity: 50000000
    algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 3600, refresh_interval: 60, learning_mode_duration: 0}
`

// bulk is how many resources the large call asks for.
const bulk = 1000

// capacityCalls measures what a call costs a server that hands out leases, with more and more clients.
func capacityCalls(ctx context.Context, b *bench) (text string, rows []row, err error) {
	floor, err := b.start(ctx, b.role("health"))
	if err != nil {
		return "", nil, err
	}
	counts := []int{10, 1_000, 100_000, b.scale(1_000_000, 20_000)}
	calls := b.scale(40_000, 4_000)
	// The floor is the first, and two algorithms follow for each count: the indices below rely on this
	// order.
	measures := []func() (float64, error){func() (float64, error) { return b.callers(ctx, floor, "health", 0, calls) }}
	for _, n := range counts {
		s, err := b.leaseServer(ctx, n)
		if err != nil {
			return "", nil, err
		}
		for _, resource := range []string{"fair", "proportional"} {
			measures = append(measures, func() (float64, error) { return b.callers(ctx, s, resource, n, calls) })
		}
		// One server is enough for the large call: it asks for resources that are otherwise unused, so the
		// leases on the two others do not matter.
		if n == counts[0] {
			// The first calls make the leases and the buffers, which the others find there.
			large := max(calls/100, 40)
			if _, err := b.callers(ctx, s, "bulk", n, large); err != nil {
				return "", nil, err
			}
			measures = append(measures, func() (float64, error) { return b.callers(ctx, s, "bulk", n, large) })
		}
	}
	all, err := b.race(measures...)
	if err != nil {
		return "", nil, err
	}
	health, fair, proportional, large := all[0], all[1], all[2], all[3]
	// The call asks for bulk resources; the row is about one of them.
	for i := range large {
		large[i] /= bulk
	}
	rows = []row{
		{"FAIR_SHARE, 10 clients, against a health check", health, fair, nanoseconds, budget{most: 1.4}, ""},
		{"PROPORTIONAL_SHARE, 10 clients, against a health check", health, proportional, nanoseconds, budget{most: 1.4}, ""},
		{"one of 1,000 resources in one call", nil, large, nanoseconds, budget{1000, true}, ""},
	}
	beside := []string{"doorman at 1,000: 263 µs and 55 µs", "doorman at 10,000: 2,000 µs and 283 µs", ""}
	// Four measures come before: the health check, the two at 10 clients, and the large call.
	for i, n := range counts[1:] {
		rows = append(rows,
			row{fmt.Sprintf("FAIR_SHARE, %d clients, against 10", n), fair, all[4+2*i], nanoseconds, budget{most: 2}, beside[i]},
			row{fmt.Sprintf("PROPORTIONAL_SHARE, %d clients, against 10", n), proportional, all[5+2*i], nanoseconds, budget{most: 2}, ""},
		)
	}
	text = "`GetCapacity` with one resource, 16 calls at a time over one connection, each by another of the\n" +
		"clients that hold leases on it, with other wants each time. The first floor is a bare grpc-go\n" +
		"server that answers health checks; then it is the same call with 10 clients. All have one core; the\n" +
		"client is grpc-go on the other. The time is the server's, in user mode and in the kernel, divided\n" +
		"by the calls. doorman's own figures, for its two algorithms, were measured elsewhere."
	return text, rows, nil
}

// leaseServer starts the server built from here, with a lease of each client on each of two resources.
func (b *bench) leaseServer(ctx context.Context, clients int) (*server, error) {
	path := filepath.Join(b.dir, "templates.yaml")
	if err := os.WriteFile(path, []byte(templates), 0o600); err != nil {
		return nil, err
	}
	s, err := b.start(ctx, func(address string) []string {
		return []string{
			b.ours, "serve", "--log-level", "error", "--http", "", "--resp", "", "--grpc", address, manyPerAddress,
			"--capacity-config", "file:" + path,
		}
	})
	if err != nil {
		return nil, err
	}
	// Filled before anything is measured: the calls that follow are refreshes.
	_, err = b.callers(ctx, s, "fill", clients, clients)
	return s, err
}

// callers returns the server's nanoseconds of CPU for one of the calls.
func (b *bench) callers(ctx context.Context, s *server, what string, clients, calls int) (float64, error) {
	_, core, err := cores()
	if err != nil {
		return 0, err
	}
	job := fmt.Sprintf("%s %d %d", what, clients, calls)
	used, err := s.cpuWhile(func() error {
		return pinned(ctx, core, b.self, "-as", "leases", s.address, job).Run()
	})
	return float64(used) / float64(calls), err
}

// serveHealth is the floor.
func serveHealth(address string) error {
	listener, err := net.Listen("tcp", address) //nolint:noctx // until the process ends
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	return s.Serve(listener)
}

// callCapacity makes calls, 16 at a time: what, for how many clients, how many.
func callCapacity(address, job string) error {
	fields := strings.Fields(job)
	clients, err := strconv.Atoi(fields[1])
	if err != nil {
		return err
	}
	calls, err := strconv.Atoi(fields[2])
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the process ends
	c := &caller{
		what: fields[0], clients: clients,
		capacity: doormanpb.NewCapacityClient(conn), health: grpc_health_v1.NewHealthClient(conn),
	}
	const crowd = 16
	// Ten minutes are ample for a million leases; they only end what hangs.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	var made atomic.Int64
	errs := make([]error, crowd)
	for i := range crowd {
		group.Go(func() {
			// A number is drawn once by all together: fill has to lease for each client exactly once.
			for n := made.Add(1); errs[i] == nil && n <= int64(calls); n = made.Add(1) {
				errs[i] = c.call(ctx, int(n-1))
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A caller makes calls of one sort.
type caller struct {
	what     string
	clients  int
	capacity doormanpb.CapacityClient
	health   grpc_health_v1.HealthClient
}

func (c *caller) call(ctx context.Context, n int) error {
	switch c.what {
	case "health":
		_, err := c.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	// In order, both resources in one call: afterwards each client holds a lease on both.
	case "fill":
		return c.lease(ctx, n, "fair", "proportional")
	case "bulk":
		names := make([]string, bulk)
		for i := range names {
			names[i] = "bulk-" + strconv.Itoa(i)
		}
		// The same clients come again and again, so all but the first calls refresh.
		return c.lease(ctx, n%c.clients, names...)
	default:
		// At random, as real clients come: in order, the next lease might already be in the processor's
		// cache.
		return c.lease(ctx, rand.IntN(c.clients), c.what) //nolint:gosec // any
	}
}

// lease asks for the resources as one of the clients, and expects an answer for each.
func (c *caller) lease(ctx context.Context, client int, resources ...string) error {
	id := leaseID(client)
	request := &doormanpb.GetCapacityRequest{ClientId: &id}
	for _, resource := range resources {
		// Other wants each time, which changes the order of all: the dearer case. The mean of 100 is twice
		// what there is for each at a million clients.
		wants, priority := 200*rand.Float64(), int64(0) //nolint:gosec // any
		request.Resource = append(request.Resource, &doormanpb.ResourceRequest{
			ResourceId: &resource, Wants: &wants, Priority: &priority,
		})
	}
	answer, err := c.capacity.GetCapacity(ctx, request)
	if err != nil {
		return err
	}
	if len(answer.GetResponse()) != len(resources) {
		return fmt.Errorf("%d resources were answered, want %d", len(answer.GetResponse()), len(resources))
	}
	return nil
}
