package e2e

import (
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A server that is 50 times as far from etcd as another gets its changes made too: a tenth of what it gets
// alone, and its renews and releases in time.
func TestFarServerOnEtcd(t *testing.T) {
	servers := startApart(t, "etcd://", etcdtest.Start(t, 1).Endpoints()[0])
	near, far := servers.near, servers.far
	const request = "/v1/counter/hot/count"
	c := servers.compare(t, request)
	t.Logf("%+v", c)
	if c.far < c.farAlone/10 {
		t.Errorf("the far server counted %d times, want a tenth of %d", c.far, c.farAlone)
	}
	far.want(t, "/v1/semaphore/hot/acquire?key=a&size=100&expires=600000", "200 a")
	near.begin(t, loadClients/2, "/v1/semaphore/hot/acquire?key=b&size=100&maxwait=0")
	const rounds = 34
	failed := far.failures(t, rounds, []wanted{
		{"/v1/semaphore/hot/renew?key=a", 204},
		{"/v1/semaphore/hot/acquire?key=a%d&size=100&expires=0&maxwait=0", 200},
		{"/v1/semaphore/hot/release?key=a%d", 204},
	})
	if failed > 3*rounds/100 {
		t.Errorf("%d of %d requests at the far server failed, want at most one in a hundred",
			failed, 3*rounds)
	}
	far.wantMetric(t, `gatehouse_store_reachable{store="etcd"} 1`)
}
