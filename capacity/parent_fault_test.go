package capacity_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// The root begins anew and learns. What its servers hold is what they say, so no leaf loses anything.
func TestRootRestartKeepsWhatLeavesHold(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	learning := template(100)
	learning.Algorithm.Learning = nil // as long as a lease
	root := tr.root(learning)
	region := tr.child(root)
	one := tr.clients(tr.child(region), 30, 200)
	two := tr.clients(tr.child(region), 200)
	tr.run(30 * time.Second)
	tr.want(one, 30, 36.666667)
	tr.want(two, 33.333333)

	root.down = true
	tr.run(5 * time.Second)
	root.down = false
	root.core = capacity.NewServer(capacity.Limits{})
	root.core.Configure(tr.now, capacity.Templates{learning})
	root.core.Lead(tr.now, time.Time{})
	for range 60 {
		tr.run(time.Second)
		tr.want(one, 30, 36.666667)
		tr.want(two, 33.333333)
	}
}

// A server begins anew while its parent does not. Its clients' capacity stays taken until they have told
// of it, so nobody else gets it too, and they keep it.
func TestRestartOfIntermediateKeepsWhatLeavesHold(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	learning := template(100)
	learning.Algorithm.Learning = nil
	root := tr.root(learning)
	region := tr.child(root)
	one := tr.clients(region, 30, 200)
	two := tr.clients(tr.child(root), 200)
	tr.run(30 * time.Second)
	tr.want(one, 30, 36.666667)
	tr.want(two, 33.333333)

	region.down = true
	tr.run(3 * time.Second)
	region.down, region.waits = false, false
	region.core = capacity.NewServer(capacity.Limits{})
	region.core.Follow(tr.now)
	region.core.Lead(tr.now, time.Time{})
	for range 60 {
		tr.run(time.Second)
		tr.want(one, 30, 36.666667)
		tr.want(two, 33.333333)
	}
}

// Without the parent its leases hold until they run out, and no client's lasts longer. What goes on then
// is what was granted last. At no instant has anybody less.
func TestParentLost(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	root := tr.root(template(100))
	server := tr.child(root)
	clients := tr.clients(server, 30, 200)
	tr.run(20 * time.Second)
	tr.want(clients, 30, 70)

	root.down = true
	lost, _ := server.core.Find(tr.now, "r")
	for end := tr.now.Add(time.Minute); tr.now.Before(end); tr.run(step) {
		tr.want(clients, 30, 70)
		for _, l := range clients {
			ends := l.grant.Lease.Expiry
			if tr.now.Before(lost.ParentExpiry.Add(-3*time.Second)) && ends.After(lost.ParentExpiry) {
				t.Fatalf("a lease ends at %v, want it not after the parent's at %v", ends, lost.ParentExpiry)
			}
		}
	}
	if status, _ := server.core.Find(tr.now, "r"); status.ParentExpiry.After(tr.now) {
		t.Errorf("the parent's lease ends at %v, want it over", status.ParentExpiry)
	}
	root.down = false
	tr.run(30 * time.Second)
	tr.want(clients, 30, 70)
}

// When the parent's lease has run out each client may have the safe capacity, where there is one.
func TestParentLostFallsToSafeCapacity(t *testing.T) {
	for _, c := range []struct {
		safe float64
		want []float64
	}{
		{10, []float64{5, 15}}, // 10 for each of two, shared fairly
		{0, []float64{0, 0}},
		{-1, []float64{5, 200}}, // without limit
	} {
		tr := newTree(t)
		shared := template(100)
		shared.Safe = &c.safe
		root := tr.root(shared)
		clients := tr.clients(tr.child(tr.child(root)), 5, 200)
		tr.run(20 * time.Second)
		tr.want(clients, 5, 95)
		root.down = true
		tr.run(time.Minute)
		tr.want(clients, c.want...)
		if got := clients[0].grant; got.Safe != c.safe || !got.SafeConfigured {
			t.Errorf("safe capacity %v, configured %v, want %v", got.Safe, got.SafeConfigured, c.safe)
		}
	}
}

