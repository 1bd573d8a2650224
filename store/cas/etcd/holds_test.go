//go:build linux || darwin

package etcd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A hold ends by its lease, and who waits hears of it by the watch. Renewed, it ends later. Without an end it
// stays.
func TestHoldsEndByLease(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	all := servers(t, cluster, 2)
	lock, kept := named(gatehouse.Lock, strings.Repeat("long", 100)), named(gatehouse.Lock, "kept")
	forever := acquire("one")
	forever.Expires = 0
	all[0].do(t, kept, forever, gatehouse.Granted)

	short := acquire("one")
	short.Expires = time.Second
	began := time.Now()
	all[0].do(t, lock, short, gatehouse.Granted)
	cmd := acquire("two")
	cmd.MaxWait = patience
	waits := all[1].later(t, lock, cmd)
	renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "one", Cost: 1, Expires: 3 * time.Second}
	all[1].do(t, lock, renew, gatehouse.Granted)
	if took := granted(t, waits).at.Sub(began); took < 3*time.Second {
		t.Errorf("the next got it after %v, want it held for the 3 s it was renewed for", took)
	}
	all[0].do(t, lock, release("one"), gatehouse.Conflict)
	all[0].do(t, lock, renew, gatehouse.Conflict)
	all[1].do(t, kept, acquire("two"), gatehouse.Refused)
	if n := below(t, client, "/gatehouse/holds/"); n != 2 {
		t.Errorf("there are %d hold keys, want 2", n)
	}
	all[0].do(t, lock, release("two"), gatehouse.Granted)
	all[0].do(t, kept, release("one"), gatehouse.Granted)
	if n := below(t, client, "/gatehouse/holds/"); n != 0 {
		t.Errorf("after the releases there are %d hold keys, want none", n)
	}
	until(t, "the leases of holds given back", func() bool { return holdLeases(t, client, all...) == 0 })
}

// Nobody but etcd ends a hold: not a server whose clock would.
func TestHoldOutlivesItsServersClock(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	key := named(gatehouse.Semaphore, "s")
	serve(t, cluster.URL("")).do(t, key, acquire("one"), gatehouse.Granted)
	backend, err := Open(cluster.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	backend.start = time.Now().Add(10 * time.Minute) // as if its clock had been set so
	serveOn(t, backend).do(t, key, acquire("two"), gatehouse.Refused)
}

// As many holds as there may be come and go as one change.
func TestManyHoldsAtOnce(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	s := serve(t, cluster.URL(""))
	for _, name := range []string{"100%/s", strings.Repeat("/", gatehouse.MaxName)} {
		manyHolds(t, s, named(gatehouse.Semaphore, name))
		if n := below(t, client, "/gatehouse/holds/"); n != 0 {
			t.Errorf("after the delete there are %d hold keys, want none", n)
		}
	}
	until(t, "the leases of holds given back", func() bool { return holdLeases(t, client, s) == 0 })
}

// manyHolds has as many holds as there may be begin at once, and ends them at once.
func manyHolds(t *testing.T, s *server, key gatehouse.Key) {
	t.Helper()
	const many = 1000
	long := strings.Repeat("k", 400)
	waits := make([]<-chan answer, 0, many)
	first := acquire("first")
	first.Size, first.Cost = many, many
	s.do(t, key, first, gatehouse.Granted)
	for n := range many {
		cmd := acquire(fmt.Sprint(n, long))
		cmd.Size, cmd.MaxWait = many, patience
		waits = append(waits, s.later(t, key, cmd))
	}
	until(t, "all to wait", func() bool { return s.Waiting() == many })
	s.do(t, key, release("first"), gatehouse.Granted)
	fences := map[uint64]bool{}
	for _, one := range waits {
		fences[granted(t, one).Fence] = true
	}
	if len(fences) != many {
		t.Errorf("%d holds have %d fencing tokens", many, len(fences))
	}
	if n := below(t, s.backend.client, s.backend.keys.holdPrefix(key)); n != many {
		t.Errorf("there are %d hold keys, want %d", n, many)
	}
	s.do(t, key, gatehouse.Command{Op: gatehouse.OpDelete}, gatehouse.Granted)
}

// Holds that began together have one lease. It is given back with the last of them.
func TestHoldsShareALease(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	s := serve(t, cluster.URL(""))
	key := named(gatehouse.Semaphore, "s")
	first := acquire("first")
	first.Size, first.Cost, first.Expires = 3, 3, 0
	s.do(t, key, first, gatehouse.Granted)
	var waits []<-chan answer
	for _, holder := range []string{"a", "b", "c"} {
		cmd := acquire(holder)
		cmd.Size, cmd.MaxWait = 3, patience
		waits = append(waits, s.later(t, key, cmd))
	}
	until(t, "all to wait", func() bool { return s.Waiting() == len(waits) })
	s.do(t, key, release("first"), gatehouse.Granted)
	for _, one := range waits {
		granted(t, one)
	}
	if n := holdLeases(t, client, s); n > 2 { // a busy machine makes two changes of it
		t.Errorf("three holds that began together have %d leases, want 1, or 2", n)
	}
	renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "b", Cost: 1, Expires: time.Hour}
	for n, cmd := range []gatehouse.Command{release("a"), renew, release("c"), release("b")} {
		s.do(t, key, cmd, gatehouse.Granted)
		until(t, "unused leases given back", s.backend.leases.idle)
		holds, leases := below(t, client, "/gatehouse/holds/"), holdLeases(t, client, s)
		want := [][2]int{{2, 1}, {2, 2}, {1, 1}, {0, 0}}[n]
		if holds != want[0] || leases != want[1] {
			t.Errorf("after step %d there are %d holds and %d leases, want %d", n, holds, leases, want)
		}
	}
}

