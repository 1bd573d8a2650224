package capacity_test

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A tree is servers and clients in virtual time, told by one plain loop. Everything takes one step: an
// answer is there a step after the question was decided.
type tree struct {
	t      *testing.T
	now    time.Time
	nodes  []*node
	leaves []*leaf
	names  int
	most   float64 // what all leaves held at once, at most, since calm was called
	limit  float64 // what they may hold; more fails the test
}

// A node is a server. Its parent is nil at the root.
type node struct {
	name    string
	core    *capacity.Server
	parent  *node
	down    bool // answers nobody and asks nobody
	deaf    bool // its answers to servers get lost
	pending []capacity.Grant
	waits   bool // for the parent's answer
	asked   int  // how often it asked its parent
}

// A leaf is a client with one resource.
type leaf struct {
	name     string
	server   *node
	resource string
	priority int64
	wants    float64
	grant    capacity.Grant
	due      time.Time
	quiet    bool // does not ask
}

const step = 100 * time.Millisecond

func newTree(t *testing.T) *tree {
	t.Helper()
	return &tree{t: t, now: time.Unix(1_800_000_000, 0), limit: math.Inf(1)}
}

// root adds a server with templates that has led for long.
func (tr *tree) root(templates ...capacity.Template) *node {
	n := &node{name: "root", core: capacity.NewServer(capacity.Limits{})}
	n.core.Configure(tr.now, templates)
	n.core.Lead(tr.now.Add(-time.Hour), time.Time{})
	tr.nodes = append(tr.nodes, n)
	return n
}

// child adds a server below another, that has led for long.
func (tr *tree) child(parent *node) *node {
	tr.names++
	n := &node{parent: parent, name: "server" + strconv.Itoa(tr.names)}
	n.core = capacity.NewServer(capacity.Limits{})
	n.core.Follow(tr.now)
	n.core.Lead(tr.now.Add(-time.Hour), time.Time{})
	tr.nodes = append(tr.nodes, n)
	return n
}

// clients adds clients to a server, one for each want.
func (tr *tree) clients(server *node, wants ...float64) []*leaf {
	var added []*leaf
	for _, w := range wants {
		tr.names++
		l := &leaf{name: "client" + strconv.Itoa(tr.names), server: server, resource: "r", wants: w}
		// They do not ask all together.
		l.due = tr.now.Add(time.Duration(tr.names%7) * 300 * time.Millisecond)
		added = append(added, l)
	}
	tr.leaves = append(tr.leaves, added...)
	return added
}

// run lets time pass.
func (tr *tree) run(d time.Duration) {
	tr.t.Helper()
	for end := tr.now.Add(d); tr.now.Before(end); tr.now = tr.now.Add(step) {
		for _, n := range tr.nodes {
			if !n.down {
				tr.turn(n)
			}
		}
		for _, l := range tr.leaves {
			l.turn(tr.now)
		}
		held := tr.held()
		tr.most = max(tr.most, held)
		if held > tr.limit*(1+1e-9) {
			tr.t.Fatalf("%v: leaves hold %v, want at most %v", tr.now.UTC(), held, tr.limit)
		}
	}
}

// turn has a server hear the answer of its parent, or ask it.
func (tr *tree) turn(n *node) {
	n.core.Expire(tr.now)
	if n.parent == nil {
		return
	}
	if n.waits {
		n.waits = false
		if n.pending == nil || n.parent.deaf {
			n.core.ParentFailed(tr.now)
		} else {
			n.core.Told(tr.now, n.pending)
		}
		return
	}
	next := n.core.NextAsk()
	if next.IsZero() || next.After(tr.now) {
		return
	}
	asks := n.core.Asks(tr.now)
	for _, name := range n.core.Unused() {
		n.parent.core.Release(tr.now, n.name, name)
	}
	if len(asks) == 0 {
		return
	}
	n.asked++
	n.waits, n.pending = true, nil
	for i := range asks {
		if n.parent.down {
			return
		}
		g, err := n.parent.core.Lease(tr.now, n.name, onWire(&asks[i]))
		if err != nil {
			tr.t.Fatalf("%v: %s asks for %+v: %v", tr.now.UTC(), n.name, asks[i], err)
		}
		g.Lease.Expiry = g.Lease.Expiry.Truncate(time.Second)
		n.pending = append(n.pending, g)
	}
}

// onWire is a request as it arrives: times are in whole seconds.
func onWire(r *capacity.Request) *capacity.Request {
	r.Has.Expiry = r.Has.Expiry.Truncate(time.Second)
	return r
}

// turn has a client ask when its time has come.
func (l *leaf) turn(now time.Time) {
	if l.due.After(now) || l.quiet {
		return
	}
	l.due = now.Add(time.Second)
	if l.server.down {
		return
	}
	r := capacity.Request{
		Resource: l.resource, Has: l.grant.Lease,
		Demands: []capacity.Demand{{Priority: l.priority, Clients: 1, Wants: l.wants}},
	}
	g, err := l.server.core.Lease(now, l.name, &r)
	if err != nil {
		return
	}
	g.Lease.Expiry = g.Lease.Expiry.Truncate(time.Second)
	l.grant = g
	l.due = now.Add(g.Lease.Refresh)
}

// has is what a client may use.
func (l *leaf) has(now time.Time) float64 {
	if !l.grant.Lease.Expiry.After(now) {
		return 0
	}
	return l.grant.Lease.Capacity
}

// held is what all clients may use.
func (tr *tree) held() float64 {
	sum := 0.0
	for _, l := range tr.leaves {
		sum += l.has(tr.now)
	}
	return sum
}

// each is what some clients may use.
func (tr *tree) each(leaves []*leaf) []float64 {
	var all []float64
	for _, l := range leaves {
		all = append(all, math.Round(l.has(tr.now)*1e6)/1e6)
	}
	return all
}

// want fails the test unless the clients have so much.
func (tr *tree) want(leaves []*leaf, want ...float64) {
	tr.t.Helper()
	if got := tr.each(leaves); !slices.Equal(got, want) {
		tr.t.Errorf("%v: clients have %v, want %v", tr.now.UTC(), got, want)
	}
}

// wantAtLeast fails the test unless all clients together have so much.
func (tr *tree) wantAtLeast(want float64) {
	tr.t.Helper()
	if got := tr.held(); got < want {
		tr.t.Errorf("%v: clients hold %v, want at least %v", tr.now.UTC(), got, want)
	}
}

// template is one for everything: FAIR_SHARE, no learning, lease 20 s, refresh 4 s.
func template(capacityOf float64) capacity.Template {
	return capacity.Template{Glob: "*", Capacity: capacityOf, Algorithm: capacity.Algorithm{
		Kind: capacity.FairShare, LeaseLength: 20 * time.Second, RefreshInterval: 4 * time.Second,
		Learning: new(time.Duration),
	}}
}
