// Package lease is the client of servers that hand out leases on capacity: Gatehouse, and doorman. One
// [Client] of a process asks for all resources it uses in one request every few seconds, and tells what
// may be used of each. Limiters over a resource decide by that, without a request: a [RateLimiter] lets through so
// many per second, an [Adaptive] finds out by itself how much to ask for, a [Gauge] lets so many hold
// something at once.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	random "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// A Config says which servers a client asks, and how. Only Servers is needed.
type Config struct {
	// Servers are addresses, host:port, of servers that know the master. They are tried in turn.
	Servers []string

	// ID is the client's name, of which there must be no other at the servers; empty makes one up, from
	// the host, the process and chance.
	ID string

	// Dial are options for connections, such as credentials for TLS, which is off without any.
	Dial []grpc.DialOption

	// Discover asks for the master first, instead of being redirected by the first request.
	Discover bool

	// MinRefresh is the shortest time between requests that nothing but time calls for; 0 means 5 s. New
	// resources and other wants are asked for after a second at most.
	MinRefresh time.Duration

	// Timeout is how long one request to one server may take; 0 means 5 s.
	Timeout time.Duration

	// Fallback is what may be used of a resource about which no server has answered yet: 0 nothing,
	// -1 any amount.
	Fallback float64

	// Metrics is where counters of requests are registered; nil counts nothing. Clients may share it.
	Metrics prometheus.Registerer

	// OnError is told why a request failed, and when a server's clock is so far from this one's that
	// leases cannot be judged by it. Nothing is asked while it runs, so it must not block, which Close
	// and Release would do for ever there.
	OnError func(error)

	// Now is the clock; nil is time.Now. It must read a monotonic clock too, as time.Now does.
	Now func() time.Time
}

// What a server lets a client ask for in one request.
const (
	maxResources = 10_000
	maxID        = 512 // bytes
	maxWants     = 1e15
)

// ErrClosed is the error of what was closed or released, by its user or with the client.
var ErrClosed = gatehouse.Errorf(gatehouse.CodeUnavailable, "capacity: it was closed, nothing can be had")

// A Client holds leases on the resources of one process. Make one with New, end it with Close. It is safe
// for use by many goroutines. No call but Close, Ready and Release blocks, and those end with their context.
type Client struct {
	config  Config
	servers *servers

	mu        sync.Mutex
	holder    *lease.Holder
	resources map[string]*Resource
	releases  []pendingRelease
	alarm     *time.Timer // calls tick when a lease ends, or when a request is due
	closed    bool
	closeCtx  context.Context // of Close: for the last release

	wake     chan struct{}           // there is something for loop to do
	stop     context.CancelCauseFunc // by Close, with ErrClosed
	done     chan struct{}           // closed when loop has ended
	closeErr error                   // what the last release failed with; to be read after done
}

// A pendingRelease is a resource to give back, and who waits for that.
type pendingRelease struct {
	resource string
	done     chan error
}

// New returns a client, which connects when the first resource is wanted. The error is of code
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
	if fault := idFault(config.ID); fault != "" {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "client: ID %s", fault)
	}
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
		servers: &servers{config: config, metrics: metrics},
		holder: lease.NewHolder(lease.HolderConfig{
			MinRefresh: config.MinRefresh, Fallback: config.Fallback, Random: random.Float64,
		}),
		resources: map[string]*Resource{},
		wake:      make(chan struct{}, 1), done: make(chan struct{}),
	}
	running, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	c.alarm = time.AfterFunc(time.Hour, c.onAlarm)
	go c.sendRequests(running) // ends by Close
	return c, nil
}

// newID is a name that no other client has, not in this process either.
func newID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var chance [8]byte
	_, _ = rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%.400s:%d:%s", host, os.Getpid(), hex.EncodeToString(chance[:]))
}

// idFault says what is wrong with a name, as servers see it; one wrong name would make a whole request fail.
func idFault(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > maxID:
		return fmt.Sprintf("has %d bytes, want at most %d", len(id), maxID)
	case !utf8.ValidString(id):
		return fmt.Sprintf("%q is no UTF-8", id)
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return fmt.Sprintf("%q has a control character", id)
		}
	}
	return ""
}

// wantsFault says what is wrong with an amount.
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

// Resource begins to ask for so much of the resource, 0 or more. The highest priority is served first,
// where the server is told to. It does not wait for an answer; the resource's Ready does. The error is of
// code [gatehouse.CodeInvalid], also when the client has this resource already, or ErrClosed.
func (c *Client) Resource(id string, wants float64, priority int64) (*Resource, error) {
	if fault := idFault(id); fault != "" {
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
	case len(c.resources)+len(c.releases) >= maxResources:
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"resource %q: the client has %d others, want at most that many", id, maxResources)
	}
	r := newResource(c, id, priority, c.config.Fallback)
	c.resources[id] = r
	c.holder.Want(id, priority, wants)
	c.setAlarm()
	return r, nil
}

// Close gives all leases back and ends all resources. It waits for that until ctx ends, and no longer than
// one Timeout in all; leases that could not be given back end by themselves, and the error says so. A ctx
// that has ended gives nothing back; context.Background() will do. A second Close waits for the first, and
// returns the same.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.closeCtx = true, ctx
		c.alarm.Stop()
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
