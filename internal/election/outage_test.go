//go:build linux || darwin

package election

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A master serves on through an outage that is shorter than what it was promised, whatever fails meanwhile.
func TestMasterOutlivesShortOutage(t *testing.T) {
	t.Parallel()
	hang := func(etcd *etcdtest.Cluster) { etcd.Pause(0) }
	goOn := func(_ testing.TB, etcd *etcdtest.Cluster) { etcd.Resume(0) }
	die := func(etcd *etcdtest.Cluster) { etcd.Kill(0) }
	rise := func(tb testing.TB, etcd *etcdtest.Cluster) {
		tb.Helper()
		etcd.Restart(tb, 0)
	}
	for _, c := range []struct {
		fact string
		out  func(etcd *etcdtest.Cluster)
		back func(tb testing.TB, etcd *etcdtest.Cluster)
	}{{"etcd hangs", hang, goOn}, {"etcd is killed and started again", die, rise}} {
		t.Run(c.fact, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t, 1)
			a := enter(t, etcd.URL("/k?ttl=15s"), "a")
			a.leads(t)
			b := enter(t, etcd.URL("/k?ttl=15s"), "b")
			b.follows(t, "a")
			c.out(etcd)
			// A renewal is tried and fails. At least half of the time is left then.
			failed := a.hears(t, "a failed renewal", func(s MasterStatus) bool { return s.Err != nil })
			if s, _ := b.last(); s.Leader != "a" {
				t.Errorf("while etcd is away b was told %+v, want a to lead", s.MasterStatus)
			}
			c.back(t, etcd)
			a.hears(t, "a renewal after the outage", func(s MasterStatus) bool {
				return s.Err == nil && s.Until.After(failed.Until)
			})
			b.hears(t, "etcd to answer again",
				func(s MasterStatus) bool { return s.Leader == "a" && s.Err == nil })
			if n := apart(t, a, b); n != 1 || len(b.intervals()) != 0 {
				t.Errorf("there were %d masterships, want the one of a:\n%s%s", n, a, b)
			}
		})
	}
}

// An outage that is longer ends the mastership in time, and then nobody is known to lead, until etcd is back.
func TestMasterStopsInLongOutage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=6s")
	a := enter(t, url, "a")
	a.leads(t)
	b := enter(t, url, "b")
	b.follows(t, "a")
	etcd.Pause(0)
	last, lost := a.lost(t)
	if late := lost.at.Sub(last.Until); last.Err == nil || late < 0 || late > stall {
		t.Errorf("it was told that it lost %v after Until, want it right then, and trouble before:\n%s",
			late, a)
	}
	b.follows(t, "")
	if known := b.known("a"); known < 5900*time.Millisecond {
		t.Errorf("b forgot the master after %v, want the ttl of 6 s to pass:\n%s", known, b)
	}
	etcd.Resume(0)
	next := a.hears(t, "somebody to lead", func(s MasterStatus) bool { return s.Leader != "" })
	b.hears(t, "the same", func(s MasterStatus) bool { return s.Leader == next.Leader })
	apart(t, a, b)
}

// known is the time from when a leader was told first to when nobody was any more.
func (c *candidate) known(leader string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var since, until time.Time
	for _, s := range c.told {
		switch {
		case s.Leader == leader && since.IsZero():
			since = s.at
		case s.Leader != leader && !since.IsZero() && until.IsZero():
			until = s.at
		}
	}
	return until.Sub(since)
}

// A renewal that hangs, whatever its context says, does not prolong a mastership.
func TestHungRenewalProlongsNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=6s")
	hung := make(chan struct{})
	release := sync.OnceFunc(func() { close(hung) })
	defer release()
	a := enter(t, url, "a", onRenewal(func(open opener) (grpc.ClientStream, error) {
		<-hung
		return open()
	}))
	first := a.leads(t)
	b := enter(t, url, "b")
	_, lost := a.lost(t)
	if late := lost.at.Sub(first.Until); late < 0 || late > stall {
		t.Errorf("it was told that it lost %v after Until, want it right then:\n%s", late, a)
	}
	b.leads(t)
	release()
	a.follows(t, "b")
	apart(t, a, b)
}

// Answers that come late count from when they were asked for: the lease ends at etcd while they travel.
func TestLateAnswersCountFromTheRequest(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=10s")
	a := enter(t, url, "a", answersLate(t, time.Second))
	a.leads(t)
	b := enter(t, url, "b")
	for range 2 {
		before, _ := a.last()
		renewed := a.hears(t, "a renewal", func(s MasterStatus) bool { return s.Until.After(before.Until) })
		if left := renewed.Until.Sub(renewed.at); left > 8*time.Second {
			t.Errorf("renewed by an answer a second late, it leads for %v, want at most 9 s less that", left)
		}
	}
	if len(b.intervals()) != 0 {
		t.Errorf("b led, want a to:\n%s%s", a, b)
	}
}

// One renewal that fails is no reason to give up.
func TestFailedRenewalIsTriedAgain(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	fails := make(chan error, 2)
	fails <- status.Error(codes.Unavailable, "no connection")
	fails <- status.Error(codes.Internal, "a surprise")
	a := enter(t, etcd.URL("/k?ttl=6s"), "a", onRenewal(func(open opener) (grpc.ClientStream, error) {
		select {
		case err := <-fails:
			return nil, err
		default:
			return open()
		}
	}))
	first := a.leads(t)
	a.hears(t, "a renewal", func(s MasterStatus) bool { return s.Until.After(first.Until) })
	if n := len(a.intervals()); n != 1 || len(fails) != 0 {
		t.Errorf("there were %d masterships and %d renewals still to fail, want 1 and 0", n, len(fails))
	}
}
