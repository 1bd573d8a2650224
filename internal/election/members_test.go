//go:build linux || darwin

package election

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// Whatever happens to one of three members of etcd, who leads goes on, and others can follow it.
func TestOneMemberOfThreeFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fact string
		fail func(tb testing.TB, etcd *etcdtest.Cluster, leader int)
	}{
		{"a follower is stopped", stopFollower}, {"a follower hangs", hangFollower},
		{"the leader is moved", moveLeader}, {"the leader is killed", killLeader},
		{"the leader hangs", hangLeader},
	} {
		t.Run(c.fact, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t, 3)
			leader := etcd.Leader(t)
			url := etcd.URL("/k?ttl=12s")
			a := enter(t, url, "a")
			a.leads(t)
			b := enter(t, url, "b")
			b.follows(t, "a")
			before, _ := a.last()
			c.fail(t, etcd, leader)
			a.hears(t, "two renewals", func(s MasterStatus) bool {
				return s.Until.Sub(before.Until) > 6*time.Second
			})
			b.hears(t, "a to lead, and no trouble", func(s MasterStatus) bool {
				return s.Leader == "a" && s.Err == nil
			})
			if n := apart(t, a, b); n != 1 {
				t.Errorf("there were %d masterships, want the one of a:\n%s%s", n, a, b)
			}
			a.leave(t)
			b.leads(t)
			apart(t, a, b)
		})
	}
}

func stopFollower(_ testing.TB, etcd *etcdtest.Cluster, leader int) { etcd.Stop((leader + 1) % 3) }

func hangFollower(_ testing.TB, etcd *etcdtest.Cluster, leader int) { etcd.Pause((leader + 1) % 3) }

func killLeader(_ testing.TB, etcd *etcdtest.Cluster, leader int) { etcd.Kill(leader) }

func hangLeader(_ testing.TB, etcd *etcdtest.Cluster, leader int) { etcd.Pause(leader) }

func moveLeader(tb testing.TB, etcd *etcdtest.Cluster, leader int) {
	tb.Helper()
	etcd.MoveLeader(tb, (leader+1)%3)
}

// The master dies, and at the same time the leader of etcd: the next leads within twice the ttl.
func TestMasterAndEtcdLeaderDie(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	etcd := etcdtest.Start(t, 3)
	url := etcd.URL("/k?ttl=10s")
	master := begin(t, url)
	master.says(t, "leading true")
	b, c := enter(t, url, "b"), enter(t, url, "c")
	b.follows(t, "master")
	c.follows(t, "master")
	began := time.Now()
	master.kill(t)
	etcd.Kill(etcd.Leader(t))
	next := b.hears(t, "another to lead", func(s MasterStatus) bool {
		return s.Leader != "" && s.Leader != "master"
	})
	c.hears(t, "the same", func(s MasterStatus) bool { return s.Leader == next.Leader })
	if took := time.Since(began); took > 2*ttl {
		t.Errorf("the next was known after %v, want at most %v:\n%s%s", took, 2*ttl, b, c)
	}
	apart(t, b, c)
}

// Two of three members hang: nobody can be elected, and the master stops in time. It all comes back.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 3)
	url := etcd.URL("/k?ttl=6s")
	a := enter(t, url, "a")
	a.leads(t)
	b := enter(t, url, "b")
	b.follows(t, "a")
	etcd.Pause(0)
	etcd.Pause(1)
	a.lost(t)
	b.follows(t, "")
	etcd.Resume(0)
	etcd.Resume(1)
	next := b.hears(t, "somebody to lead", func(s MasterStatus) bool { return s.Leader != "" })
	a.hears(t, "the same", func(s MasterStatus) bool { return s.Leader == next.Leader })
	apart(t, a, b)
}
