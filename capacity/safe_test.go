package capacity

import (
	"math"
	"testing"
)

// TestSafeCapacity: what the template says, 0 and -1 included; without it the capacity divided by all
// clients, the one that asks included.
func TestSafeCapacity(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	for i, want := range []float64{100, 50, 100.0 / 3} {
		g := v.ask(name(i), 0, Demand{Clients: 1, Wants: 10})
		if !near(g.Safe, want) || g.SafeConfigured {
			t.Errorf("with %d clients: safe %v, configured %v; want %v", i+1, g.Safe, g.SafeConfigured, want)
		}
	}
	if g := v.ask("server", 0, Demand{Clients: 97, Wants: 10}); g.Safe != 1 {
		t.Errorf("with 100 clients: safe %v, want 1", g.Safe)
	}
	for _, want := range []float64{-1, 0, 7.5} {
		v.configure(func(t *Template) { t.Safe = &want })
		if g := v.ask(name(0), 0, Demand{Clients: 1, Wants: 10}); g.Safe != want || !g.SafeConfigured {
			t.Errorf("safe %v, configured %v, want %v", g.Safe, g.SafeConfigured, want)
		}
	}
	v.configure(func(t *Template) { t.Safe, t.Capacity = nil, math.Inf(1) })
	if g := v.ask(name(0), 0, Demand{Clients: 1, Wants: 10}); g.Safe != -1 || g.Lease.Capacity != 10 {
		t.Errorf("without limit: safe %v, capacity %v, want -1 and 10", g.Safe, g.Lease.Capacity)
	}
}

// TestStaticCountsClients: the capacity of a STATIC resource is for each client, also of those behind a
// server.
func TestStaticCountsClients(t *testing.T) {
	v := newBench(t, "STATIC capacity=10")
	for _, c := range []struct {
		clients     int64
		wants, want float64
	}{{1, 50, 10}, {1, 5, 5}, {1000, 50_000, 10_000}, {1000, 500, 500}} {
		g := v.ask("x", 0, Demand{Clients: c.clients, Wants: c.wants})
		if g.Lease.Capacity != c.want {
			t.Errorf("%d clients that want %v have %v, want %v", c.clients, c.wants, g.Lease.Capacity, c.want)
		}
	}
	// One that wants much does not use up what the thousand beside it do not want.
	r := &Request{Resource: thing, Demands: []Demand{{0, 1000, 500}, {1, 1, 500}}, Server: true}
	if g := v.request("server", r); g.Lease.Capacity != 510 {
		t.Errorf("a server has %v for its two priorities, want 510", g.Lease.Capacity)
	}
}

// TestClaimsCountOnlyWhileLearning: what a client says it has changes nothing otherwise, however wrong it is.
func TestClaimsCountOnlyWhileLearning(t *testing.T) {
	for _, has := range oddNumbers {
		v := newBench(t, "FAIR_SHARE capacity=100")
		v.want("a", 60)
		got := []float64{
			v.ask("b", has, Demand{Clients: 1, Wants: 60}).Lease.Capacity,
			v.ask("a", has, Demand{Clients: 1, Wants: 60}).Lease.Capacity,
		}
		if got[0] != 40 || got[1] != 50 {
			t.Errorf("with a claim of %v b and a have %v, want 40 and 50", has, got)
		}
	}
}

// TestClientsOfAServerCountAtOnce: one becomes four, and its share is that of four with the same request.
func TestClientsOfAServerCountAtOnce(t *testing.T) {
	for _, line := range []string{"FAIR_SHARE capacity=100", "PROPORTIONAL_SHARE capacity=100"} {
		v := newBench(t, line)
		v.hold("a", 50, Demand{Clients: 1, Wants: 100})
		v.hold("b", 50, Demand{Clients: 1, Wants: 100})
		a := v.ask("a", 50, Demand{Clients: 4, Wants: 100}).Lease.Capacity
		b := v.want("b", 100)
		again := v.ask("a", 50, Demand{Clients: 4, Wants: 100}).Lease.Capacity
		if a != 50 || b != 20 || again != 80 {
			t.Errorf("%s: a, b, a have %v, %v, %v; want 50, 20, 80", line, a, b, again)
		}
		if got := v.status().Clients; got != 5 {
			t.Errorf("%s: %d clients, want 5", line, got)
		}
	}
}

// TestPrioritiesAreCountedAlways: the sums of each priority are kept, strict or not.
func TestPrioritiesAreCountedAlways(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	v.ask("a", 0, Demand{5, 1, 10})
	v.request("server", &Request{Resource: thing, Server: true, Demands: []Demand{{5, 2, 20}, {-1, 3, 30}}})
	v.ask("b", 0, Demand{7, 1, 1})
	v.ask("b", 0, Demand{-1, 1, 2}) // it changes its priority
	bands := v.resources[thing].bands
	if len(bands) != 2 {
		t.Fatalf("%d priorities, want 2", len(bands))
	}
	for i, want := range []Demand{{5, 3, 30}, {-1, 4, 32}} {
		b := bands[i]
		if got := (Demand{b.priority, b.clients, b.wants.value()}); got != want {
			t.Errorf("sums %+v, want %+v", got, want)
		}
	}
}
