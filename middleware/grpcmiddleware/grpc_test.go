package grpcmiddleware_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/middleware/grpcmiddleware"
	"github.com/gatehousehq/gatehouse/store/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// newGate returns a gate of a process.
func newGate() *gate.Gate { return gate.New(memory.New(memory.Config{}), gate.Config{}) }

// byMethod counts each method by a limiter of its own.
func byMethod(_ context.Context, method string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.SlidingLog, Name: method}
}

// connect starts a server of the health service and returns a client's connection to it.
func connect(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(server...)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// A server serves two calls and two streams, and says to the third when to come back.
func TestServer(t *testing.T) {
	config := grpcmiddleware.Config{
		Gate: newGate(), Key: byMethod, Rule: gatehouse.Rule{Size: 2, Interval: time.Hour},
		Within: time.Minute,
	}
	conn := connect(t, []grpc.ServerOption{
		grpc.UnaryInterceptor(grpcmiddleware.UnaryServer(config)),
		grpc.StreamInterceptor(grpcmiddleware.StreamServer(config)),
	})
	client := grpc_health_v1.NewHealthClient(conn)
	for i := range 3 {
		var trailer metadata.MD
		_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		stream, bad := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if bad == nil {
			_, bad = stream.Recv()
		}
		want := codes.OK
		if i == 2 {
			want = codes.ResourceExhausted
		}
		if status.Code(err) != want || status.Code(bad) != want ||
			(len(trailer.Get("grpc-retry-pushback-ms")) == 1) != (i == 2) {
			t.Errorf("call %d = %v, stream %v, trailer %v, want %s", i, err, bad, trailer, want)
		}
	}
}

// An answer that says to come back in half an hour pauses all clients of the limiter.
func TestClientReports(t *testing.T) {
	g := newGate()
	config := grpcmiddleware.Config{
		Gate: g, Key: byMethod, Rule: gatehouse.Rule{Size: 100, Interval: time.Hour},
		MaxWait: time.Millisecond, Within: time.Minute,
	}
	refuse := func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "1800000"))
		return nil, status.Error(codes.ResourceExhausted, "not now")
	}
	conn := connect(t, []grpc.ServerOption{grpc.UnaryInterceptor(refuse)},
		grpc.WithUnaryInterceptor(grpcmiddleware.UnaryClient(config)),
		grpc.WithStreamInterceptor(grpcmiddleware.StreamClient(config)))
	client := grpc_health_v1.NewHealthClient(conn)
	request := &grpc_health_v1.HealthCheckRequest{}
	if _, err := client.Check(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("check = %v, want what the server says", err)
	}
	key := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: grpc_health_v1.Health_Check_FullMethodName}
	d, err := g.Do(t.Context(), key, gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1,
	})
	if err != nil || d.Reported == nil || d.Reported.PausedFor < time.Minute {
		t.Errorf("the limiter = %+v, %v, want it paused", d, err)
	}
	_, err = client.Check(t.Context(), request)
	if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() == "not now" {
		t.Errorf("a call in the pause = %v, want it refused before it is made", err)
	}
	stream, err := client.Watch(t.Context(), request)
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Errorf("another method = %v, want it let through", err)
	}
}
