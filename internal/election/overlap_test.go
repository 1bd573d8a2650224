//go:build linux || darwin

package election

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// Many masterships follow each other, and no two overlap. Most are given back, some masters are cut off.
func TestOneMasterAtATime(t *testing.T) {
	t.Parallel()
	const handovers, cutEach = 400, 50
	etcd := etcdtest.Start(t, 1)
	links, running := map[string]*etcdtest.Link{}, map[string]*candidate{}
	var all []*candidate
	join := func(name string) {
		url := links[name].URL("/k?ttl=1s")
		running[name] = enter(t, url, name)
		all = append(all, running[name])
	}
	watcher := enter(t, etcd.URL("/k?ttl=1s"), "watcher")
	watcher.leads(t)
	for n := range 3 {
		name := fmt.Sprintf("c%d", n)
		links[name] = etcdtest.NewLink(t, etcd)
		join(name)
	}
	all = append(all, watcher)
	watcher.leave(t)
	var took []time.Duration // from when a master gave up to when the next one knew
	for n := range handovers {
		leader := anyLeader(t, running)
		if n%cutEach != cutEach-1 {
			delete(running, leader.name)
			began := time.Now()
			leader.leave(t)
			anyLeader(t, running)
			took = append(took, time.Since(began))
			join(leader.name)
			continue
		}
		links[leader.name].Hang()
		leader.hears(t, "not to be master", func(s MasterStatus) bool { return !s.Leading })
		next := anyLeader(t, running)
		if next == leader {
			t.Errorf("%s leads while it is cut off", leader.name)
		}
		links[leader.name].Mend()
	}
	if n := apart(t, all...); n < handovers {
		t.Errorf("there were %d masterships, want %d or more", n, handovers)
	}
	slices.Sort(took)
	t.Logf("%d masters gave up, %d were cut off; the next led after %v, half of the time, and %v at most",
		len(took), handovers-len(took), took[len(took)/2], took[len(took)-1])
}

// anyLeader waits until one of them leads.
func anyLeader(t *testing.T, running map[string]*candidate) *candidate {
	t.Helper()
	found := make(chan *candidate, len(running))
	done := make(chan struct{})
	defer close(done)
	for _, c := range running {
		go func() {
			for {
				last, changed := c.last()
				if last.Leading {
					found <- c
					return
				}
				select {
				case <-changed:
				case <-done:
					return
				}
			}
		}()
	}
	select {
	case c := <-found:
		return c
	case <-t.Context().Done():
		t.Fatal("nobody leads")
		return nil
	}
}
