package capacity_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// Of 120 the clients of one server want 1000 and 50, that of the other 10; each gets what it would at one
// server: a share goes by how many clients want it.
func TestTreeOfTwoLevelsConverges(t *testing.T) {
	tr := newTree(t)
	tr.limit = 120
	root := tr.root(template(120))
	many := tr.clients(tr.child(root), 1000, 50)
	few := tr.clients(tr.child(root), 10)
	tr.run(15 * time.Second)
	tr.want(many, 60, 50)
	tr.want(few, 10)
	// A change is there within a few seconds, not after many refreshes.
	few[0].wants = 500
	tr.run(15 * time.Second)
	tr.want(many, 40, 40)
	tr.want(few, 40)
}

// Through three levels demand shifts at random for ten minutes. Never is more than the capacity held, and
// in the end as much is as can be.
func TestTreeOfThreeLevelsNeverAboveInCalm(t *testing.T) {
	for _, kind := range []capacity.AlgorithmKind{capacity.FairShare, capacity.ProportionalShare} {
		for seed := range uint64(5) {
			shared := template(500)
			shared.Algorithm.Kind = kind
			tr := bigTree(t, shared)
			shift(tr, rand.New(rand.NewPCG(seed, 4)))
			wants := 0.0
			for _, l := range tr.leaves {
				wants += l.wants
			}
			if got, want := tr.held(), min(500, wants); got < 0.99*want {
				t.Errorf("%v, seed %d: leaves hold %v, want %v", kind, seed, got, want)
			}
		}
	}
}

// bigTree has 3 servers below the root, 3 below each of them, and at each of those 5 clients that want 15.
func bigTree(t *testing.T, shared capacity.Template) *tree {
	t.Helper()
	tr := newTree(t)
	tr.limit = shared.Capacity
	root := tr.root(shared)
	for range 3 {
		region := tr.child(root)
		for range 3 {
			tr.clients(tr.child(region), 15, 15, 15, 15, 15)
		}
	}
	return tr
}

// shift has some clients change their minds every ten seconds.
func shift(tr *tree, random *rand.Rand) {
	for range 60 {
		for range 5 {
			l := tr.leaves[random.IntN(len(tr.leaves))]
			l.wants = []float64{0, 1, 15, 50, 400}[random.IntN(5)]
		}
		tr.run(10 * time.Second)
	}
	tr.run(time.Minute)
}

// A new client gets its share within three seconds, though three servers have to ask for it.
func TestNewResourceIsAskedForAtOnce(t *testing.T) {
	tr := newTree(t)
	tr.limit = 120
	slow := template(120)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 300*time.Second, 60*time.Second
	server := tr.child(tr.child(tr.child(tr.root(slow))))
	clients := tr.clients(server, 30)
	clients[0].due = tr.now
	tr.run(5 * time.Second)
	tr.want(clients, 30)
}

// Clients ask more often the further they are from the root, and a server hears of its parent often
// enough for them never to have short leases.
func TestRefreshIntervalsHalveAtEachLevel(t *testing.T) {
	tr := newTree(t)
	slow := template(100)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 60*time.Second, 16*time.Second
	root := tr.root(slow)
	first := tr.child(root)
	second := tr.child(first)
	third := tr.child(second)
	levels := tr.clients(root, 1)
	for _, n := range []*node{first, second, third} {
		levels = append(levels, tr.clients(n, 1)...)
	}
	tr.run(2 * time.Minute)
	for i, want := range []float64{16, 8, 4, 2} {
		if got := levels[i].grant.Lease.Refresh.Seconds(); got != want {
			t.Errorf("level %d: refresh interval %v s, want %v", i, got, want)
		}
	}
	before := []int{first.asked, second.asked, third.asked}
	for range 300 {
		tr.run(time.Second)
		for i, l := range levels[1:] {
			if left := l.grant.Lease.Expiry.Sub(tr.now); left < 25*time.Second {
				t.Fatalf("level %d: %v of the lease are left, want 25s at least", i+1, left)
			}
		}
	}
	for i, n := range []*node{first, second, third} {
		often := []int{300 / 16, 300 / 8, 300 / 4}[i]
		if got := n.asked - before[i]; got < often-2 || got > often+2 {
			t.Errorf("level %d asked %d times in 300s, want %d", i+1, got, often)
		}
	}
}

