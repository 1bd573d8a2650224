//go:build linux || darwin

package election

import (
	"strconv"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// Etcd is put back to a backup: its revisions begin anew far below those that were seen. Nobody waits for
// changes that come with the old numbers. It is started again before the ttl has passed, so that a need not
// know of its end before b is master.
func TestEtcdIsRestoredFromBackup(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	client := etcd.Client(t)
	etcd.Stop(0)
	restore := etcd.Save(t, 0)
	etcd.Restart(t, 0)
	etcd.Healthy(t)
	for n := range 100 {
		if _, err := client.Put(t.Context(), "something", strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	url := etcd.URL("/k?ttl=3s")
	a := enter(t, url, "a")
	a.leads(t)
	b := enter(t, url, "b")
	b.follows(t, "a")

	etcd.Kill(0)
	restore()
	etcd.Restart(t, 0)
	a.hears(t, "of another mastership", func(MasterStatus) bool {
		return len(a.intervals())+len(b.intervals()) > 1
	})
	running := map[string]*candidate{"a": a, "b": b}
	leader := anyLeader(t, running)
	delete(running, leader.name)
	leader.leave(t)
	anyLeader(t, running)
}