// An answer that gets lost may have given capacity to others. Until the next one arrives the clients hold no
// more than the parent was told.
func TestLostAnswerIsNotHeldTwice(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	root := tr.root(template(100))
	server := tr.child(root)
	one := tr.clients(server, 100)
	tr.run(10 * time.Second)
	one[0].wants = 20 // the root hears of it, the server does not hear that it did
	root.deaf = true
	tr.run(6 * time.Second)
	two := tr.clients(root, 100)
	tr.run(4 * time.Second)
	tr.want(two, 80)
	one[0].wants = 100 // its server still has a lease of 100
	tr.run(4 * time.Second)
	tr.want(one, 20)
	root.deaf = false
	tr.run(30 * time.Second)
	tr.want(append(one, two...), 50, 50)
}

// Servers are lost for a while, the root begins anew, answers get lost. As long as no lease of a parent runs
// out, never is more held than the capacity.
func TestTreeUnderFaultsKeepsItsBound(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 9))
		tr := newTree(t)
		learning := template(300)
		learning.Algorithm.Learning = nil
		root := tr.root(learning)
		var servers []*node
		for range 3 {
			region := tr.child(root)
			servers = append(servers, region, tr.child(region), tr.child(region))
		}
		for _, n := range servers {
			tr.clients(n, 10, 10, 40)
		}
		tr.limit = 300
		for range 40 {
			switch n := servers[random.IntN(len(servers))]; random.IntN(4) {
			case 0: // shorter than a lease
				n.down = true
				tr.run(time.Duration(random.IntN(12)) * time.Second)
				n.down = false
			case 1:
				n.deaf = true
				tr.run(time.Duration(random.IntN(12)) * time.Second)
				n.deaf = false
			case 2:
				root.core.Lead(tr.now, time.Time{})
			case 3:
				tr.leaves[random.IntN(len(tr.leaves))].wants = float64(random.IntN(100))
			}
			tr.run(time.Duration(random.IntN(20)) * time.Second)
		}
		tr.run(2 * time.Minute)
		tr.wantAtLeast(0.98 * 300)
	}
}

// What one client leaves another of the same server gets, also while the parent cannot be asked.
func TestParentLostLeavesWhatItGaveToAll(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	slow := template(100)
	slow.Algorithm.LeaseLength = time.Minute
	root := tr.root(slow)
	server := tr.child(root)
	clients := tr.clients(server, 100, 100)
	tr.run(10 * time.Second)
	root.down = true
	tr.run(10 * time.Second)
	tr.want(clients, 50, 50)
	clients[1].quiet, clients[1].grant = true, capacity.Grant{}
	server.core.Release(tr.now, clients[1].name, "r")
	tr.run(10 * time.Second)
	tr.want(clients, 100, 0)
}

// A server is cut off for longer than its lease and goes on with what it was granted last, while the
// parent gives that to others. So much is the bound of what is held too much, and it is over when the
// server is back and its clients' leases have had their time.
func TestServerCutOffForLongKeepsItsBound(t *testing.T) {
	tr := newTree(t)
	root := tr.root(template(100))
	server := tr.child(root)
	one := tr.clients(server, 100)
	two := tr.clients(tr.child(root), 100)
	tr.run(20 * time.Second)
	tr.want(append(one, two...), 50, 50)
	elsewhere := *root
	elsewhere.down = true
	server.parent = &elsewhere
	tr.limit = 150
	tr.run(time.Minute)
	tr.want(append(one, two...), 50, 100)
	server.parent = root
	tr.run(20 * time.Second)
	tr.limit = 100
	tr.run(time.Minute)
	tr.want(append(one, two...), 50, 50)
}

// A parent whose clock is a minute ahead gives leases that seem to end a minute too late. They are held for
// no longer than a lease lasts.
func TestParentWithFastClock(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	shared := template(100)
	s := capacity.NewServer(capacity.Limits{})
	s.Follow(now)
	s.Lead(now, time.Time{})
	want := []capacity.Demand{{Clients: 1, Wants: 10}}
	if _, err := s.Lease(now, "c", &capacity.Request{Resource: "r", Demands: want}); err != nil {
		t.Fatal(err)
	}
	s.Asks(now)
	now = now.Add(time.Second)
	s.Told(now, []capacity.Grant{{Resource: "r", Algorithm: &shared.Algorithm, Lease: capacity.Lease{
		Expiry: now.Add(80 * time.Second), Refresh: 4 * time.Second, Capacity: 10,
	}}})
	status, _ := s.Find(now, "r")
	if got := status.ParentExpiry.Sub(now); got != 19*time.Second {
		t.Errorf("the parent's lease holds for %v, want the rest of 20s since it was asked", got)
	}
}

