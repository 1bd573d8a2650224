package capacity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawWants are some holders, a few of them servers, with wants of many sizes.
func drawWants(t *rapid.T, most int) []want {
	wants := rapid.OneOf(
		rapid.Float64Range(0, 100),
		rapid.Map(rapid.IntRange(0, 10), func(n int) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{0, 1e-9, 50, 1e6, 1e12}),
	)
	all := make([]want, rapid.IntRange(1, most).Draw(t, "holders"))
	for i := range all {
		all[i] = want{
			client:   fmt.Sprintf("c%d", i),
			priority: rapid.Int64Range(-1, 2).Draw(t, "priority"),
			clients:  rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 50}).Draw(t, "clients"),
			wants:    wants.Draw(t, "wants"),
		}
	}
	return all
}

func drawLine(
	t *rapid.T, kinds ...AlgorithmKind,
) (kind AlgorithmKind, strict bool, capacity float64, line string) {
	kind = rapid.SampledFrom(kinds).Draw(t, "kind")
	strict = rapid.Bool().Draw(t, "strict")
	capacity = rapid.SampledFrom([]float64{0, 1e-6, 1, 10, 100, 333.3, 1e5, 1e13}).Draw(t, "capacity")
	line = fmt.Sprintf("%v capacity=%v", kind, capacity)
	if strict {
		line += " strict"
	}
	return kind, strict, capacity, line
}

// cycle has everybody ask once.
func (v *workbench) cycle(all []want) []float64 {
	grants := make([]float64, len(all))
	for i, w := range all {
		g := v.ask(w.client, 0, Demand{Priority: w.priority, Clients: w.clients, Wants: w.wants})
		grants[i] = g.Lease.Capacity
	}
	return grants
}

// TestFixedPoint has everybody ask and want the same: whatever happened before, each has the share that the
// slow loops say. At first all wants become known, then who has too much gives back, then all
// get theirs, and nothing changes any more.
func TestFixedPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind, strict, capacity, line := drawLine(t, FairShare, ProportionalShare, Static, NoAlgorithm)
		v := newBench(t, line)
		v.cycle(drawWants(t, 12)) // some history
		all := drawWants(t, 12)
		r := v.resources[thing]
		for _, i := range r.byName.pageAfter("", 100) {
			name := r.records.at(i).client
			if !slices.ContainsFunc(all, func(w want) bool { return w.client == name }) {
				v.Release(v.now, name, thing)
			}
		}
		v.cycle(all)
		v.cycle(all)
		third, fourth := v.cycle(all), v.cycle(all)
		v.check()
		slow := slowShares(kind, strict, capacity, all)
		wants, _ := totals(all)
		total := 0.0
		for i, w := range all {
			scale := max(1, slow[i])
			if diff := third[i] - slow[i]; diff > 1e-9*scale || -diff > 1e-9*scale {
				t.Errorf("%+v has %v, want %v", w, third[i], slow[i])
			}
			if diff := fourth[i] - third[i]; diff > 1e-9*scale || -diff > 1e-9*scale {
				t.Errorf("%+v still moves, from %v to %v", w, third[i], fourth[i])
			}
			total += third[i]
		}
		scale := max(capacity, 1)
		if v.resources[thing].sharesCapacity() && !near(total/scale, min(capacity, wants)/scale) {
			t.Errorf("all have %v, want %v", total, min(capacity, wants))
		}
	})
}

// TestEqualClaimsEqualShares checks that only what somebody wants decides, not who it is or who came
// first.
func TestEqualClaimsEqualShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _, _, line := drawLine(t, FairShare, ProportionalShare)
		all := drawWants(t, 10)
		twin := all[0]
		twin.client = "twin"
		all = append(all, twin)
		settled := func(order []want) map[string]float64 {
			v := newBench(t, line)
			v.cycle(order)
			v.cycle(order)
			has := map[string]float64{}
			for i, grant := range v.cycle(order) {
				has[order[i].client] = grant
			}
			return has
		}
		one, other := settled(all), settled(rapid.Permutation(all).Draw(t, "order"))
		for client, has := range one {
			if !near(has/max(1, has), other[client]/max(1, has)) {
				t.Errorf("%s has %v, and in another order %v", client, has, other[client])
			}
		}
		if a, b := one["twin"], one[twin.client]; !near(one["c0"], a) {
			t.Errorf("twins have %v and %v", a, b)
		}
	})
}

// TestNobodyStarves checks that who wants something has something, when there is something and all have the
// same priority.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]AlgorithmKind{FairShare, ProportionalShare}).Draw(t, "kind")
		v := newBench(t, fmt.Sprintf("%v capacity=10", kind))
		all := drawWants(t, 12)
		v.cycle(all)
		v.cycle(all)
		_, clients := totals(all)
		for i, has := range v.cycle(all) {
			least := min(all[i].wants, 10/float64(clients)*float64(all[i].clients))
			if has < least*(1-1e-9)-1e-14 {
				t.Errorf("%+v has %v, want at least %v", all[i], has, least)
			}
		}
	})
}

// TestNeverMoreThanThereIs lets everything change all the time, and checks after every request that the
// leases are no more than the capacity, and what each lease may be.
func TestNeverMoreThanThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _, capacity, line := drawLine(t, FairShare, ProportionalShare)
		v := newBench(t, line)
		has := map[string]float64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := drawWants(t, 1)[0]
			w.client = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "client")
			if rapid.IntRange(0, 9).Draw(t, "release") == 0 {
				v.Release(v.now, w.client, thing)
				delete(has, w.client)
				continue
			}
			g := v.ask(w.client, has[w.client], Demand{w.priority, w.clients, w.wants})
			if g.Lease.Capacity > w.wants {
				t.Fatalf("%+v has %v", w, g.Lease.Capacity)
			}
			has[w.client] = g.Lease.Capacity
			total := 0.0
			for _, amount := range has {
				total += amount
			}
			if total > capacity*(1+1e-9) {
				t.Fatalf("leases of %v, want at most %v: %v", total, capacity, has)
			}
			v.check()
		}
	})
}

// TestStrictPriorities goes through an example: 100 for a band that wants 60, one that wants 80 and one more.
func TestStrictPriorities(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100 strict")
	all := []want{
		{"low", -5, 1, 10}, {"middle-1", 0, 1, 50}, {"middle-2", 0, 1, 30}, {"high", 7, 2, 60},
	}
	v.cycle(all)
	v.cycle(all)
	if got, want := v.cycle(all), []float64{0, 20, 20, 60}; !slices.Equal(got, want) {
		t.Errorf("strict shares = %v, want %v", got, want)
	}
	v.configure(func(t *Template) { t.Algorithm.Parameters = nil })
	v.check()
	v.cycle(all)
	v.cycle(all)
	// Without, only numbers count: of five clients one wants 10, the others share 90.
	if got, want := v.cycle(all), []float64{10, 22.5, 22.5, 45}; !slices.Equal(got, want) {
		t.Errorf("shares = %v, want %v", got, want)
	}
}