// Where no safe capacity is configured, each level divides what it has by its own clients.
func TestDynamicSafeCapacityBelowIntermediate(t *testing.T) {
	tr := newTree(t)
	root := tr.root(template(120))
	region := tr.child(root)
	one := tr.clients(tr.child(region), 100, 100)
	two := tr.clients(tr.child(region), 100)
	tr.run(30 * time.Second)
	for _, l := range append(one, two...) {
		if l.grant.Safe != 40 || l.grant.SafeConfigured {
			t.Errorf("%s: safe capacity %v, configured %v, want 40 of its own",
				l.name, l.grant.Safe, l.grant.SafeConfigured)
		}
	}
}

// STATIC is so much for each client, wherever it is: not so much for each server.
func TestStaticIsPerClientThroughTree(t *testing.T) {
	tr := newTree(t)
	static := template(10)
	static.Algorithm.Kind = capacity.Static
	root := tr.root(static)
	region := tr.child(root)
	tr.clients(root, 12)
	tr.clients(region, 12, 3)
	tr.clients(tr.child(region), 5, 50, 12, 0.5)
	tr.run(30 * time.Second)
	tr.want(tr.leaves, 10, 10, 3, 5, 10, 10, 0.5)
}

// NO_ALGORITHM gives everybody what they want, wherever they are.
func TestNoAlgorithmThroughTree(t *testing.T) {
	tr := newTree(t)
	free := template(0)
	free.Algorithm.Kind = capacity.NoAlgorithm
	root := tr.root(free)
	region := tr.child(root)
	tr.clients(region, 12, 3)
	tr.clients(tr.child(region), 50, 1000)
	tr.run(30 * time.Second)
	tr.want(tr.leaves, 12, 3, 50, 1000)
}

// Who has the higher priority is served first, whichever server it is at.
func TestStrictPriorityThroughTree(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	strict := template(100)
	strict.Algorithm.Parameters = []capacity.AlgorithmParameter{{Name: "priority", Value: "strict"}}
	root := tr.root(strict)
	region := tr.child(root)
	one := tr.clients(tr.child(region), 40, 40)
	two := tr.clients(tr.child(region), 40, 40)
	three := tr.clients(tr.child(root), 40)
	one[0].priority, two[0].priority = 2, 1
	tr.run(40 * time.Second)
	tr.want(one, 40, 6.666667)
	tr.want(two, 40, 6.666667)
	tr.want(three, 6.666667)
	three[0].priority = 3
	tr.run(40 * time.Second)
	tr.want(three, 40)
	tr.want(one, 40, 0)
	tr.want(two, 20, 0)
}

// A parent takes back what a server's clients hold. They shrink as they refresh, and until the server says
// so the parent gives it to nobody else.
func TestServerGivesBackBeforeOthersGet(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	slow := template(100)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 60*time.Second, 16*time.Second
	root := tr.root(slow)
	server := tr.child(root)
	holders := tr.clients(server, 100, 100)
	tr.run(time.Minute)
	tr.want(holders, 50, 50)
	newcomer := tr.clients(tr.child(root), 100)
	seen := 0.0
	for range 600 {
		tr.run(step)
		status, _ := server.core.Find(tr.now, "r")
		if held := holders[0].has(tr.now) + holders[1].has(tr.now); held > status.Capacity {
			seen = max(seen, held-status.Capacity)
			if math.Abs(status.Excess-(held-status.Capacity)) > 1e-6 {
				t.Errorf("excess %v, want %v", status.Excess, held-status.Capacity)
			}
		}
	}
	if seen == 0 {
		t.Error("the server never had less than its clients hold, want it to shrink them")
	}
	tr.run(time.Minute)
	tr.want(newcomer, 33.333333)
	tr.want(holders, 33.333333, 33.333333)
}

