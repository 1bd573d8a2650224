//go:build linux || darwin

package etcd

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// grantNames are four names, of limiters and semaphores.
func grantNames() []gatehouse.Key {
	return []gatehouse.Key{
		named(gatehouse.TokenBucket, "t"), named(gatehouse.FixedWindow, "w"),
		named(gatehouse.Semaphore, "s"), named(gatehouse.Semaphore, "u"),
	}
}

// grantOf is a command for one of each of these names, of at most size.
func grantOf(id string, size int64, keys []gatehouse.Key) *gatehouse.GrantCommand {
	cmd := &gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Minute}
	for _, k := range keys {
		m := gatehouse.Member{Key: k, Cost: 1, Rule: gatehouse.Rule{Size: size}}
		if k.Kind.Limiter() {
			m.Interval = time.Hour
		}
		cmd.Want = append(cmd.Want, m)
	}
	return cmd
}

// applyParts puts parts to a store.
func applyParts(s *cas.Store, parts []control.Part) (granted bool, err error) {
	done := make(chan error, 1)
	c := &control.JointChange{Parts: parts, Done: func(err error) { done <- err }}
	s.ApplyJoint(c)
	err = <-done
	return c.Granted, err
}

// decideGrant puts a command for a grant to a store.
func decideGrant(s *cas.Store, cmd *gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	var p control.GrantParts
	p.Acquire(cmd)
	granted, err := applyParts(s, p.Parts)
	if err == nil {
		err = p.Decide(granted, &d)
	}
	return d, err
}

// followGrant does something with a grant that is there.
func followGrant(tb testing.TB, s *cas.Store, cmd *gatehouse.GrantCommand) gatehouse.GrantDecision {
	tb.Helper()
	var p control.GrantParts
	p.Peek(cmd)
	_, err := applyParts(s, p.Parts)
	if err != nil {
		tb.Fatal(err)
	}
	record := p.Parts[0].Turn.Decision.Grant
	if record == nil {
		return gatehouse.GrantDecision{Outcome: gatehouse.Missing}
	}
	if err = p.Follow(cmd, record); err != nil {
		tb.Fatal(err)
	}
	granted, err := applyParts(s, p.Parts)
	var d gatehouse.GrantDecision
	if err == nil {
		err = p.Decide(granted, &d)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// freeOf is how much is free of a name.
func freeOf(tb testing.TB, s *server, k gatehouse.Key, size int64) int64 {
	tb.Helper()
	cmd := gatehouse.Command{Op: gatehouse.OpStats}
	if k.Kind.Limiter() {
		cmd = gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: size, Interval: time.Hour}}
	}
	return s.do(tb, k, cmd, gatehouse.Granted).Remaining
}

// Two servers grant over four names at once: no name gives more than it has, each grant has its hold under
// each name, and a release at the other server gives all leases back.
func TestGrantsOfTwoServers(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	all, client := servers(t, cluster, 2), cluster.Client(t)
	const size, each = 20, 15
	var mu sync.Mutex
	var work sync.WaitGroup
	var granted []string
	for n, s := range all {
		for c := range 2 {
			work.Go(func() {
				for i := range each {
					id := fmt.Sprint(n, "-", c, "-", i)
					d, err := decideGrant(s.store, grantOf(id, size, grantNames()))
					mu.Lock()
					switch {
					case err != nil:
						t.Error(err)
					case d.Outcome == gatehouse.Granted:
						granted = append(granted, id)
					case d.Outcome != gatehouse.Refused:
						t.Errorf("%+v", d)
					}
					mu.Unlock()
				}
			})
		}
	}
	work.Wait()
	if len(granted) != size {
		t.Errorf("%d were granted, want %d", len(granted), size)
	}
	for _, k := range grantNames() {
		if n := freeOf(t, all[0], k, size); n != 0 {
			t.Errorf("%s: %d are free, want 0", k, n)
		}
	}
	if n := below(t, client, string(all[0].backend.keys)+holdsPart); n != 2*size {
		t.Errorf("%d holds in etcd, want %d", n, 2*size)
	}
	for _, id := range granted {
		end := &gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id}
		if d := followGrant(t, all[1].store, end); d.Outcome != gatehouse.Granted {
			t.Errorf("release of %s: %+v", id, d)
		}
	}
	until(t, "no lease of a hold is left", func() bool { return holdLeases(t, client, all...) == 0 })
	if n := below(t, client, string(all[0].backend.keys)+holdsPart); n != 0 {
		t.Errorf("%d holds are left in etcd, want none", n)
	}
}

