package grpcmiddleware_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/middleware/grpcmiddleware"
	"github.com/gatehousehq/gatehouse/store/memory"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// reportedBy connects a client that reports to a gate with a server that ends each call and each stream with
// the error in answer, which may change between calls.
func reportedBy(t *testing.T, g gatehouse.Gate, answer *atomic.Pointer[error]) grpc_health_v1.HealthClient {
	t.Helper()
	config := grpcmiddleware.Config{
		Gate: g, Key: byMethod, Rule: gatehouse.Rule{Size: 100, Interval: time.Hour},
		MaxWait: time.Millisecond, Within: time.Minute,
	}
	unary := func(
		ctx context.Context, request any, _ *grpc.UnaryServerInfo, do grpc.UnaryHandler,
	) (any, error) {
		if err := *answer.Load(); err != nil {
			return nil, err
		}
		return do(ctx, request)
	}
	stream := func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		if err := s.SendMsg(&grpc_health_v1.HealthCheckResponse{}); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", "60000"))
		return *answer.Load()
	}
	conn := connect(t, []grpc.ServerOption{grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream)},
		grpc.WithUnaryInterceptor(grpcmiddleware.UnaryClient(config)),
		grpc.WithStreamInterceptor(grpcmiddleware.StreamClient(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1000)))
	return grpc_health_v1.NewHealthClient(conn)
}

// pauseOf is how long a method is still paused.
func pauseOf(t *testing.T, g *gate.Gate, method string) time.Duration {
	t.Helper()
	d, err := g.Do(t.Context(), gatehouse.Key{Kind: gatehouse.SlidingLog, Name: method}, gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.Reported == nil {
		return 0
	}
	return d.Reported.PausedFor
}

// What says when to come back pauses for so long, and what is not about a rate pauses nothing.
func TestWhatPauses(t *testing.T) {
	info, err := status.New(codes.Unavailable, "busy").WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		answer      error
		least, most time.Duration
	}{
		{nil, 0, 0},
		{status.Error(codes.NotFound, "what was that?"), 0, 0},
		{status.Error(codes.ResourceExhausted, "quota"), 500 * time.Millisecond, 1100 * time.Millisecond},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)"), 0, 0},
		{status.Error(codes.Unavailable, "busy"), 0, 0},
		{info.Err(), 15 * time.Second, 22 * time.Second},
	} {
		g := gate.New(memory.New(memory.Config{}), gate.Config{})
		var answer atomic.Pointer[error]
		answer.Store(&test.answer)
		client := reportedBy(t, g, &answer)
		if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) !=
			status.Code(test.answer) {
			t.Errorf("check = %v, want %v", err, test.answer)
		}
		pause := pauseOf(t, g, grpc_health_v1.Health_Check_FullMethodName)
		if pause < test.least || pause > test.most {
			t.Errorf("after %v the limiter is paused for %s, want %s to %s",
				test.answer, pause, test.least, test.most)
		}
		// The client's own limit of a message says RESOURCE_EXHAUSTED too.
		large := &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 2000)}
		if test.answer != nil {
			continue
		}
		if _, err := client.Check(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a large message = %v, want it refused by this client", err)
		}
		if pause := pauseOf(t, g, grpc_health_v1.Health_Check_FullMethodName); pause != 0 {
			t.Errorf("after a message that is too large the limiter is paused for %s", pause)
		}
	}
}

// A reportingGate grants everything, and notes the statuses that are reported.
type reportingGate struct{ reported []int }

// Do implements [gatehouse.Gate].
func (r *reportingGate) Do(
	_ context.Context, _ gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	if cmd.Op == gatehouse.OpFeedback {
		r.reported = append(r.reported, cmd.Feedback.Status)
	}
	return gatehouse.Decision{Outcome: gatehouse.Granted}, nil
}

// The first success after a failure is reported, of a call as of a stream, so that the next pause is short
// again. All others are no news.
func TestSuccessIsReported(t *testing.T) {
	g := new(reportingGate)
	var answer atomic.Pointer[error]
	client := reportedBy(t, g, &answer)
	busy := status.Error(codes.ResourceExhausted, "quota")
	for _, next := range []error{nil, busy, nil, nil, busy, status.Error(codes.NotFound, "no"), nil} {
		answer.Store(&next)
		_, _ = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
	}
	// Each call is followed by a stream, which lets a message through before it ends.
	if want := []int{429, 429, 200, 200, 429, 429, 200, 200}; !slices.Equal(g.reported, want) {
		t.Errorf("reported are %v, want %v", g.reported, want)
	}
}

// A stream that ends with RESOURCE_EXHAUSTED pauses, also after messages that were let through.
func TestStreamIsReported(t *testing.T) {
	g := gate.New(memory.New(memory.Config{}), gate.Config{})
	quota := status.Error(codes.ResourceExhausted, "quota")
	var answer atomic.Pointer[error]
	answer.Store(&quota)
	stream, err := reportedBy(t, g, &answer).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatalf("the first message = %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("the end = %v", err)
	}
	pause := pauseOf(t, g, grpc_health_v1.Health_Watch_FullMethodName)
	if pause < 50*time.Second || pause > 66*time.Second {
		t.Errorf("the limiter is paused for %s, want the minute of the trailer", pause)
	}
}
