package e2e

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// With JARL a place counts once its connection is accepted, whatever its client does then. A client that has
// only ended its sending half is answered, except in line: there it has left, and takes nothing.
func TestJARLClientsThatLeave(t *testing.T) {
	t.Parallel()
	flags := func(t *testing.T) []string {
		t.Helper()
		return []string{"--config", configFile(t,
			"jarl: [{listen: '127.0.0.1:0', name: matrix, requests: 1, period: 1h}]\n")}
	}
	eachStore(t, flags, func(t *testing.T, s *server) {
		const clients = 12
		ways := []way{halfClosed, hungUp, wasReset}
		to := s.jarlAddress(t, "matrix")
		var reading []*net.TCPConn
		for i := range clients {
			conn := dialTCP(t, to)
			w := ways[i%len(ways)]
			if err := w.do(conn); err != nil {
				t.Fatal(err)
			}
			if w == halfClosed {
				reading = append(reading, conn)
			}
		}
		seen := make(map[string]bool)
		for _, conn := range reading {
			text, err := io.ReadAll(conn)
			place := string(text)
			if _, wrong := strconv.ParseFloat(place, 64); err != nil || wrong != nil || seen[place] {
				t.Errorf("a half-closed client read %q, %v, want a place of its own", text, err)
			}
			seen[place] = true
		}
		until(t, "each connection has a place", func() bool {
			return s.stat(t, "pace/matrix", "acquired") == clients
		})
		waiter := s.wait(t, "/v1/pace/matrix/acquire?interval=3600000")
		conn := dialTCP(t, to)
		s.inLine(t, "pace/matrix", 2)
		_ = halfClosed.do(conn)
		if text, err := io.ReadAll(conn); err != nil || len(text) > 0 {
			t.Errorf("a client that leaves the line read %q, %v, want nothing", text, err)
		}
		s.inLine(t, "pace/matrix", 1)
		waiter.hangUp()
		s.inLine(t, "pace/matrix", 0)
		if got := s.stat(t, "pace/matrix", "acquired"); got != clients {
			t.Errorf("after two have left the line %d places are taken, want %d", got, clients)
		}
	})
}

// dialTCP connects for the length of the test.
func dialTCP(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A lease that was given to a client that has left is not taken back. It ends as leases do, and until then
// nobody else has it.
func TestLeaseOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	s := startCapacity(t, "--capacity-config", writeTemplates(t, `
resources:
  - identifier_glob: "*"
    capacity: 10
    algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1, learning_mode_duration: 0}
`))
	for _, w := range []way{halfClosed, hungUp, wasReset} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			resource := fresh(t)
			lease := leaseAndLeave(t, s, w, resource)
			if lease.GetCapacity() != 10 {
				t.Fatalf("the client that is about to leave gets %v, want 10", lease)
			}
			next := doormanpb.NewCapacityClient(s.dialGRPC(t))
			until(t, "another client gets all of it", func() bool {
				got := askLease(t, next, "next", resource)
				// Leases end at a whole second that is not before their end.
				ended := time.Now().Unix() >= lease.GetExpiryTime()-1
				if got.GetCapacity() > 0 && !ended {
					t.Errorf("while the lease of who left lasts, another client gets %v, want 0", got)
				}
				return got.GetCapacity() == 10
			})
		})
	}
}

// leaseAndLeave has a client ask for all there is of a resource, and leave behind its request.
func leaseAndLeave(t *testing.T, s *server, w way, resource string) *doormanpb.Lease {
	t.Helper()
	var tcp *net.TCPConn
	conn, err := grpc.NewClient(s.grpcAddress(t), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			tcp = dialTCP(t, s.grpcAddress(t))
			return tcp, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	lease := askLease(t, doormanpb.NewCapacityClient(conn), "leaver", resource)
	if err := w.do(tcp); err != nil {
		t.Error(err)
	}
	return lease
}

// askLease asks for 10 of a resource.
func askLease(t *testing.T, c doormanpb.CapacityClient, id, resource string) *doormanpb.Lease {
	t.Helper()
	answer, err := c.GetCapacity(soon(t), &doormanpb.GetCapacityRequest{
		ClientId: &id, Resource: []*doormanpb.ResourceRequest{{
			ResourceId: &resource, Priority: new(int64(0)), Wants: new(10.0),
		}},
	})
	if err != nil || len(answer.GetResponse()) != 1 {
		t.Fatalf("%s asks = %v, %v, want one lease", id, answer, err)
	}
	return answer.GetResponse()[0].GetGets()
}
