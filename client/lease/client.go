// Package lease is the client of servers that hand out leases on capacity: Gatehouse, and doorman. One
// [Client] per process asks for all resources that the process uses, in one request every few seconds, and
// keeps how much of each may be used. Limiters over a resource decide by that amount, without a request: a
// [RateLimiter] lets through a number per second, an [Adaptive] finds out by itself how much to ask for, a
// [Gauge] bounds how many hold something at once.
package lease

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"math"
	random "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// A Config says which servers a client asks, and how. Only Servers is needed.
type Config struct {
	// Servers are addresses, host:port, of servers that know the master. They are tried in turn.
	Servers []string

	// ID is the client's name, which no other client of the servers may have. Empty means a generated one,
	// from the host's name, the process id and random bytes.
	ID string

	// TLS says which certificates are trusted and shown; nil speaks without TLS.
	TLS *tls.Config

	// Token says to servers with users who asks; empty sends none. Others can read it on the way to a server
	// without TLS.
	Token string

	// Dial are further options for connections. Credentials among them take the place of TLS.
	Dial []grpc.DialOption

	// Discover asks for the master first, instead of being redirected by the first request.
	Discover bool

	// MinRefresh is the shortest time between two requests that only renew leases; 0 means 5 s. New
	// resources and changed amounts are asked for within a second.
	MinRefresh time.Duration

	// Timeout is how long one request to one server may take; 0 means 5 s.
	Timeout time.Duration

	// Fallback is what may be used of a resource about which no server has answered yet: 0 nothing,
	// -1 any amount.
	Fallback float64

	// Metrics is where counters of requests are registered; nil counts nothing. Clients may share it.
	Metrics prometheus.Registerer

	// OnError is called when a request failed, and when a server's clock differs so much from this one's
	// that leases cannot be judged by it. No request is sent while it runs. So it must not block; Close and
	// Release would block forever there.
	OnError func(error)

	// Now is the clock; nil is time.Now. It must read a monotonic clock too, as time.Now does.
	Now func() time.Time
}

// What a server lets a client ask for in one request.
const (
	maxResources = 10_000
	maxWants     = 1e15
)

// ErrClosed is returned for what its user has closed or released, and for everything of a closed client.
var ErrClosed = gatehouse.Errorf(gatehouse.CodeUnavailable, "capacity: it was closed, nothing can be had")

// A Client holds leases on the resources of one process. Make one with New, end it with Close. It is safe
// for use by many goroutines. Only Close, Ready and Release block, and they end with their context.
type Client struct {
	config  Config
	servers *servers

	mu        sync.Mutex
	holder    *lease.Holder
	resources map[string]*Resource
	releases  []pendingRelease
	alarm     *time.Timer // calls onAlarm when a lease ends, or when a request is due
	closed    bool
	closeCtx  context.Context // context of Close, for the last release

	wake     chan struct{}           // tells sendRequests that there is work
	stop     context.CancelCauseFunc // by Close, with ErrClosed
	done     chan struct{}           // closed when sendRequests has returned
	closeErr error                   // error of the last release; to be read after done
}

// newConn returns a connection as a Config says.
func newConn(config *Config) doormanpb.Conn {
	return doormanpb.Conn{TLS: config.TLS, Token: config.Token, Options: config.Dial}
}

// A pendingRelease is a resource to give back, and the channel for its result.
type pendingRelease struct {
	resource string
	done     chan error
}

// New returns a client, which connects when the first resource is wanted. Its errors have the code
// [gatehouse.CodeInvalid].
func New(config Config) (*Client, error) {
	if len(config.Servers) == 0 || slices.Contains(config.Servers, "") {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"client: Servers is %q, want one address or more, and none that is empty", config.Servers)
	}
	config.Servers = slices.Clone(config.Servers)
	if config.ID == "" {
		config.ID = newID()
	}
	if fault := gatehouse.NameFault(config.ID); fault != "" {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "client: ID %s", fault)
	}
	// Written as !(f >= 0), so that NaN is refused too.
	if f := config.Fallback; f != -1 && (!(f >= 0) || math.IsInf(f, 1)) {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "client: Fallback is %g, want -1, 0 or more", f)
	}
	if config.Timeout <= 0 {
		config.Timeout = 5 * time.Second
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	metrics, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Client{
		config:  config,
		servers: &servers{config: config, metrics: metrics, conn: newConn(&config)},
		holder: lease.NewHolder(lease.HolderConfig{
			MinRefresh: config.MinRefresh, Fallback: config.Fallback, Random: random.Float64,
		}),
		resources: map[string]*Resource{},
		wake:      make(chan struct{}, 1), done: make(chan struct{}),
	}
	// The timer must exist before the goroutine that resets it; an hour is only a start, setAlarm moves it.
	running, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	c.alarm = time.AfterFunc(time.Hour, c.onAlarm)
	go c.sendRequests(running) // returns after Close
	return c, nil
}

// newID returns a name that no other client has, in this process or elsewhere.
func newID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var chance [8]byte
	_, _ = rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%.400s:%d:%s", host, os.Getpid(), hex.EncodeToString(chance[:]))
}

// wantsFault says what is wrong with an amount, nil if nothing. NaN is refused.
func wantsFault(resource string, wants float64) error {
	if wants >= 0 && wants <= maxWants {
		return nil
	}
	return gatehouse.Errorf(gatehouse.CodeInvalid,
		"resource %q: wants %g, want 0 to %g", resource, wants, float64(maxWants))
}

// ID returns the client's name.
func (c *Client) ID() string { return c.config.ID }

// Master returns the address of the server that answered last, empty while there is none.
func (c *Client) Master() string { return c.servers.masterAddress() }

// Resource starts asking for this amount of the resource, 0 or more. The highest priority is served first,
// if the server is configured to. It does not wait for an answer; the resource's Ready does. The error has
// the code [gatehouse.CodeInvalid], also when the client has this resource already, or is ErrClosed.
func (c *Client) Resource(id string, wants float64, priority int64) (*Resource, error) {
	if fault := gatehouse.NameFault(id); fault != "" {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "resource: the name %s", fault)
	}
	if err := wantsFault(id, wants); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, ErrClosed
	case c.resources[id] != nil:
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "resource %q: the client has it already", id)
	// Names to be given back count too: they go into the same kind of request, which servers bound.
	case len(c.resources)+len(c.releases) >= maxResources:
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"resource %q: the client has %d others, want at most that many", id, maxResources)
	}
	r := newResource(c, id, priority, c.config.Fallback)
	c.resources[id] = r
	c.holder.Want(id, priority, wants)
	// It is asked for within a second, before the alarm that was set for the others.
	c.setAlarm()
	return r, nil
}

// Close gives all leases back and ends all resources. It waits until ctx ends, and for one Timeout at most.
// Leases that could not be given back end by themselves, and the error says so. With a ctx that has ended
// already, no lease is given back; context.Background() is fine. A second Close waits for the first, and
// returns the same.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		// For the last release: the context of all other requests ends here.
		c.closeCtx = ctx
		c.alarm.Stop()
		// Callers that wait on a limiter return now, and not only after the last request.
		for _, r := range c.resources {
			r.endResource()
		}
		c.stop(ErrClosed)
	}
	c.mu.Unlock()
	select {
	case <-c.done:
		return c.closeErr
	case <-ctx.Done():
		return gatehouse.Errorf(gatehouse.CodeTimeout, "close: %w", ctx.Err())
	}
}
