//go:build linux || darwin

package etcd

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A place is a prefix in a cluster.
type place struct {
	t       *testing.T
	cluster *etcdtest.Cluster
	prefix  string
}

// What every store promises.
func TestContract(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	var places atomic.Int64
	storetest.Run(t, storetest.Setup{
		Start: func(storetest.T) storetest.Place {
			return &place{t, cluster, fmt.Sprintf("/place%d", places.Add(1))}
		},
		Servers: 3, Unit: time.Second, Slack: 3 * time.Second, Holders: cas.DefaultHolders, Lasts: true,
		Leases: true,
	})
}

// Open implements storetest.Place.
func (p *place) Open() storetest.Server {
	return p.openBehind(etcdtest.NewLink(p.t, p.cluster), patience/4)
}

// openBehind opens a server behind a link, which waits for so long for its store.
func (p *place) openBehind(link *etcdtest.Link, timeout time.Duration) storetest.Server {
	backend, err := Open(link.URL(p.prefix))
	if err != nil {
		p.t.Fatal(err)
	}
	number := 1 + rand.Uint32N(1<<32-1)
	store := cas.New(backend, cas.Config{Server: number, Timeout: timeout})
	return storetest.Server{
		Store: store, FirstTicket: cas.FirstTicket(number), Kill: link.Hang,
		Close: func() {
			store.Close()
			_ = backend.Close()
		},
	}
}

// End implements storetest.Place.
func (p *place) End() {}