// A grant ends by etcd's leases under each name; what one name's hold is ended by leaves the others.
func TestGrantHoldsHaveLeasesOfTheirOwn(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s, client := serve(t, cluster.URL("")), cluster.Client(t)
	keys := grantNames()
	d, err := decideGrant(s.store, grantOf("a", 2, keys))
	if err != nil || d.Outcome != gatehouse.Granted {
		t.Fatal(d, err)
	}
	s.do(t, keys[2], gatehouse.Command{Op: gatehouse.OpDelete}, gatehouse.Granted)
	until(t, "the lease of the deleted one is given back", func() bool {
		return holdLeases(t, client, s) == 1
	})
	if n := freeOf(t, s, keys[3], 2); n != 1 {
		t.Errorf("%s: %d are free, want 1", keys[3], n)
	}
	end := &gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "a", Fence: d.Fence}
	if d := followGrant(t, s.store, end); d.Outcome != gatehouse.Granted {
		t.Errorf("release of what is left: %+v", d)
	}
	short := grantOf("b", 2, keys)
	short.Expires = time.Second
	if d, err := decideGrant(s.store, short); err != nil || d.Outcome != gatehouse.Granted {
		t.Fatal(d, err)
	}
	until(t, "the holds of a grant that is not released end", func() bool {
		return below(t, client, string(s.backend.keys)+holdsPart) == 0
	})
}

// plenty is more than is asked for.
const plenty = 10_000

// With a member of etcd killed and another paused in turn, what the names have is what was granted.
func TestGrantsWhileMembersFail(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	all := make([]*server, 2)
	for i := range all {
		all[i] = serveWithin(t, opened(t, cluster.URL("")), 2*time.Second)
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	var mu sync.Mutex
	var asked []string
	known := 0
	for n, s := range all {
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(n, "-", i)
				d, err := decideGrant(s.store, grantOf(id, plenty, grantNames()))
				mu.Lock()
				asked = append(asked, id)
				if err == nil && d.Outcome == gatehouse.Granted {
					known++
				}
				mu.Unlock()
			}
		})
	}
	more := func(n int) {
		t.Helper()
		mu.Lock()
		before := known
		mu.Unlock()
		until(t, "grants go on", func() bool { mu.Lock(); defer mu.Unlock(); return known >= before+n })
	}
	more(20)
	leader := cluster.Leader(t)
	cluster.Kill(leader)
	more(20)
	cluster.Restart(t, leader)
	leader = cluster.Leader(t)
	cluster.Pause(leader)
	more(20)
	cluster.Resume(leader)
	more(10)
	close(stop)
	work.Wait()
	cluster.Healthy(t)
	for _, s := range all {
		until(t, "all is taken back", func() bool { return s.store.PendingUndos() == 0 })
	}
	checkGranted(t, all, asked, known)
}

// checkGranted looks which of the grants that were asked for are there, and that the names have as much less.
func checkGranted(t *testing.T, all []*server, asked []string, known int) {
	t.Helper()
	granted := 0
	for _, id := range asked {
		peek := &gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: id}
		if d := followGrant(t, all[0].store, peek); d.Outcome == gatehouse.Granted {
			granted++
		}
	}
	t.Logf("%d asked for, %d known to be granted, %d are there", len(asked), known, granted)
	if granted != known {
		t.Errorf("%d grants are there, and %d callers know of theirs", granted, known)
	}
	for _, k := range grantNames() {
		// What was taken of a limiter stays taken if it cannot be learnt any more whether it was.
		free, want := freeOf(t, all[1], k, plenty), plenty-int64(granted)
		if free > want || !k.Kind.Limiter() && free < want {
			t.Errorf("%s: %d are free of %d, want %d", k, free, plenty, want)
		}
	}
}
