package redis_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// place is a Redis, and how many servers were opened on it.
type place struct {
	t       *testing.T
	address string
	servers uint32
}

// Open implements storetest.Place.
func (p *place) Open() storetest.Server {
	backend, err := redis.Open("redis://" + p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	redistest.Until(p.t, func() bool { return backend.Ping(soonest(p.t)) == nil })
	p.servers++
	s := cas.New(backend, cas.Config{
		Server: p.servers, Linger: 500 * time.Millisecond, Keep: 500 * time.Millisecond,
		Timeout: patience / 4,
	})
	return storetest.Server{
		Store: s, FirstTicket: cas.FirstTicket(p.servers), Kill: backend.Close,
		Close: func() {
			s.Close()
			backend.Close()
		},
	}
}

// End implements storetest.Place.
func (p *place) End() {}

// What every store promises, with three servers.
func TestContract(t *testing.T) { storetest.Run(t, setup(t)) }

func TestHistories(t *testing.T) { storetest.Histories(t, setup(t), storetest.Calls(t, 4000)) }

// Of the answers of Redis one in a hundred is lost, with its connection and all that were under way on it.
func TestGrantHistories(t *testing.T) {
	s := setup(t)
	s.Start = func(storetest.T) storetest.Place {
		proxy := redistest.StartProxy(t, redistest.Start(t).Address, 1)
		proxy.Lose(0.01)
		return &place{t: t, address: proxy.Address}
	}
	storetest.GrantHistories(t, s, storetest.GrantCalls(t, 1500))
}

func setup(t *testing.T) storetest.Setup {
	t.Helper()
	return storetest.Setup{
		Start: func(storetest.T) storetest.Place {
			return &place{t: t, address: redistest.Start(t).Address}
		},
		Servers: 3, Unit: 400 * time.Millisecond, Slack: 300 * time.Millisecond,
		Linger: 500 * time.Millisecond, Holders: cas.DefaultHolders, Lasts: true,
	}
}
