package lease_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	server "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
)

const (
	second = time.Second
	// patience is how long anything may take that has no time of its own, on a busy machine.
	patience = time.Minute
	// prompt is how long may take what does not wait for anything.
	prompt = patience / 4
)

// address is a port at which nobody listens.
func address(t *testing.T) string {
	t.Helper()
	at, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// listen listens at the address.
func listen(t *testing.T, at string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// shared is a template for all resources: 100 to share, leases of so long, refreshed each second, safe 7.
func shared(length time.Duration) server.Template {
	safe := 7.0
	return server.Template{
		Glob: "*", Capacity: 100, Safe: &safe,
		Algorithm: server.Algorithm{
			Kind: server.FairShare, LeaseLength: length, RefreshInterval: second,
			Learning: new(time.Duration),
		},
	}
}

// serve starts a server, and returns what kills it: connections are cut, nothing is said.
func serve(t *testing.T, at string, template server.Template) (kill func()) {
	t.Helper()
	s, err := grpcfront.New(grpcfront.Config{Log: slog.New(slog.DiscardHandler), Now: time.Now, Address: at})
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(server.Templates{template}, "test")
	ended := make(chan struct{})
	listener := listen(t, at)
	go func() {
		defer close(ended)
		_ = s.Serve(listener) // ends by being killed
	}()
	kill = sync.OnceFunc(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		s.Stopping()
		_ = s.Shutdown(now)
		<-ended
	})
	t.Cleanup(kill)
	return kill
}

type (
	request  = doormanpb.GetCapacityRequest
	response = doormanpb.GetCapacityResponse
)

// A scripted server answers as a test tells it to, also what no real one should.
type scripted struct {
	doormanpb.UnimplementedCapacityServer
	address string
	get     func(call int, r *request) (*response, error)
	freed   func(r *doormanpb.ReleaseCapacityRequest) // called by releases if it is there

	mu       sync.Mutex
	requests []*request
	released []*doormanpb.ReleaseCapacityRequest
}

// start starts it, at its address if it has one.
func (s *scripted) start(t *testing.T) *scripted {
	t.Helper()
	if s.address == "" {
		s.address = address(t)
	}
	g := grpc.NewServer()
	doormanpb.RegisterCapacityServer(g, s)
	ended := make(chan struct{})
	listener := listen(t, s.address)
	go func() {
		defer close(ended)
		_ = g.Serve(listener)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	return s
}

func (s *scripted) GetCapacity(_ context.Context, r *request) (*response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	call := len(s.requests)
	s.mu.Unlock()
	return s.get(call, r)
}

func (s *scripted) ReleaseCapacity(
	_ context.Context, r *doormanpb.ReleaseCapacityRequest,
) (*doormanpb.ReleaseCapacityResponse, error) {
	s.mu.Lock()
	s.released = append(s.released, r)
	s.mu.Unlock()
	if s.freed != nil {
		s.freed(r)
	}
	return &doormanpb.ReleaseCapacityResponse{}, nil
}

// asked is how often it was asked for capacity.
func (s *scripted) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// redirect is an answer that sends to another server; an empty one says that it is not known.
func redirect(to string) *response {
	m := &doormanpb.Mastership{}
	if to != "" {
		m.MasterAddress = &to
	}
	return &response{Mastership: m}
}

// grants answers each resource with the amount, until expiry, safe 7.
func grants(r *request, amount float64, expiry time.Time) *response {
	answer := &response{}
	for _, resource := range r.GetResource() {
		at, refresh, safe := expiry.Unix(), int64(1), 7.0
		answer.Response = append(answer.Response, &doormanpb.ResourceResponse{
			ResourceId:   resource.ResourceId,
			Gets:         &doormanpb.Lease{ExpiryTime: &at, RefreshInterval: &refresh, Capacity: &amount},
			SafeCapacity: &safe,
		})
	}
	return answer
}

// newClient returns a client that asks as often as servers like, and closes it at the end. Unless a test
// says otherwise it waits for answers as long as they take.
func newClient(t *testing.T, config lease.Config) *lease.Client {
	t.Helper()
	if config.MinRefresh == 0 {
		config.MinRefresh = 100 * time.Millisecond
	}
	if config.Timeout == 0 {
		config.Timeout = patience
	}
	c, err := lease.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// claim asks for a resource.
func claim(t *testing.T, c *lease.Client, id string, wants float64) *lease.Resource {
	t.Helper()
	r, err := c.Resource(id, wants, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// in is a context that ends the test when it takes that long.
func in(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// becomes waits until the capacity is that amount.
func becomes(t *testing.T, r *lease.Resource, want float64) {
	t.Helper()
	late := time.After(patience)
	for {
		changed := r.Changed()
		if r.Capacity() == want {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("capacity of %s after %s = %g, want %g", r.ID(), patience, r.Capacity(), want)
		}
	}
}

// until waits until something is so.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.True(t, what, holds)
}
