//go:build linux || darwin

package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Somebody ends all leases. What was held under them is free, and new ones are made.
func TestLeasesAreGone(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	s := serve(t, cluster.URL(""))
	lock, counter := named(gatehouse.Lock, "l"), named(gatehouse.Counter, "c")
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	for range 3 {
		s.do(t, lock, acquire("one"), gatehouse.Granted)
		s.do(t, counter, count, gatehouse.Granted)
		response, err := client.Leases(t.Context())
		if err != nil || len(response.Leases) < 2 {
			t.Fatalf("leases = %v, %v, want that of the hold and those of records", response, err)
		}
		for _, lease := range response.Leases {
			// The server may have ended one itself by now.
			_, err := client.Revoke(t.Context(), lease.ID)
			if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Fatal(err)
			}
		}
		if d := s.do(t, counter, count, gatehouse.Granted); d.Value != 1 {
			t.Errorf("a count after its record has gone answers %d, want 1", d.Value)
		}
		s.do(t, lock, acquire("two"), gatehouse.Granted)
		s.do(t, lock, release("two"), gatehouse.Granted)
	}
}

// Etcd is put back to a backup, whose revisions are far below those that were seen. The servers go on, and
// wake each other as before.
func TestEtcdIsRestoredFromBackup(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	all := servers(t, cluster, 2)
	lock, counter := named(gatehouse.Lock, "l"), named(gatehouse.Counter, "c")
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	all[0].do(t, lock, acquire("one"), gatehouse.Granted)
	all[0].do(t, counter, count, gatehouse.Granted)
	cluster.Stop(0)
	restore := cluster.Save(t, 0)
	cluster.Restart(t, 0)
	cluster.Healthy(t)
	for range 50 {
		all[0].do(t, counter, count, gatehouse.Granted)
	}
	all[0].do(t, lock, release("one"), gatehouse.Granted)

	cluster.Kill(0)
	restore()
	cluster.Restart(t, 0)
	cluster.Healthy(t)
	until(t, "the servers to use it", func() bool {
		d, err := all[1].Do(t.Context(), counter, count)
		return err == nil && d.Value < 20
	})
	all[1].do(t, lock, acquire("two"), gatehouse.Refused) // it is held as it was then
	var took time.Duration
	for range 10 { // their watches notice within some beats
		cmd := acquire("two")
		cmd.MaxWait = patience
		waits := all[1].later(t, lock, cmd)
		until(t, "somebody to wait", func() bool { return all[1].Waiting() == 1 })
		began := time.Now()
		all[0].do(t, lock, release("one"), gatehouse.Granted)
		took = granted(t, waits).at.Sub(began)
		all[1].do(t, lock, release("two"), gatehouse.Granted)
		all[0].do(t, lock, acquire("one"), gatehouse.Granted)
	}
	t.Logf("the last of ten waits ended %v after the release", took)
}
