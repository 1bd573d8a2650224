// Package doormanpb has the messages and the service of doorman's protocol, and what all callers of it need.
package doormanpb

import (
	"context"
	"crypto/tls"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Conn is a connection of a client, to one server at a time. The zero Conn has none.
type Conn struct {
	// TLS says which certificates are trusted and shown; nil speaks without TLS.
	TLS *tls.Config

	// Token says who calls; empty sends none.
	Token string

	// Options are those of its connections. Credentials among them take the place of TLS.
	Options []grpc.DialOption

	address string // of conn
	conn    *grpc.ClientConn
}

// Address returns the address it is connected to, "" for none.
func (c *Conn) Address() string { return c.address }

// Connect makes it a connection to the address, and returns the service there.
func (c *Conn) Connect(address string) (CapacityClient, error) {
	if c.conn == nil || c.address != address {
		c.Close()
		// The caller's options come later, so their credentials replace these.
		options := append([]grpc.DialOption{Credentials(c.TLS)}, c.Options...)
		if c.Token != "" {
			options = append(options, grpc.WithPerRPCCredentials(BearerToken(c.Token)))
		}
		conn, err := grpc.NewClient(address, options...)
		if err != nil {
			return nil, err
		}
		c.address, c.conn = address, conn
	}
	return NewCapacityClient(c.conn), nil
}

// A BearerToken says with each call who makes it.
type BearerToken string

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (t BearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: a server on this machine needs none.
func (t BearerToken) RequireTransportSecurity() bool { return false }

// Credentials are the option for connections that speak TLS, or none for nil.
func Credentials(config *tls.Config) grpc.DialOption {
	if config == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

// Close closes the connection, if there is one.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // an error changes nothing
	}
	c.address, c.conn = "", nil
}

// TimeHeader is the metadata with which a client asks for the server's time, in ms since 1970. From it the
// client knows how long a lease lasts. The protocol itself has only the second at which it ends, which means
// nothing to a client whose clock is wrong.
const TimeHeader = "gatehouse-time"

// AskTime makes a call ask for the server's time.
func AskTime(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, TimeHeader, "?")
}

// TimeIn returns the server's time, which came with an answer; the zero time if the server did not say.
func TimeIn(header metadata.MD) time.Time {
	if said := header.Get(TimeHeader); len(said) == 1 {
		if ms, err := strconv.ParseInt(said[0], 10, 64); err == nil && ms > 0 && ms < MaxSeconds*1000 {
			return time.UnixMilli(ms)
		}
	}
	return time.Time{}
}

// NewLease returns a lease as a message; nil when there is none, because a lease of 0 would mean that its
// holder has one of nothing.
func NewLease(l capacity.Lease) *Lease {
	if l.Expiry.IsZero() {
		return nil
	}
	return &Lease{
		ExpiryTime: new(l.Expiry.Unix()), RefreshInterval: new(int64(l.Refresh / time.Second)),
		Capacity: &l.Capacity,
	}
}

// LeaseOf returns the lease of a message. That of nil ended in 1970.
func LeaseOf(m *Lease) capacity.Lease {
	return capacity.Lease{
		Expiry: AtSecond(m.GetExpiryTime()), Refresh: ForSeconds(m.GetRefreshInterval()),
		Capacity: m.GetCapacity(),
	}
}

// MaxSeconds is the most of a Unix time, some 2,000 years. Values beyond any meaningful time are cut, so that
// no sum of times overflows.
const MaxSeconds = 1 << 36

// AtSecond returns the instant of a Unix time.
func AtSecond(seconds int64) time.Time { return time.Unix(min(max(seconds, 0), MaxSeconds), 0) }

// ForSeconds returns the duration of a number of seconds.
func ForSeconds(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(gatehouse.MaxDuration/time.Second))) * time.Second
}

// LearningField is the number of a field of Gatehouse's own in a ResourceResponse, which doorman's clients do
// not know and pass over: for how many seconds, at most, the server still gives clients what they say they
// hold, because it does not know yet which client holds how much. It is absent otherwise.
const LearningField protowire.Number = 100

// LearningSeconds returns that field of a response; 0 when it is absent.
func LearningSeconds(r *ResourceResponse) int64 {
	for rest := []byte(r.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return 0
		}
		if number == LearningField {
			_, _, head := protowire.ConsumeTag(rest)
			if value, size := protowire.ConsumeVarint(rest[head:]); size > 0 {
				return int64(value) // two's complement
			}
		}
		rest = rest[n:]
	}
	return 0
}
