package grpc

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// startTLS starts a server that speaks TLS, and asks clients for certificates as auth says.
func startTLS(t *testing.T, auth string) (*tested, *certstest.Authority) {
	t.Helper()
	ca := certstest.New(t)
	config := Config{TLS: &tlsconn.Config{TLS: ca.Open(auth).Config("h2")}}
	return start(t, config, shared(capacity.Static, 10)), ca
}

// ask asks a server for capacity, over TLS as the client's configuration says.
func ask(t *testing.T, address string, config *tls.Config) (float64, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := doormanpb.NewCapacityClient(conn).GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: new("a"), Resource: []*doormanpb.ResourceRequest{want("r", 7)},
	})
	if err != nil {
		return 0, err
	}
	return answer.GetResponse()[0].GetGets().GetCapacity(), nil
}

// Clients of doorman get leases over TLS, with the certificate that is asked for, and not without.
func TestTLS(t *testing.T) {
	s, ca := startTLS(t, certs.AuthRequire)
	stranger := certstest.New(t)
	for name, c := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"right":           {ca.Client(ca.Issue("ci", time.Hour)), true},
		"none":            {ca.Client(), false},
		"expired":         {ca.Client(ca.Issue("ci", -time.Hour)), false},
		"of a stranger":   {ca.Client(stranger.Issue("ci", time.Hour)), false},
		"unknown servers": {stranger.Client(ca.Issue("ci", time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, s.address, c.config)
			switch {
			case c.ok && (err != nil || got != 7):
				t.Errorf("capacity = %v, %v, want 7", got, err)
			case !c.ok && status.Code(err) != codes.Unavailable:
				t.Errorf("capacity = %v, %v, want Unavailable", got, err)
			}
		})
	}
}

// A client without TLS, and one that stops while it shakes hands, hold up neither others nor the end.
func TestTLSHandshakeThatStops(t *testing.T) {
	s, ca := startTLS(t, certs.AuthNone)
	_, err := s.client.Discovery(in(t), new(doormanpb.DiscoveryRequest))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without TLS = %v, want Unavailable", err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got, err := ask(t, s.address, ca.Client()); err != nil || got != 7 {
		t.Errorf("capacity = %v, %v, want 7", got, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("the end of the server = %v, want none", err)
	}
	if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
		t.Errorf("a client that says nothing reads %d bytes, %v, want the end", n, err)
	}
}