// idle reports whether there is nothing to give back.
func (l *leases) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unused) == 0 && l.revokers == 0
}

// A server that is gone for good leaves nothing behind: its holds end by their leases, and those who waited
// there keep nobody waiting.
func TestServerDies(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	link := etcdtest.NewLink(t, cluster)
	dying, living := serve(t, link.URL("")), serve(t, cluster.URL(""))
	key := named(gatehouse.Lock, "a")
	hold := acquire("dead")
	hold.Expires = 2 * time.Second
	began := time.Now()
	dying.do(t, key, hold, gatehouse.Granted)
	cmd := acquire("dead too")
	cmd.MaxWait = gatehouse.Forever
	dying.later(t, key, cmd) // before the one who lives
	until(t, "somebody to wait", func() bool { return dying.Waiting() == 1 })
	link.Hang()
	cmd = acquire("alive")
	cmd.MaxWait = patience
	took := granted(t, living.later(t, key, cmd)).at.Sub(began)
	if took < 2*time.Second || took > 10*time.Second+stall {
		t.Errorf("the next got it after %v, want the 2 s of the hold and little more", took)
	}
	living.do(t, key, release("alive"), gatehouse.Granted)
	if n := below(t, client, "/gatehouse/holds/"); n != 0 {
		t.Errorf("there are %d hold keys, want none", n)
	}
}

// The holds of a record that was lost by somebody's mistake are not granted a second time.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	all := servers(t, cluster, 2)
	key := named(gatehouse.Lock, "a")
	hold := acquire("one")
	hold.Expires = 2 * time.Second
	all[0].do(t, key, hold, gatehouse.Granted)
	if _, err := client.Delete(t.Context(), "/gatehouse/records/lock/a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if d, err := all[1].Do(ctx, key, acquire("two")); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		t.Errorf("acquire of what is held without a record = %s, %v, want it unavailable", d.Outcome, err)
	}
	until(t, "the hold to end", func() bool {
		d, err := all[1].Do(ctx, key, acquire("two"))
		return err == nil && d.Outcome == gatehouse.Granted
	})
}
