package grpc

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"golang.org/x/net/http2"
)

// goAwayPing is what gRPC sends with its first GOAWAY. When its answer comes it takes no more calls.
var goAwayPing = [8]byte{1, 6, 1, 8, 0, 3, 3, 9}

// Calls that come behind a GOAWAY get no answer, and the connection stays for those that were there before.
// What is noted of them counts.
func TestCallsBehindGoAway(t *testing.T) {
	const most = 200_000
	s := start(t, Config{Budget: budget.New(1 << 20), ReadTimeout: time.Minute},
		shared(capacity.FairShare, 100))
	c := newReadingClient(t, s)
	c.begin(nil, false) // keeps the connection
	await.True(t, "the call has come", func() bool { return s.conns.calls.Load() == 1 })
	s.Stopping()
	go s.grpc.GracefulStop() // ends with the connection
	readGoAway(t, c)
	_ = c.WritePing(true, goAwayPing)
	for range most {
		if s.cut() {
			break
		}
		c.begin(nil, false)
	}
	await.True(t, "the connection is cut", s.cut)
	await.True(t, "nothing is counted", func() bool { return s.conns.budget.Used() == 0 })
}

// readGoAway reads what the server says up to its GOAWAY and the ping behind it. What comes later is thrown
// away.
func readGoAway(t *testing.T, c *rawClient) {
	t.Helper()
	in := http2.NewFramer(nil, c.Conn)
	for pinged := false; !pinged; {
		frame, err := in.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		ping, ok := frame.(*http2.PingFrame)
		pinged = ok && ping.Data == goAwayPing
	}
	go func() { _, _ = io.Copy(io.Discard, c.Conn) }() // ends with the connection
}

// newReadingClient is newRawClient for a test that reads what the server says.
func newReadingClient(t *testing.T, s *tested, settings ...http2.Setting) *rawClient {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(in(t), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{Conn: conn, out: bufio.NewWriter(conn), next: 1}
	c.Framer = http2.NewFramer(c.out, nil)
	_, _ = c.out.WriteString(http2.ClientPreface)
	_ = c.WriteSettings(settings...)
	c.setCalls("/doorman.Capacity/GetCapacity")
	return c
}
