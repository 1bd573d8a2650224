package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// leaseID names client i, as long as a host, a port and a number are.
func leaseID(i int) string { return fmt.Sprintf("worker-%08d.example", i) }

// sharing are the algorithms whose cost could grow with the number of clients.
var sharing = []capacity.AlgorithmKind{capacity.FairShare, capacity.ProportionalShare}

// A crowd is a server with one resource and the clients that hold leases on it. Together they want twice
// of what there is.
type crowd struct {
	server *capacity.Server
	now    time.Time
	ids    []string
	wanted []float64
	random *rand.Rand
	ask    capacity.Request
}

func newCrowd(kind capacity.AlgorithmKind, clients int) (*crowd, error) {
	none := time.Duration(0)
	c := &crowd{
		server: capacity.NewServer(capacity.Limits{}), now: time.Unix(1e9, 0),
		random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same every time
		ask:    capacity.Request{Resource: "resource", Demands: []capacity.Demand{{Clients: 1}}},
	}
	c.server.Lead(c.now, time.Time{})
	c.server.Configure(c.now, capacity.Templates{{Glob: "*", Capacity: 50 * float64(clients), Algorithm: capacity.Algorithm{
		Kind: kind, LeaseLength: time.Hour, RefreshInterval: time.Minute, Learning: &none,
	}}})
	for i := range clients {
		c.ids, c.wanted = append(c.ids, leaseID(i)), append(c.wanted, 0)
		// All clients have a lease before the first measurement, so each later call is a refresh.
		if err := c.refresh(i, c.wants()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *crowd) wants() float64 { return 200 * c.random.Float64() }

func (c *crowd) refresh(client int, wants float64) error {
	c.wanted[client] = wants
	c.ask.Demands[0].Wants = wants
	_, err := c.server.Lease(c.now, c.ids[client], &c.ask)
	return err
}

// decisions measures what one refresh costs, with more and more clients on one resource.
func decisions(_ context.Context, b *bench) (text string, rows []row, err error) {
	for _, kind := range sharing {
		some, err := b.refreshes(kind)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, some...)
	}
	// Memory is measured once: what else the machine does has no influence on it.
	memory, err := b.leaseMemory()
	if err != nil {
		return "", nil, err
	}
	rows = append(rows, row{
		"memory of a lease besides its client's name", nil, series{memory}, bytes, budget{200, true}, "",
	})
	text = "A client that is drawn at random refreshes its lease, in a process without a network. It wants the\n" +
		"same as before, or something else, which changes the order of all. The floor is the same with 10 clients. doorman's decision took\n" +
		"5 µs at 10 clients and 11 ms at 10,000 for FAIR_SHARE, 3 µs and 1.1 ms for PROPORTIONAL_SHARE,\n" +
		"measured elsewhere."
	return text, rows, nil
}

// refreshes compares what refreshes cost with more and more clients. Most clients want what they wanted
// before; the others change the order of all.
func (b *bench) refreshes(kind capacity.AlgorithmKind) ([]row, error) {
	// The first count is the floor of all others.
	counts := []int{10, 1_000, 100_000, b.scale(1_000_000, 200_000)}
	var measures []func() (float64, error)
	for _, n := range counts {
		c, err := newCrowd(kind, n)
		if err != nil {
			return nil, err
		}
		// Two measures on one crowd: the second changes what the first finds, but not how many clients
		// there are.
		steady := func(client int) float64 { return c.wanted[client] }
		other := func(int) float64 { return c.wants() }
		measures = append(measures, b.refreshing(c, steady), b.refreshing(c, other))
	}
	all, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, n := range counts {
		rows = append(rows,
			// Even indices are the same wants, odd ones the other wants: each is set against its own kind
			// at 10 clients.
			row{fmt.Sprintf("%s, %d clients, the same wants", kind, n), all[0], all[2*i], nanoseconds, budget{}, ""},
			row{fmt.Sprintf("%s, %d clients, other wants", kind, n), all[1], all[2*i+1], nanoseconds, budget{}, ""},
		)
	}
	return rows, nil
}

// refreshing measures one refresh by a client that is drawn at random.
func (b *bench) refreshing(c *crowd, wants func(client int) float64) func() (float64, error) {
	var failed error
	measure := b.perOp(func(n int) {
		for range n {
			client := c.random.IntN(len(c.ids))
			if err := c.refresh(client, wants(client)); err != nil {
				// The loop goes on: a refresh that fails spoils the figure, which is then returned with the
				// error.
				failed = err
			}
		}
	})
	return func() (float64, error) {
		x, _ := measure()
		return x, failed
	}
}

// leaseMemory returns the bytes that a lease takes.
func (b *bench) leaseMemory() (float64, error) {
	n := b.scale(1_000_000, 100_000)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = leaseID(i)
	}
	// The names were made above, so their bytes are in both readings.
	before := heap()
	c, err := newCrowd(capacity.FairShare, 1)
	if err != nil {
		return 0, err
	}
	// wanted belongs to the bench, and adds 8 bytes to the figure of each lease.
	c.ids, c.wanted = ids, make([]float64, n)
	for i := range ids {
		if err := c.refresh(i, c.wants()); err != nil {
			return 0, err
		}
	}
	used := heap() - before
	runtime.KeepAlive(c)
	return used / float64(n), nil
}
