package capacity

import (
	"testing"
	"time"
)

// These are about servers that have just begun, in a tree: they know only of those who have asked since.

// A family is a root and one server below it, both of which hold their leases for 60 s.
type family struct {
	*workbench // the root
	child      *Server
}

func newFamily(t *testing.T) *family {
	t.Helper()
	f := &family{workbench: newBench(t, "FAIR_SHARE capacity=100"), child: NewServer(Limits{})}
	length := 60 * time.Second
	f.configure(func(t *Template) { t.Algorithm.LeaseLength, t.Algorithm.Learning = length, &length })
	f.Lead(f.now.Add(-time.Hour), time.Time{})
	f.child.Follow(f.now)
	f.child.Lead(f.now.Add(-time.Hour), time.Time{})
	return f
}

// report has a client of the child ask, which says what it has.
func (f *family) report(client string, has Lease, wants float64) Lease {
	f.t.Helper()
	r := Request{Resource: thing, Has: has, Demands: []Demand{{Clients: 1, Wants: wants}}}
	g, err := f.child.Lease(f.now, client, &r)
	if err != nil {
		f.t.Fatal(err)
	}
	return g.Lease
}

// exchange has the child ask the root, if it means to, and returns what it gave back.
func (f *family) exchange() (unused []string) {
	f.t.Helper()
	asks := f.child.Asks(f.now)
	unused = f.child.Unused()
	for _, name := range unused {
		f.Release(f.now, "child", name)
	}
	var answers []Grant
	for i := range asks {
		answers = append(answers, f.request("child", &asks[i]))
	}
	if len(answers) > 0 {
		f.child.Told(f.now, answers)
	}
	return unused
}

// settled has two clients with 40 each.
func (f *family) settled() (a, b Lease) {
	f.t.Helper()
	for range 3 {
		a, b = f.report("a", a, 40), f.report("b", b, 40)
		f.exchange()
		f.now = f.now.Add(seconds(2))
	}
	if a.Capacity != 40 || b.Capacity != 40 {
		f.t.Fatalf("clients have %v and %v, want 40 each", a.Capacity, b.Capacity)
	}
	return a, b
}

// restart makes the child a new master, which knows nothing.
func (f *family) restart() {
	f.child.Resign()
	f.child.Lead(f.now, time.Time{})
}

func TestLearningServerGivesNothingBack(t *testing.T) {
	f := newFamily(t)
	a, _ := f.settled()
	f.restart()
	f.report("a", a, 40)
	f.exchange()
	f.child.Release(f.now, "a", thing) // b may still have its 40, and has not said so yet
	for range 50 {
		f.now = f.now.Add(seconds(1))
		if unused := f.exchange(); len(unused) > 0 {
			t.Fatalf("the child gives %v back, want nothing while it learns", unused)
		}
		if next := f.child.NextAsk(); !next.After(f.now) {
			t.Fatalf("the child asks next %v from now, want later", next.Sub(f.now))
		}
	}
	if has := f.status().Has; has != 80 {
		t.Errorf("the root counts %v as taken, want 80", has)
	}
	f.now = f.now.Add(seconds(15))
	if unused := f.exchange(); len(unused) != 1 {
		t.Errorf("the child gives %v back after learning, want the resource", unused)
	}
}

func TestLearningServerIsTakenToWantWhatItWanted(t *testing.T) {
	f := newFamily(t)
	a, b := f.settled()
	f.restart()
	f.report("a", a, 40)
	f.exchange()
	if s := f.status(); s.Wants != 80 || s.Clients != 2 || s.Has != 80 {
		t.Errorf("the root knows of %d clients with %v that want %v, want 2 with 80 that want 80",
			s.Clients, s.Has, s.Wants)
	}
	for range 40 {
		f.now = f.now.Add(seconds(2))
		a, b = f.report("a", a, 40), f.report("b", b, 10)
		f.exchange()
	}
	if s := f.status(); s.Wants != 50 {
		t.Errorf("after learning the root knows of wants of %v, want 50", s.Wants)
	}
}

func TestClaimIsNotLengthenedWithoutAParent(t *testing.T) {
	f := newFamily(t)
	f.settled()
	f.restart()
	f.report("a", Lease{Expiry: f.now.Add(seconds(50)), Capacity: 40}, 40)
	f.exchange()
	f.now = f.now.Add(seconds(59)) // what the root gave is about to end, and the child still learns
	until := f.now.Add(seconds(3))
	got := f.report("a", Lease{Expiry: until, Capacity: 40}, 40)
	if got.Capacity > 0 && got.Expiry.After(until) {
		t.Errorf("a claim until %v gives %v until %v, want it no longer", until, got.Capacity, got.Expiry)
	}
}

// A list of those who hold leases is of use only if it has all of them.
func TestSnapshotOfALearningServerIsNone(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	v.now = v.now.Add(seconds(10))
	v.ask("a", 40, Demand{Clients: 1, Wants: 40})
	if list := v.Snapshot(v.now); list != nil {
		t.Errorf("Snapshot while learning = %v, want nil", list)
	}
	v.now = v.now.Add(seconds(291))
	if list := v.Snapshot(v.now); len(list) != 1 {
		t.Errorf("Snapshot after learning = %v, want the lease of a", list)
	}
	v.Release(v.now, "a", thing)
	if list := v.Snapshot(v.now); list == nil || len(list) != 0 {
		t.Errorf("Snapshot without leases = %#v, want an empty list", list)
	}
}

// A server below that learns has reported when it has learnt.
func TestRestoredServerWaitsForOneThatLearns(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	v.Restore(v.now, []Saved{{thing, "child", seconds(200)}})
	r := &Request{Resource: thing, Has: v.lease(10), Server: true, Demands: []Demand{{Clients: 1, Wants: 10}}}
	r.Has.Refresh = 0
	v.request("child", r)
	if !v.status().Learning {
		t.Error("the root has learnt when the child has told of some of its clients, want it to go on")
	}
	r.Has.Refresh = time.Second
	v.request("child", r)
	if v.status().Learning {
		t.Error("the root goes on learning when the child has told of all of its clients, want it to end")
	}
}
