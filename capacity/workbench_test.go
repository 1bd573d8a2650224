package capacity

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// failing is what *testing.T, *testing.B, *testing.F and *rapid.T have in common.
type failing interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A workbench is a server with one resource, in tests.
type workbench struct {
	t failing
	*Server
	now      time.Time
	template Template
}

const thing = "thing"

// newBench makes a workbench by a line such as "FAIR_SHARE capacity=120 strict learning". Leases last
// 300 s and are refreshed every 5 s.
func newBench(t failing, line string) *workbench {
	t.Helper()
	words := strings.Fields(line)
	kind, err := ParseKind(words[0])
	if err != nil {
		t.Fatal(err)
	}
	var learning time.Duration
	v := &workbench{t: t, Server: NewServer(Limits{}), now: time.Unix(1_000_000_000, 0)}
	v.template = Template{Glob: "*", Algorithm: Algorithm{
		Kind: kind, LeaseLength: 300 * time.Second, RefreshInterval: 5 * time.Second, Learning: &learning,
	}}
	for _, word := range words[1:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "capacity":
			v.template.Capacity, err = strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
		case "strict":
			v.template.Algorithm.Parameters = []AlgorithmParameter{{"priority", "strict"}}
		case "learning":
			v.template.Algorithm.Learning = nil
		default:
			t.Fatalf("word %q in %q is unknown", word, line)
		}
	}
	v.configure(func(*Template) {})
	v.Lead(v.now, time.Time{})
	return v
}

// configure changes the template.
func (v *workbench) configure(change func(t *Template)) {
	change(&v.template)
	v.Configure(v.now, Templates{v.template})
}

// ask asks as a client that has so much.
func (v *workbench) ask(client string, has float64, demands ...Demand) Grant {
	v.t.Helper()
	return v.request(client, &Request{Resource: thing, Has: v.lease(has), Demands: demands})
}

// want asks as a single client without a lease.
func (v *workbench) want(client string, wants float64) float64 {
	v.t.Helper()
	return v.ask(client, 0, Demand{Clients: 1, Wants: wants}).Lease.Capacity
}

func (v *workbench) request(client string, r *Request) Grant {
	v.t.Helper()
	g, err := v.Lease(v.now, client, r)
	if err != nil {
		v.t.Fatalf("Lease(%s, %+v): %v", client, r, err)
	}
	if c := g.Lease.Capacity; !(c >= 0) || math.IsInf(c, 0) {
		v.t.Fatalf("Lease(%s, %+v) = %v, want a finite number that is not negative", client, r, c)
	}
	return g
}

// lease is a lease that has not run out.
func (v *workbench) lease(capacity float64) Lease {
	if capacity == 0 {
		return Lease{}
	}
	return Lease{Expiry: v.now.Add(time.Minute), Refresh: time.Second, Capacity: capacity}
}

// hold gives a client a lease, however much others have.
func (v *workbench) hold(client string, has float64, d Demand) {
	v.ask(client, has, d)
	r := v.resources[thing]
	i, _ := r.findLease(client)
	r.setTaken(i, has, has)
}

func (v *workbench) status() ResourceStatus {
	v.t.Helper()
	found, ok := v.Find(v.now, thing)
	if !ok {
		v.t.Fatal("the resource is unknown")
	}
	return found
}

// check compares sums and trees with what they are made of.
func (v *workbench) check() {
	v.t.Helper()
	held := 0
	for _, r := range v.resources {
		checkResource(v.t, r)
		held += r.demandCount
	}
	if v.demandCount != held {
		v.t.Fatalf("%d demands, want %d", v.demandCount, held)
	}
}

func checkResource(t failing, r *resource) {
	t.Helper()
	var has, wants float64
	var clients int64
	seen := 0
	rows, last := 0, ""
	for i := range r.byName.all {
		n := r.records.at(i)
		if found, ok := r.findLease(n.client); !ok || found != i || rows > 0 && n.client <= last {
			t.Fatalf("row %d of %q, after %q, is found as %d, %v", i, n.client, last, found, ok)
		}
		rows, last = rows+1, n.client
		has += n.taken
		for at := n.firstDemand; at != 0; at = r.demands.at(at).next {
			wants += r.demands.at(at).wants
			clients += int64(r.demands.at(at).clients)
			seen++
		}
	}
	if !near(has, r.has.value()) || !near(wants, r.totalWants()) || clients != r.clientCount() {
		t.Fatalf("has, wants, clients = %v, %v, %v, want %v, %v, %v",
			r.has.value(), r.totalWants(), r.clientCount(), has, wants, clients)
	}
	if rows != r.leaseCount() || rows != r.byName.count {
		t.Fatalf("%d rows, want %d, %d", rows, r.leaseCount(), r.byName.count)
	}
	inTrees := checkTree(t, r, r.tree)
	for _, b := range r.bands {
		inTrees += checkTree(t, r, b.tree)
	}
	if inTrees != seen || r.demandCount != seen {
		t.Fatalf("%d claims in the trees, %d counted, want %d", inTrees, r.demandCount, seen)
	}
	if len(r.expiries) > 2*r.leaseCount()+64 {
		t.Fatalf("%d entries for %d leases", len(r.expiries), r.leaseCount())
	}
}

// checkTree checks order, ranks and sums of a tree, and returns the number of claims.
func checkTree(t failing, r *resource, tree subtree) int {
	t.Helper()
	chunks := inOrder(&r.demands, tree.root, nil)
	if tree.root == 0 && tree != (subtree{}) || tree.root != 0 && r.demands.subtreeAt(tree.root) != tree {
		t.Fatalf("a tree with the sums %+v, want them to be right", tree)
	}
	count, last := 0, sortKey{-1, 0}
	for _, k := range chunks {
		n := r.demands.nodes.at(k)
		least := 1
		if len(chunks) > 1 {
			least = minEntries
		}
		if len(n.entries) < least || len(n.entries) >= maxEntries {
			t.Fatalf("one of %d chunks has %d entries", len(chunks), len(n.entries))
		}
		if !last.sortsBefore(n.first) || n.entries[0].sortKey().sortsBefore(n.first) {
			t.Fatalf("a chunk begins at %+v, after %+v, with %+v", n.first, last, n.entries[0])
		}
		checkHalf(t, r, n, n.left)
		checkHalf(t, r, n, n.right)
		wants, clients := 0.0, int64(0)
		for _, e := range n.entries {
			c := r.demands.at(e.demand)
			if e.wants != c.wants || e.clients != c.clients || count > 0 && !last.sortsBefore(e.sortKey()) {
				t.Fatalf("entry %+v of claim %+v, after %+v", e, c, last)
			}
			last = e.sortKey()
			wants += e.wants
			clients += int64(e.clients)
			count++
		}
		if wants != n.wants || clients != n.clients {
			t.Fatalf("sums of a chunk: %v, %v, want %v, %v", n.wants, n.clients, wants, clients)
		}
	}
	return count
}

func checkHalf(t failing, r *resource, top *treapNode, h subtree) {
	t.Helper()
	switch {
	case h.root == 0 && h == subtree{}:
	case r.demands.subtreeAt(h.root) != h:
		t.Fatalf("sums %+v, want %+v", h, r.demands.subtreeAt(h.root))
	case r.demands.nodes.at(h.root).rank > top.rank:
		t.Fatalf("rank %d below %d", r.demands.nodes.at(h.root).rank, top.rank)
	}
}

// inOrder lists the chunks of a tree.
func inOrder(c *demandTrees, root int32, to []int32) []int32 {
	if root == 0 {
		return to
	}
	to = inOrder(c, c.nodes.at(root).left.root, to)
	return inOrder(c, c.nodes.at(root).right.root, append(to, root))
}