// Whatever a parent answers, clients get numbers they can use.
func TestNonsenseFromParent(t *testing.T) {
	for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -50} {
		now := time.Unix(1_800_000_000, 0)
		s := capacity.NewServer(capacity.Limits{})
		s.Follow(now)
		s.Lead(now.Add(-time.Hour), time.Time{})
		r := capacity.Request{Resource: "r", Demands: []capacity.Demand{{Clients: 1, Wants: 10}}}
		if _, err := s.Lease(now, "c", &r); err != nil {
			t.Fatal(err)
		}
		s.Asks(now)
		s.Told(now, []capacity.Grant{
			{Resource: "r", Safe: odd, SafeConfigured: true, Lease: capacity.Lease{Capacity: odd}},
			{Resource: "other"},
		})
		for range 5 {
			g, err := s.Lease(now, "c", &r)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.Lease.Capacity; !(got >= 0 && got <= 10) || g.Lease.Refresh < time.Second {
				t.Errorf("parent gives %v: client gets %+v, want 0 to 10", odd, g.Lease)
			}
			if !(g.Safe >= -1 && g.Safe < math.Inf(1)) {
				t.Errorf("parent gives safe capacity %v: client gets %v, want -1 or more", odd, g.Safe)
			}
			now = now.Add(10 * time.Second)
		}
	}
}

// A parent that is away is asked less and less often, whatever clients do; and as often as it wants to be
// asked, at least, so that it is found again soon.
func TestLostParentIsLeftAlone(t *testing.T) {
	for _, c := range []struct{ refresh, fewest, most int }{{1, 53, 61}, {4, 13, 18}, {60, 4, 9}} {
		tr := newTree(t)
		slow := template(100)
		slow.Algorithm.LeaseLength = 10 * time.Minute
		slow.Algorithm.RefreshInterval = time.Duration(c.refresh) * time.Second
		root := tr.root(slow)
		server := tr.child(root)
		client := tr.clients(server, 10)[0]
		tr.run(90 * time.Second)
		root.down = true
		asked := server.asked
		for i := range 60 {
			client.wants, client.due = float64(1+i%2*50), tr.now
			tr.run(time.Second)
		}
		if got := server.asked - asked; got < c.fewest || got > c.most {
			t.Errorf("refresh %d s: asked %d times in a minute, want %d to %d",
				c.refresh, got, c.fewest, c.most)
		}
	}
}

// What was asked before another mastership began is not answered in it.
func TestAnswerToFormerMasterIsNone(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := capacity.NewServer(capacity.Limits{})
	s.Follow(now)
	s.Lead(now.Add(-time.Hour), time.Time{})
	r := capacity.Request{Resource: "r", Demands: []capacity.Demand{{Clients: 1, Wants: 10}}}
	lease := func() float64 {
		t.Helper()
		g, err := s.Lease(now, "c", &r)
		if err != nil {
			t.Fatal(err)
		}
		return g.Lease.Capacity
	}
	shared := template(10)
	answers := []capacity.Grant{{Resource: "r", Algorithm: &shared.Algorithm, Lease: capacity.Lease{
		Expiry: now.Add(20 * time.Second), Refresh: 4 * time.Second, Capacity: 10,
	}}}
	lease()
	if got := s.Asks(now); len(got) != 1 {
		t.Fatalf("asks %v, want one question", got)
	}
	s.Lead(now.Add(-time.Hour), time.Time{})
	s.Told(now, answers)
	lease()
	s.Told(now, answers)
	if got := lease(); got != 0 {
		t.Errorf("the client gets %v, want 0 until this master was answered", got)
	}
	s.Asks(now)
	s.Told(now, answers)
	if got := lease(); got != 10 {
		t.Errorf("the client gets %v, want 10", got)
	}
	s.Resign()
	if got := s.Asks(now.Add(time.Hour)); got != nil {
		t.Errorf("who does not lead asks %v, want nothing", got)
	}
}
