package capacity

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

func name(i int) string { return "client-" + strconv.Itoa(i) }

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// TestLeaseIsAsLongAsTheTemplateSays: 342 s, to be refreshed every 5 s, or in time before it ends.
func TestLeaseIsAsLongAsTheTemplateSays(t *testing.T) {
	for _, c := range []struct{ length, interval, refresh float64 }{
		{342, 5, 5}, {5, 5, 4}, {2, 2, 1}, {1, 1, 1},
	} {
		v := newBench(t, "FAIR_SHARE capacity=10")
		v.configure(func(t *Template) {
			t.Algorithm.LeaseLength, t.Algorithm.RefreshInterval = seconds(c.length), seconds(c.interval)
		})
		got := v.ask("a", 0, Demand{Clients: 1, Wants: 1}).Lease
		want := Lease{v.now.Add(seconds(c.length)), seconds(c.refresh), 1}
		if got != want {
			t.Errorf("length %v, interval %v: lease %+v, want %+v", c.length, c.interval, got, want)
		}
	}
}

// TestShortOnesAskAgainSooner: who cannot have its share yet, because others have not given it back, asks
// again after half of the interval.
func TestShortOnesAskAgainSooner(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	for _, step := range []struct {
		client   string
		capacity float64
		refresh  time.Duration
	}{
		{"a", 100, seconds(5)}, {"b", 0, seconds(2)}, {"a", 50, seconds(5)}, {"b", 50, seconds(5)},
	} {
		l := v.ask(step.client, 0, Demand{Clients: 1, Wants: 100}).Lease
		if l.Capacity != step.capacity || l.Refresh != step.refresh {
			t.Errorf("%s has %+v, want %+v", step.client, l, step)
		}
	}
}

// TestExpiry goes through leases of 10 and 20 s with a release: sums follow, without a request.
func TestExpiry(t *testing.T) {
	v := newBench(t, "NO_ALGORITHM capacity=0")
	length := func(n float64) {
		v.configure(func(t *Template) { t.Algorithm.LeaseLength = seconds(n) })
	}
	sums := func(has, wants float64, leases int64) {
		t.Helper()
		if s := v.status(); s.Has != has || s.Wants != wants || s.Leases != leases || s.Clients != leases {
			t.Errorf("has %v, wants %v, %d leases, %d clients; want %v, %v, %d",
				s.Has, s.Wants, s.Leases, s.Clients, has, wants, leases)
		}
	}
	length(10)
	v.want("a", 12)
	v.want("b", 12)
	length(20)
	v.want("c", 20)
	sums(44, 44, 3)
	first := v.now.Add(seconds(10))
	if next := v.Expire(v.now); next != first.Add(1) {
		t.Errorf("Expire = %v, want just after %v", next, first)
	}
	v.now = first
	v.Expire(v.now)
	sums(44, 44, 3) // a lease holds at its very end
	v.now = v.now.Add(1)
	if next := v.Expire(v.now); next != first.Add(seconds(10)).Add(1) {
		t.Errorf("Expire = %v, want when c ends", next)
	}
	sums(20, 20, 1)
	v.Release(v.now, "a", thing) // gone already
	v.Release(v.now, "c", thing)
	if _, ok := v.Find(v.now, thing); ok || len(v.resources) != 0 {
		t.Error("the resource is still there, without any lease")
	}
	if next := v.Expire(v.now); !next.IsZero() {
		t.Errorf("Expire = %v, want nothing to wait for", next)
	}
}

// TestExpiryWithoutTraffic makes many resources and lets time go by: nothing stays.
func TestExpiryWithoutTraffic(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	for i := range 30_000 {
		r := &Request{Resource: "thing-" + strconv.Itoa(i%1000), Demands: []Demand{{Clients: 1, Wants: 1}}}
		v.request(name(i), r)
	}
	v.now = v.now.Add(seconds(301))
	calls := 0
	for next := v.now; !next.IsZero(); calls++ {
		if next != v.now {
			t.Fatalf("Expire = %v, want it to go on at once", next)
		}
		next = v.Expire(v.now)
	}
	if len(v.resources) != 0 || len(v.wakes) != 0 {
		t.Errorf("%d resources and %d entries left", len(v.resources), len(v.wakes))
	}
	if want := 30_000/maxExpiredPerCall + 1; calls > want {
		t.Errorf("%d calls, want at most %d", calls, want)
	}
}

// TestRefreshKeepsLittle refreshes, releases and comes again many times, and looks at what is kept.
func TestRefreshKeepsLittle(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	for i := range 100_000 {
		v.now = v.now.Add(time.Millisecond)
		length := seconds(float64(300 - i%7*40)) // shorter and longer by turns
		v.configure(func(t *Template) { t.Algorithm.LeaseLength = length })
		v.want(name(i%50), 1)
		if i%3 == 0 {
			v.Release(v.now, name(i%50), thing)
		}
	}
	r := v.resources[thing]
	v.check()
	if rows := len(r.records.pages[0]); len(r.records.pages) > 1 || rows > 51 || len(v.wakes) > 100 {
		t.Errorf("%d rows, %d entries of resources; want few", rows, len(v.wakes))
	}
}

