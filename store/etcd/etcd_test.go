//go:build linux || darwin

package etcd

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// Acquired at a server, released at another one, got by who waits at a third one, which hears of it by the
// watch and not by looking again.
func TestReleaseElsewhereWakes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	all := servers(t, cluster, 3)
	key := named(gatehouse.Lock, "a/b")
	first := all[0].do(t, key, acquire("one"), gatehouse.Granted)
	for n := range 20 {
		cmd := acquire("two")
		cmd.MaxWait = patience
		waits := all[2].later(t, key, cmd)
		until(t, "somebody to wait", func() bool { return all[2].Waiting() == 1 })
		all[1].do(t, key, release("one"), gatehouse.Granted)
		began := time.Now()
		second := wait(t, waits, gatehouse.Granted)
		t.Logf("round %d: woken after %v", n, second.at.Sub(began))
		if second.Fence <= first.Fence {
			t.Errorf("fencing token %d after %d, want it to rise", second.Fence, first.Fence)
		}
		all[0].do(t, key, release("two"), gatehouse.Granted)
		first = all[0].do(t, key, acquire("one"), gatehouse.Granted)
	}
}
