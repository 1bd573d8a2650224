package grpc

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
)

// goAwayPing is what gRPC sends with its first GOAWAY. When its answer comes it takes no more calls.
var goAwayPing = [8]byte{1, 6, 1, 8, 0, 3, 3, 9}

// Calls that come behind a GOAWAY get no answer, and the connection stays for those that were there before.
// What is noted of them counts.
func TestCallsBehindGoAway(t *testing.T) {
	const most = 200_000
	s := start(t, Config{Budget: budget.New(1 << 20), ReadTimeout: time.Minute},
		shared(capacity.FairShare, 100))
	c := newRawClient(t, s)
	c.begin(nil, false) // keeps the connection
	await.True(t, "the call has come", func() bool { return s.conns.calls.Load() == 1 })
	s.Stopping()
	go s.grpc.GracefulStop() // ends with the connection
	for range most {
		if s.cut() {
			break
		}
		_ = c.WritePing(true, goAwayPing)
		c.begin(nil, false)
	}
	await.True(t, "the connection is cut", s.cut)
	await.True(t, "nothing is counted", func() bool { return s.conns.budget.Used() == 0 })
}
