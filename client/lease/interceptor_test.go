package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// greeter starts a gRPC server of somebody else, and returns its address.
func greeter(t *testing.T) string {
	t.Helper()
	listener := listen(t, address(t))
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return listener.Addr().String()
}

// TestInterceptorsWait: calls and streams go at the rate of the resource, and fail with gRPC's codes.
func TestInterceptorsWait(t *testing.T) {
	t.Parallel()
	k := newKnob(20)
	limiter := lease.NewRateLimiter(k)
	conn, err := grpc.NewClient(greeter(t),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(lease.UnaryInterceptor(limiter)),
		grpc.WithStreamInterceptor(lease.StreamInterceptor(limiter)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := grpc_health_v1.NewHealthClient(conn)
	call := func(ctx context.Context) error {
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	stream := func(ctx context.Context) error {
		s, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	begun := time.Now()
	for range 3 {
		if err := errors.Join(call(in(t, patience)), stream(in(t, patience))); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < 250*time.Millisecond {
		t.Errorf("6 calls at 20 per second took %s, want 250 ms or more", took)
	}
	k.turn(0)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range map[string]func(context.Context) error{"call": call, "stream": stream} {
		if got := status.Code(do(in(t, 50*time.Millisecond))); got != codes.DeadlineExceeded {
			t.Errorf("%s at 0 = %s, want DeadlineExceeded", name, got)
		}
		if got := status.Code(do(gone)); got != codes.Canceled {
			t.Errorf("%s that is cancelled = %s, want Canceled", name, got)
		}
	}
	limiter.Close()
	for name, do := range map[string]func(context.Context) error{"call": call, "stream": stream} {
		if got := status.Code(do(t.Context())); got != codes.Unavailable {
			t.Errorf("%s after Close = %s, want Unavailable", name, got)
		}
	}
}