// What the last client of a server leaves is free at the parent at once.
func TestUnusedResourceIsReleasedAtParent(t *testing.T) {
	tr := newTree(t)
	root := tr.root(template(100))
	server := tr.child(root)
	clients := tr.clients(server, 100)
	tr.run(10 * time.Second)
	tr.want(clients, 100)
	clients[0].quiet = true
	server.core.Release(tr.now, clients[0].name, "r")
	tr.run(3 * time.Second)
	if status, _ := root.core.Find(tr.now, "r"); status.Has != 0 || status.Leases != 0 {
		t.Errorf("the root has %v in %d leases, want nothing", status.Has, status.Leases)
	}
	asked := server.asked
	tr.run(time.Minute)
	if server.asked != asked || !server.core.NextAsk().IsZero() {
		t.Errorf("asked %d times more, next at %v, want never", server.asked-asked, server.core.NextAsk())
	}
	clients[0].quiet = false
	tr.run(5 * time.Second)
	tr.want(clients, 100)
}

// Three levels, 45 clients that want 15 of 500: two of them suddenly want 1000, and all the time 95 % is
// in use.
func TestTreeAbsorbsSpike(t *testing.T) {
	slow := template(500)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 60*time.Second, 16*time.Second
	tr := bigTree(t, slow)
	tr.run(2 * time.Minute)
	tr.wantAtLeast(0.999 * 500)
	tr.leaves[3].wants, tr.leaves[30].wants = 1000, 1000
	for range 750 {
		tr.run(step)
		tr.wantAtLeast(0.95 * 500)
	}
}

// A lease no longer than the refresh interval is asked for anew when half of it is over.
func TestShortestLeasesNeverRunOut(t *testing.T) {
	tr := newTree(t)
	short := template(100)
	short.Algorithm.LeaseLength, short.Algorithm.RefreshInterval = 8*time.Second, 8*time.Second
	clients := tr.clients(tr.child(tr.root(short)), 30, 30)
	tr.run(10 * time.Second)
	for range 600 {
		tr.run(step)
		tr.want(clients, 30, 30)
	}
}

// What a server's clients gave back reaches others long before the refresh interval is over.
func TestOwedCapacityIsGivenBackEarly(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	slow := template(100)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 300*time.Second, 120*time.Second
	root := tr.root(slow)
	server := tr.child(root)
	holder := tr.clients(server, 100)
	tr.run(10 * time.Second)
	tr.want(holder, 100)
	newcomer := tr.clients(root, 100)
	for asked := server.asked; server.asked == asked; {
		tr.run(step)
	}
	holder[0].due = tr.now.Add(20 * time.Second)
	tr.run(20 * time.Second)
	taken := func() float64 { return root.core.Leases(tr.now, "r", "server", 1)[0].Taken }
	if got := taken(); got != 100 {
		t.Errorf("before its client has refreshed the root counts %v of the server's as taken, want 100", got)
	}
	tr.run(3 * time.Second)
	tr.want(holder, 50)
	if got := taken(); got != 50 {
		t.Errorf("after that %v, want 50", got)
	}
	tr.run(time.Minute)
	tr.want(newcomer, 50)
}

// Demand that changes is met within seconds, though all refresh intervals are long.
func TestChangedWantsAreFollowedUp(t *testing.T) {
	tr := newTree(t)
	tr.limit = 100
	slow := template(100)
	slow.Algorithm.LeaseLength, slow.Algorithm.RefreshInterval = 600*time.Second, 240*time.Second
	root := tr.root(slow)
	client := tr.clients(tr.child(tr.child(tr.child(root))), 10)
	client[0].due = tr.now
	tr.run(10 * time.Second)
	client[0].wants, client[0].due = 90, tr.now
	tr.run(10 * time.Second)
	client[0].due = tr.now
	tr.run(time.Second)
	tr.want(client, 90)
}
