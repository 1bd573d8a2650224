package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A fleet is clients of several servers. One asks at a time, so that all they hold at an instant is known.
type fleet struct {
	tb    *testing.T
	limit float64 // what all may hold at once

	mu      sync.Mutex
	clients []*treeClient
	least   float64 // what all held, since it was last looked at

	late  time.Duration // by how much the last client was late to refresh, since then
	bears time.Duration // how late they may be without a lease running out; 0: however late
}

// A treeClient is one of doorman's clients, as simple as can be.
type treeClient struct {
	name  string
	wants float64
	to    []string // addresses of its server, and of those that take over
	turn  int
	conns map[string]*grpc.ClientConn
	lease *doormanpb.Lease
	due   time.Time // when it should ask again
}

// join adds a client that asks for the rest of the test.
func (f *fleet) join(name string, wants float64, to ...string) {
	f.tb.Helper()
	c := &treeClient{name: name, wants: wants, to: to, conns: make(map[string]*grpc.ClientConn)}
	f.mu.Lock()
	f.clients = append(f.clients, c)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.tb.Context()))
	ended := make(chan struct{})
	f.tb.Cleanup(func() {
		cancel()
		<-ended
		for _, conn := range c.conns {
			_ = conn.Close()
		}
	})
	go func() {
		defer close(ended)
		for pause := time.Duration(0); ; pause = f.refresh(ctx, c) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
}

// maxAsking is how long a client waits for one server. It is long: an answer that comes later may have made
// its lease smaller, and it would hold what it had.
const maxAsking = 4 * time.Second

// refresh has a client ask, and returns when to do so again. That is due a pause after it asked, which was
// before it was answered: a client may seem late when it is not, and never the other way round.
func (f *fleet) refresh(ctx context.Context, c *treeClient) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	ctx, cancel := context.WithTimeout(ctx, maxAsking)
	defer cancel()
	asked := time.Now()
	lease, err := c.ask(ctx)
	if err != nil {
		c.turn++
		return 200 * time.Millisecond
	}
	pause := time.Duration(lease.GetRefreshInterval()) * time.Second
	c.lease, c.due = lease, asked.Add(pause)
	f.look()
	return pause
}

// ask asks once, or where the answer says the master is.
func (c *treeClient) ask(ctx context.Context) (*doormanpb.Lease, error) {
	address := c.to[c.turn%len(c.to)]
	for range 3 {
		conn := c.conns[address]
		if conn == nil {
			var err error
			if conn, err = grpc.NewClient(address, plainText()); err != nil {
				return nil, err
			}
			c.conns[address] = conn
		}
		answer, err := doormanpb.NewCapacityClient(conn).GetCapacity(ctx, &doormanpb.GetCapacityRequest{
			ClientId: &c.name, Resource: []*doormanpb.ResourceRequest{{
				ResourceId: new("db"), Priority: new(int64), Wants: &c.wants, Has: c.lease,
			}},
		}, grpc.WaitForReady(false))
		switch {
		case err != nil:
			return nil, err
		case len(answer.GetResponse()) == 1:
			return answer.GetResponse()[0].GetGets(), nil
		}
		if address = answer.GetMastership().GetMasterAddress(); address == "" {
			break
		}
	}
	return nil, fmt.Errorf("%s finds no master", c.name)
}

// look checks what all hold now. The caller holds the lock.
func (f *fleet) look() {
	sum := 0.0
	for _, c := range f.clients {
		if c.lease == nil {
			continue
		}
		f.late = max(f.late, time.Since(c.due))
		if time.Now().Before(time.Unix(c.lease.GetExpiryTime(), 0)) {
			sum += c.lease.GetCapacity()
		}
	}
	f.least = min(f.least, sum)
	if sum > f.limit*(1+1e-9) {
		f.tb.Errorf("the clients hold %v together, want at most %v", sum, f.limit)
	}
}

// hold is what each client holds, by name.
func (f *fleet) hold() map[string]float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]float64)
	for _, c := range f.clients {
		if c.lease != nil && time.Now().Before(time.Unix(c.lease.GetExpiryTime(), 0)) {
			all[c.name] = math.Round(c.lease.GetCapacity()*1e6) / 1e6
		}
	}
	return all
}

// wasLate reports whether a client was later to refresh than it can bear, because the machine is busy.
func (f *fleet) wasLate() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bears > 0 && f.late > f.bears
}

// allow sets what all may hold from now on.
func (f *fleet) allow(limit float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = limit
}

// holdsSoon waits until the clients hold so much each.
func (f *fleet) holdsSoon(want map[string]float64) {
	f.tb.Helper()
	until(f.tb, fmt.Sprintf("the clients hold %v", want), func() bool { return maps.Equal(f.hold(), want) })
}

// keepsFor watches for a while, in which all together must never hold less. When one was later to refresh
// than they can bear, because the machine is busy, a lease may have run out.
func (f *fleet) keepsFor(d time.Duration, atLeast float64, during string) {
	f.tb.Helper()
	f.mu.Lock()
	f.least, f.late = f.limit, 0
	f.mu.Unlock()
	shared().passes(f.tb, d) // a server that has nothing to do with it
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	switch {
	case f.least >= atLeast*(1-1e-9):
	case f.bears > 0 && f.late > f.bears:
		f.tb.Logf("%s the clients held %v at one time, when one was late by %v", during, f.least, f.late)
	default:
		f.tb.Errorf("%s the clients held %v at one time, want %v always", during, f.least, atLeast)
	}
}

func plainText() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }
