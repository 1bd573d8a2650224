package grpc

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// testPatience is how long anything may take that has no time of its own, on a busy machine.
const testPatience = time.Minute

// A tested server listens at a port of its own, with connections to it.
type tested struct {
	*Server
	address string
	conn    *grpc.ClientConn
	client  doormanpb.CapacityClient
}

// start starts a server that shares resources as the templates say. It ends with the test.
func start(tb testing.TB, config Config, templates ...capacity.Template) *tested {
	tb.Helper()
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	s, err := New(config)
	if err != nil {
		tb.Fatal(err)
	}
	if len(templates) > 0 {
		s.Configure(templates, "test")
	}
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "localhost:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	address := listener.Addr().String()
	conn := dial(tb, address)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testPatience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			tb.Errorf("the end of the server = %v, want none", err)
		}
		if err := <-served; err != nil {
			tb.Errorf("serving ended with %v, want none", err)
		}
	})
	return &tested{s, address, conn, doormanpb.NewCapacityClient(conn)}
}

// dial opens connections to a server that end with the test.
func dial(tb testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// in is a context for one call.
func in(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testPatience)
	tb.Cleanup(cancel)
	return ctx
}

// shared is a template for all names, without learning, unless a test says otherwise.
func shared(
	kind capacity.AlgorithmKind, amount float64, change ...func(*capacity.Template),
) capacity.Template {
	none := time.Duration(0)
	t := capacity.Template{Glob: "*", Capacity: amount, Algorithm: capacity.Algorithm{
		Kind: kind, LeaseLength: time.Minute, RefreshInterval: 5 * time.Second, Learning: &none,
	}}
	for _, change := range change {
		change(&t)
	}
	return t
}

// A vote is an election that a test decides.
type vote struct {
	says chan Mastership
	done chan struct{}
}

func newVote() *vote { return &vote{make(chan Mastership), make(chan struct{})} }

// Run implements [Election].
func (v *vote) Run(ctx context.Context, _ string, tell func(Mastership)) error {
	for {
		select {
		case m := <-v.says:
			tell(m)
			v.done <- struct{}{}
		case <-ctx.Done():
			return nil
		}
	}
}

// tell tells the server, and returns when it knows.
func (v *vote) tell(tb testing.TB, m Mastership) {
	tb.Helper()
	ctx := in(tb)
	select {
	case v.says <- m:
	case <-ctx.Done():
		tb.Fatal("nobody listens to the election")
	}
	<-v.done
}
