package cas_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// place is a fake store, and how many servers were opened on it.
type place struct {
	store *castest.Store
	next  uint32
}

// Open implements storetest.Place.
func (p *place) Open() storetest.Server {
	p.next++
	backend := p.store.Server(time.Duration(p.next) * 7 * time.Millisecond)
	s := cas.New(backend, cas.Config{Server: p.next, Timeout: 2 * time.Second, Keep: 1})
	return storetest.Server{
		Store: s, FirstTicket: cas.FirstTicket(p.next), Close: s.Close,
		Kill: func() { backend.Cut(true) },
	}
}

// End implements storetest.Place.
func (p *place) End() {}

// setup is what is promised on a fake store.
func setup(leases bool, faults castest.Faults) storetest.Setup {
	return storetest.Setup{
		Start: func(storetest.T) storetest.Place {
			p := &place{store: castest.New(1, leases)}
			p.store.Set(faults)
			return p
		},
		Virtual: true, Servers: 3, Unit: 5 * time.Second, Slack: 1200 * time.Millisecond,
		Linger: cas.DefaultLinger, Holders: cas.DefaultHolders, Lasts: true, Leases: leases,
	}
}

func TestHistories(t *testing.T) {
	faults := castest.Faults{
		Latency: 2 * time.Millisecond, Unsent: 0.01, Twice: 0.01, LostWake: 0.1, TwiceWoken: 0.1,
	}
	for name, leases := range map[string]bool{"redis": false, "etcd": true} {
		t.Run(name, func(t *testing.T) {
			storetest.Histories(t, setup(leases, faults), storetest.Calls(t, 5000))
		})
	}
}

func TestGrantHistories(t *testing.T) {
	faults := castest.Faults{
		Latency: 2 * time.Millisecond, Unsent: 0.01, Twice: 0.01, LostAnswer: 0.01,
		LostWake: 0.1, TwiceWoken: 0.1,
	}
	for name, leases := range map[string]bool{"redis": false, "etcd": true} {
		t.Run(name, func(t *testing.T) {
			storetest.GrantHistories(t, setup(leases, faults), storetest.GrantCalls(t, 1500))
		})
	}
}

func TestContract(t *testing.T) {
	faults := map[string]castest.Faults{
		"quick": {}, "slow": {Latency: 20 * time.Millisecond},
		"unreliable": {
			Latency: 10 * time.Millisecond, Unsent: 0.05, Twice: 0.05, TwiceWoken: 0.3, LostWake: 0.05,
		},
	}
	for name, f := range faults {
		t.Run("redis/"+name, func(t *testing.T) { storetest.Run(t, setup(false, f)) })
		t.Run("etcd/"+name, func(t *testing.T) { storetest.Run(t, setup(true, f)) })
	}
}