// TestMastership: without it nothing is answered and nothing kept, whatever was under way.
func TestMastership(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	v.want("a", 10)
	v.Resign()
	q := &Request{Resource: thing, Demands: []Demand{{Clients: 1, Wants: 1}}}
	refused := func(when string) {
		t.Helper()
		_, err := v.Lease(v.now, "a", q)
		if !errors.Is(err, ErrNotMaster) || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("%s: Lease = %v, want that it is not the master", when, err)
		}
		v.Release(v.now, "a", thing)
		v.Expire(v.now)
		v.Restore(v.now, []Saved{{thing, "a", time.Hour}})
		if _, ok := v.Find(v.now, thing); ok || v.Leading(v.now) || v.Snapshot(v.now) != nil ||
			v.Resources(v.now, "", 9) != nil || v.Leases(v.now, thing, "", 9) != nil {
			t.Errorf("%s: it shows leases", when)
		}
	}
	refused("after Resign")
	v.Extend(v.now.Add(time.Hour))
	refused("after an Extend that came too late")
	v.Lead(v.now, v.now.Add(seconds(10)))
	if got := v.want("b", 10); got != 10 {
		t.Errorf("b has %v, want 10: what a had is forgotten", got)
	}
	v.now = v.now.Add(seconds(9))
	v.Extend(v.now.Add(seconds(10)))
	v.now = v.now.Add(seconds(9))
	if got := v.want("c", 10); got != 0 {
		t.Errorf("c has %v, want 0: b has it all", got)
	}
	v.now = v.now.Add(seconds(1))
	refused("when its time is up")
}

// TestConfigureAppliesAtOnce cuts, lifts and exchanges: what was given stays until it is refreshed, and
// nobody is answered with less than nothing.
func TestConfigureAppliesAtOnce(t *testing.T) {
	for _, kind := range []AlgorithmKind{FairShare, ProportionalShare} {
		v := newBench(t, fmt.Sprintf("%v capacity=300", kind))
		v.want("a", 150)
		v.want("b", 150)
		v.configure(func(t *Template) { t.Capacity = 100 })
		if s := v.status(); s.Capacity != 100 || s.Has != 300 || s.Excess != 200 {
			t.Errorf("capacity %v, has %v, excess %v; want 100, 300, 200", s.Capacity, s.Has, s.Excess)
		}
		got := []float64{
			v.want("c", 10), v.want("a", 150), v.want("b", 150), v.want("c", 10), v.want("a", 150),
		}
		if want := []float64{0, 0, 45, 10, 45}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v: after the cut c, a, b, c, a have %v, want %v", kind, got, want)
		}
		v.configure(func(t *Template) { t.Algorithm.Kind = Static })
		if got := v.want("a", 150); got != 100 {
			t.Errorf("a has %v of a STATIC resource, want 100", got)
		}
		v.Configure(v.now, Templates{{Glob: "other"}})
		if got := v.want("a", 150); got != 100 {
			t.Errorf("a has %v without a template any more, want 100 as before", got)
		}
	}
}

func TestNoTemplates(t *testing.T) {
	s := NewServer(Limits{})
	now := time.Unix(0, 0)
	s.Lead(now, time.Time{})
	_, err := s.Lease(now, "a", &Request{Resource: thing})
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, ErrNotMaster) {
		t.Errorf("Lease = %v, want that it has no templates", err)
	}
}

// TestLimits goes to each limit and one past it.
func TestLimits(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	v.limits = Limits{Resources: 2, Leases: 3, Priorities: 4, Demands: 100, LeasesTotal: 100}
	ask := func(resource, client string, demands ...Demand) error {
		_, err := v.Lease(v.now, client, &Request{Resource: resource, Demands: demands})
		return err
	}
	refused := func(err error, want string) {
		t.Helper()
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	one := Demand{Clients: 1, Wants: 1}
	for _, resource := range []string{"x", "y"} {
		for i := range 3 {
			if err := ask(resource, name(i), one); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused(ask("z", "a", one), `resource "z" is new, and the server has 2, want at most 2`)
	refused(ask("x", "a", one), `resource "x" has 3 leases, want at most 3 at once`)
	if err := ask("x", name(0), one, Demand{1, 1, 1}, Demand{2, 1, 1}, Demand{3, 1, 1}); err != nil {
		t.Errorf("four priorities: %v", err)
	}
	refused(ask("x", name(1), Demand{9, 1, 1}), `resource "x": 5 priorities, want at most 4 at once`)
	v.Release(v.now, name(0), "x")
	if err := ask("x", "a", Demand{9, 1, 1}); err != nil {
		t.Errorf("after a release: %v", err)
	}
	v.check()
	want := Limits{DefaultResources, DefaultLeases, DefaultPriorities, defaultDemands, DefaultLeasesTotal}
	if got := NewServer(Limits{}).limits; got != want {
		t.Errorf("limits of 0 are %+v, want %+v", got, want)
	}
}
