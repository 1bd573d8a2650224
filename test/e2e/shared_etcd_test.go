package e2e

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// Three servers on one etcd are as one, and refuse at once while it is away.
func TestServersShareWhatIsInEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	var servers []*server
	for range 3 {
		flags := append([]string{"--store", cluster.URL("/houses/")}, patient...)
		servers = append(servers, start(t, flags...))
	}
	a, b, c := servers[0], servers[1], servers[2]
	a.want(t, "/v1/counter/visits/count", "200 1")
	b.want(t, "/v1/counter/visits/count", "200 2")
	first := a.fence(t, "/v1/lock/l/acquire?key=a")
	waiter := c.wait(t, "/v1/lock/l/acquire?key=c")
	b.want(t, "/v1/lock/l/release?key=a", "204")
	if answer := waiter.answer(); !answer.is("200 c") || answer.header.Get("Gatehouse-Fence") == "" {
		t.Errorf("who waits at the third server is answered %s, want 200 c and a token", answer)
	}
	c.want(t, "/v1/lock/l/release?key=c", "204")
	if last := b.fence(t, "/v1/lock/l/acquire?key=b"); last <= first {
		t.Errorf("a later fencing token = %d, want more than %d", last, first)
	}
	cluster.Kill(0)
	a.want(t, "/v1/lock/other/acquire?key=a&maxwait=0", "503")
	asked := time.Now()
	for range 20 {
		a.want(t, "/v1/lock/other/acquire?key=a&maxwait=0", "503")
	}
	if took := time.Since(asked); took > 20*time.Second {
		t.Errorf("20 requests while etcd is away took %s, want next to nothing, not 5 s each", took)
	}
	a.want(t, "/readyz", "200 ready\nstore etcd: unreachable for …")
	cluster.Restart(t, 0)
	a.untilReachable(t)
	a.want(t, "/v1/lock/l/release?key=b", "204") // nothing was forgotten
	a.wantMetric(t, `gatehouse_store_reachable{store="etcd"} 1`)
}
