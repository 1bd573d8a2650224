package capacity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLearning goes through a new mastership with leases of 2 s: who has something keeps it, and after as
// long as a lease everything is as usual.
func TestLearning(t *testing.T) {
	v := newBench(t, "PROPORTIONAL_SHARE capacity=100 learning")
	v.configure(func(t *Template) {
		t.Algorithm.LeaseLength, t.Algorithm.RefreshInterval = seconds(2), seconds(1)
	})
	ask := func(client string, has, wants float64) float64 {
		return v.ask(client, has, Demand{Clients: 1, Wants: wants}).Lease.Capacity
	}
	got := []float64{
		ask("a", 20, 30), ask("b", 90, 90), ask("new", 0, 50), // has and keeps
		ask("less", 20, 5),    // never above what is wanted
		ask("liar", 1e6, 1e7), // nor above all there is
	}
	if want := []float64{20, 90, 0, 5, 100}; !slices.Equal(got, want) {
		t.Errorf("while learning: %v, want %v", got, want)
	}
	over := v.request("over", &Request{
		Resource: thing, Demands: []Demand{{Clients: 1, Wants: 7}},
		Has: Lease{Expiry: v.now.Add(-1), Capacity: 7},
	})
	if over.Lease.Capacity != 0 {
		t.Errorf("a lease that has run out is worth %v, want 0", over.Lease.Capacity)
	}
	s := v.status()
	if !s.Learning || !s.LearnsUntil.Equal(v.now.Add(seconds(2))) || s.Excess != 115 {
		t.Errorf("learning %v until %v, excess %v; want it for 2 s, 115", s.Learning, s.LearnsUntil, s.Excess)
	}
	v.now = v.now.Add(seconds(2))
	if got := ask("new", 0, 50); got != 0 {
		t.Errorf("new has %v when more is taken than there is, want 0", got)
	}
	v.now = v.now.Add(1)
	if got := ask("c", 0, 120); got != 50 {
		t.Errorf("c has %v when only new is there besides, want 50", got)
	}
	v.now = v.now.Add(seconds(3))
	if got := ask("d", 0, 120); got != 100 {
		t.Errorf("d has %v when all else has run out, want 100", got)
	}
}

// TestLearningFollowsTheTemplate: its length is counted from when the server became master, also when it
// changes while a resource learns.
func TestLearningFollowsTheTemplate(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	v.ask("a", 20, Demand{Clients: 1, Wants: 50})
	learns := func(want bool) {
		t.Helper()
		if got := v.status().Learning; got != want {
			t.Errorf("learning = %v, want %v", got, want)
		}
	}
	set := func(n float64) {
		d := seconds(n)
		v.configure(func(t *Template) { t.Algorithm.Learning = &d })
	}
	v.now = v.now.Add(seconds(10))
	learns(true)
	set(10)
	learns(false)
	set(11)
	learns(true)
	set(-1)
	learns(false)
	if got := v.want("a", 50); got != 50 {
		t.Errorf("a has %v, want 50", got)
	}
	v.configure(func(t *Template) { t.Algorithm.Learning = nil })
	learns(true)
}

// TestColdStartWithASavedList begins with a list of leases: learning ends with the last of their holders, and
// for resources without any at once.
func TestColdStartWithASavedList(t *testing.T) {
	old := newBench(t, "FAIR_SHARE capacity=100")
	old.want("a", 60)
	old.want("b", 60)
	old.now = old.now.Add(seconds(1))
	list := old.Snapshot(old.now)
	want := []Saved{{thing, "a", seconds(299)}, {thing, "b", seconds(299)}}
	if !slices.Equal(list, want) {
		t.Fatalf("Snapshot = %v, want %v", list, want)
	}

	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	v.now = old.now
	v.Lead(v.now, time.Time{})
	v.Restore(v.now, list)
	if got := v.Snapshot(v.now); !slices.Equal(got, want) {
		t.Errorf("Snapshot after Restore = %v, want the same list", got)
	}
	other := v.request("x", &Request{Resource: "other", Demands: []Demand{{Clients: 1, Wants: 9}}})
	if other.Lease.Capacity != 9 {
		t.Errorf("a resource of which nobody had anything gives %v of 9", other.Lease.Capacity)
	}
	if got := v.want("new", 50); got != 0 {
		t.Errorf("new has %v before all have reported, want 0", got)
	}
	if g := v.ask("a", 60, Demand{Clients: 1, Wants: 60}); g.Lease.Capacity != 60 {
		t.Errorf("a has %v, want 60 as before", g.Lease.Capacity)
	}
	if !v.status().Learning {
		t.Error("it does not learn, with b missing")
	}
	if g := v.ask("b", 40, Demand{Clients: 1, Wants: 60}); g.Lease.Capacity != 40 || v.status().Learning {
		t.Errorf("b has %v, want 40 as before, and the end of learning", g.Lease.Capacity)
	}
	got := []float64{v.want("a", 60), v.want("b", 60), v.want("new", 50)}
	if !near(got[0], 100.0/3) || !near(got[1], 100.0/3) || !near(got[2], 100.0/3) {
		t.Errorf("a, b, new have %v, want a third each", got)
	}
}

