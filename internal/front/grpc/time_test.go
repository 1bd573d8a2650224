package grpc

import (
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Who asks what time it is hears it, by the clock that leases end by; nobody else does.
func TestTimeOfTheServer(t *testing.T) {
	off := 2 * time.Hour
	clock := func() time.Time { return time.Now().Add(off) }
	s := start(t, Config{Now: clock}, shared(capacity.FairShare, 100))
	for _, asks := range []bool{false, true} {
		ctx := in(t)
		if asks {
			ctx = metadata.AppendToOutgoingContext(ctx, "gatehouse-time", "?")
		}
		var header metadata.MD
		answer, err := s.client.GetCapacity(ctx, &doormanpb.GetCapacityRequest{
			ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{want("r", 1)},
		}, grpc.Header(&header))
		if err != nil {
			t.Fatal(err)
		}
		got := header.Get("gatehouse-time")
		if !asks {
			if len(got) != 0 {
				t.Errorf("header for who does not ask = %q, want none", got)
			}
			continue
		}
		if len(got) != 1 {
			t.Fatalf("header for who asks = %q, want one time", got)
		}
		ms, err := strconv.ParseInt(got[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		expiry := time.Unix(answer.GetResponse()[0].GetGets().GetExpiryTime(), 0)
		if left := expiry.Sub(time.UnixMilli(ms)); left > time.Minute || left < time.Minute/2 {
			t.Errorf("lease of a minute by the time of the server = %s", left)
		}
	}
}

// BenchmarkTime: what it costs a call that does not ask.
func BenchmarkTime(b *testing.B) {
	s := start(b, Config{})
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs(":authority", "x",
		"content-type", "application/grpc", "user-agent", "grpc-go", "grpc-accept-encoding", "gzip"))
	b.ReportAllocs()
	for b.Loop() {
		s.sendServerTime(ctx)
	}
}
