package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestHugeAmountsHideNothing: one holds so much that what the others hold is lost in the rounding. Then there
// is less, and it gets nothing while others have all.
func TestHugeAmountsHideNothing(t *testing.T) {
	for _, kind := range []AlgorithmKind{FairShare, ProportionalShare} {
		v := newBench(t, "NO_ALGORITHM capacity=100")
		v.want("whale", 1e300)
		v.want("a", 100)
		v.configure(func(t *Template) { t.Algorithm.Kind = kind })
		if got := v.want("whale", 100); got != 0 {
			t.Errorf("%v: whale has %v of 100, want 0: a has all of it", kind, got)
		}
	}
}

// TestStrictBackAndForthKeepsLittle changes the template again and again: no chunk is lost.
func TestStrictBackAndForthKeepsLittle(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	for i := range 5000 {
		v.ask(name(i), 0, Demand{Priority: int64(i % 3), Clients: 1, Wants: float64(i)})
	}
	for range 10 {
		v.configure(func(t *Template) {
			t.Algorithm.Parameters = []AlgorithmParameter{{"priority", "strict"}}
		})
		v.configure(func(t *Template) { t.Algorithm.Parameters = nil })
	}
	v.check()
	r := v.resources[thing]
	if pages := len(r.demands.nodes.pages); pages > 1 {
		t.Errorf("%d pages of chunks for 5000 claims, want 1", pages)
	}
	v.check()
}

// TestTimesAreNeverPastOverflow jumps from the farthest future to the farthest past: what has ages to go
// does not seem to have ended.
func TestTimesAreNeverPastOverflow(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	v.now = time.Unix(1<<40, 0)
	v.want("a", 10)
	v.now = time.Unix(-1<<40, 0)
	if next := v.Expire(v.now); !next.After(v.now) {
		t.Errorf("Expire = %v, want it after %v", next, v.now)
	}
	if h := v.Leases(v.now, thing, "", 1); len(h) != 1 || !h[0].Lease.Expiry.After(v.now) {
		t.Errorf("Leases = %+v, want one that has not ended", h)
	}
}

// TestPagesDoBoundedWork: many resources whose leases have all run out cost a page no more than one Expire.
func TestPagesDoBoundedWork(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	const resources, leases = 20, 1000
	for i := range resources {
		for k := range leases {
			q := &Request{Resource: strconv.Itoa(i), Demands: []Demand{{Clients: 1, Wants: 1}}}
			v.request(name(k), q)
		}
	}
	v.now = v.now.Add(time.Hour)
	v.Resources(v.now, "", resources)
	left := 0
	for _, r := range v.resources {
		left += r.leaseCount()
	}
	if gone := resources*leases - left; gone > maxExpiredPerCall {
		t.Errorf("one page forgot %d leases, want at most %d", gone, maxExpiredPerCall)
	}
}

// TestRestoredListGoes: what was restored is forgotten when all of it has run out, whoever has asked since.
func TestRestoredListGoes(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 learning")
	var list []Saved
	for i := range 1000 {
		resource := fmt.Sprint("r", i%10)
		list = append(list, Saved{resource, name(i), seconds(float64(i))})
	}
	v.Restore(v.now, list)
	v.now = v.now.Add(seconds(999) + 1)
	v.Expire(v.now)
	if v.awaited != nil {
		t.Errorf("%d resources of the list are kept, want none", len(v.awaited))
	}
	if got := v.want("new", 50); got != 50 {
		t.Errorf("new has %v, want 50", got)
	}
}

// TestDemandsAreLimitedOnAllResources goes to the limit and one past it, with leases on several resources and
// a server with several priorities.
func TestDemandsAreLimitedOnAllResources(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	v.limits.Demands = 5
	ask := func(resource, client string, priorities ...int64) error {
		q := &Request{Resource: resource}
		for _, p := range priorities {
			q.Demands = append(q.Demands, Demand{Priority: p, Clients: 1, Wants: 1})
		}
		_, err := v.Lease(v.now, client, q)
		return err
	}
	for i, err := range []error{ask("x", "a", 0), ask("y", "a", 0), ask("x", "server", 0, 1, 2)} {
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	learning := &Request{Resource: "x", Server: true, Demands: []Demand{{7, 1, 1}}}
	learning.Has.Expiry = v.now.Add(time.Minute)
	_, more := v.Lease(v.now, "server", learning)
	for _, err := range []error{ask("x", "b", 0), ask("z", "a", 0), ask("y", "a", 0, 1), more} {
		code := gatehouse.CodeOf(err)
		if code != gatehouse.CodeExhausted || !strings.Contains(err.Error(), "want at most 5") {
			t.Errorf("one past the limit: %v", err)
		}
	}
	if err := ask("x", "server", 7, 8); err != nil {
		t.Errorf("who has leases and wants other things: %v", err)
	}
	if err := ask("z", "b", 0); err != nil {
		t.Errorf("after a server has one priority less: %v", err)
	}
	v.Release(v.now, "a", "y")
	if err := ask("x", "b", 0); err != nil {
		t.Errorf("after a release: %v", err)
	}
	if v.demandCount != 5 {
		t.Errorf("%d demands, want 5", v.demandCount)
	}
	v.now = v.now.Add(time.Hour)
	v.Expire(v.now)
	if v.demandCount != 0 {
		t.Errorf("%d demands when all has run out, want 0", v.demandCount)
	}
}

// TestNamesThatComeAndGoAreLimited asks a server with a parent for one new resource after the other, and
// gives each back: what the parent has to hear is limited, too.
func TestNamesThatComeAndGoAreLimited(t *testing.T) {
	s := NewServer(Limits{Resources: 10})
	now := time.Unix(1_000_000_000, 0)
	s.Follow(now)
	s.Lead(now, time.Time{})
	ask := func(resource string) error {
		q := &Request{Resource: resource, Demands: []Demand{{Clients: 1, Wants: 1}}}
		_, err := s.Lease(now, "a", q)
		s.Release(now, "a", resource)
		return err
	}
	for i := range 1000 {
		if err := ask(name(i)); (err == nil) != (i < 10) {
			t.Fatalf("resource %d: %v", i, err)
		}
	}
	now = now.Add(time.Minute) // it learns no more
	s.Asks(now)
	if n := len(s.parent.supplies); n != 0 {
		t.Errorf("%d resources are kept for the parent, want none", n)
	}
	if err := ask("another"); err != nil {
		t.Errorf("after that: %v", err)
	}
}