// TestLearningDoesNotWaitForTheGone: whoever released or whose lease has run out is not waited for.
func TestLearningDoesNotWaitForTheGone(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	v.Restore(v.now, []Saved{
		{thing, "early", -1},
		{thing, "a", seconds(5)}, {thing, "b", seconds(60)},
	})
	if got := v.want("new", 50); got != 0 {
		t.Errorf("new has %v, want 0", got)
	}
	v.Release(v.now, "b", thing)
	if s := v.status(); !s.Learning || !s.LearnsUntil.Equal(v.now.Add(seconds(5)+1)) {
		t.Errorf("learning %v until %v, want until a has run out", s.Learning, s.LearnsUntil)
	}
	v.now = v.now.Add(seconds(5) + 1)
	if got := v.want("new", 50); got != 50 {
		t.Errorf("new has %v when a has run out, want 50", got)
	}
	empty := newBench(t, "FAIR_SHARE capacity=100 learning")
	empty.Restore(empty.now, nil)
	if got := empty.want("new", 50); got != 50 {
		t.Errorf("new has %v when nobody had anything, want 50", got)
	}
}

// TestRestoredSumsNeverExceed ends a server at any time and goes on with another, whose clients say what they
// have: no more is given than there is, although nobody waits for learning to end by time.
func TestRestoredSumsNeverExceed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := newBench(t, "FAIR_SHARE capacity=100 learning")
		v.Restore(v.now, nil)
		has := map[string]float64{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			client := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "client")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				list := v.Snapshot(v.now)
				v.Lead(v.now, time.Time{})
				v.Restore(v.now, list)
			case 1:
				v.Release(v.now, client, thing)
				delete(has, client)
			default:
				wants := rapid.Float64Range(0, 150).Draw(t, "wants")
				g := v.ask(client, has[client], Demand{Clients: 1, Wants: wants})
				has[client] = g.Lease.Capacity
			}
			total := 0.0
			for _, n := range has {
				total += n
			}
			if total > 100*(1+1e-9) {
				t.Fatalf("leases of %v, want at most 100: %v", total, has)
			}
		}
	})
}

// TestServerKeepsWhatItsClientsHave: a server that must shrink says what its clients hold, and that stays
// taken until it is given back.
func TestServerKeepsWhatItsClientsHave(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	below := func(has, wants float64) Grant {
		r := &Request{Resource: thing, Server: true, Demands: []Demand{{0, 1, wants / 2}, {5, 1, wants / 2}}}
		if has > 0 {
			r.Has = v.lease(has)
		}
		return v.request("below", r)
	}
	steps := []struct {
		what        string
		has, wants  float64 // of the server
		given, free float64 // what it gets, and what another gets then that wants 100
	}{
		{"nothing taken yet", 0, 100, 100, 0},
		{"it gets less, its clients still hold 90", 90, 100, 200.0 / 3, 10},
		{"they gave some back", 70, 100, 200.0 / 3, 30},
		{"and the rest", 200.0 / 3, 100, 200.0 / 3, 100.0 / 3},
		{"it cannot claim more than it had", 500, 100, 200.0 / 3, 100.0 / 3},
		{"it does not know all of its clients", 0, 10, 10, 90},
	}
	for _, step := range steps {
		g := below(step.has, step.wants)
		free := v.want("other", 100)
		v.check()
		if !near(g.Lease.Capacity, step.given) || !near(free, step.free) {
			t.Errorf("%s: server %v, other %v; want %v, %v",
				step.what, g.Lease.Capacity, free, step.given, step.free)
		}
	}
	h := v.Leases(v.now, thing, "", 1)
	want := []Demand{{5, 1, 5}, {0, 1, 5}}
	if len(h) != 1 || !h[0].Server || fmt.Sprint(h[0].Demands) != fmt.Sprint(want) {
		t.Errorf("Leases = %+v, want a server with %v", h, want)
	}
}
