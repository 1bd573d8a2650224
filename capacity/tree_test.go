package capacity

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTreeIsASortedSlice puts claims in and takes them out again, and compares with a sorted slice.
func TestTreeIsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newResource(thing)
		var slow []int32
		for range rapid.IntRange(1, 1000).Draw(t, "steps") {
			if len(slow) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == len(slow)/200%3 {
				k := rapid.IntRange(0, len(slow)-1).Draw(t, "which")
				r.removeDemand(&r.demands, slow[k])
				r.demands.remove(slow[k])
				slow = slices.Delete(slow, k, k+1)
				continue
			}
			d := Demand{
				Clients: rapid.Int64Range(1, 3).Draw(t, "clients"),
				Wants:   float64(rapid.IntRange(0, 20).Draw(t, "wants")),
			}
			i := r.demands.newDemand(&d, 0)
			r.addDemand(&r.demands, i)
			slow = append(slow, i)
		}
		if n := checkTree(t, r, r.tree); n != len(slow) {
			t.Fatalf("%d claims in the tree, want %d", n, len(slow))
		}
		slices.SortFunc(slow, func(i, j int32) int {
			a, b := r.demands.at(i).wantsPerClient(), r.demands.at(j).wantsPerClient()
			if (sortKey{a, i}).sortsBefore(sortKey{b, j}) {
				return -1
			}
			return 1
		})
		var got []int32
		for _, k := range inOrder(&r.demands, r.tree.root, nil) {
			for _, e := range r.demands.nodes.at(k).entries {
				got = append(got, e.demand)
			}
		}
		if !slices.Equal(got, slow) {
			t.Fatalf("the tree has %v, want %v", got, slow)
		}
	})
}

// TestTreeStaysShallow lets one client change its wants in a tight loop beside many others, in order and
// back and forth.
func TestTreeStaysShallow(t *testing.T) {
	const n = 10_000
	v := newBench(t, "FAIR_SHARE capacity=100000")
	for i := range n {
		v.want(name(i), float64(i)) // in order: a plain binary tree would be a list
	}
	for i := range 100_000 {
		v.want("busy", float64(i%2*n))
	}
	r := v.resources[thing]
	if d := depth(&r.demands, r.tree.root); d > 30 {
		t.Errorf("%d claims are %d chunks deep, want at most 30", n+1, d)
	}
	v.check()
}

func depth(c *demandTrees, root int32) int {
	if root == 0 {
		return 0
	}
	return 1 + max(depth(c, c.nodes.at(root).left.root), depth(c, c.nodes.at(root).right.root))
}

// TestTightLoopTouchesNothing asks over and over for the same: the same answer, no search in the tree, no
// memory, and no entry more among the expiries.
func TestTightLoopTouchesNothing(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=100")
	for i := range 100 {
		v.want(name(i), 10)
	}
	first := v.want("busy", 5)
	r := v.resources[thing]
	drawn, entries := r.demands.rankState, len(r.expiries)
	q := &Request{Resource: thing, Demands: []Demand{{Clients: 1, Wants: 5}}}
	allocated := testing.AllocsPerRun(10_000, func() {
		v.now = v.now.Add(1000)
		if g, err := v.Lease(v.now, "busy", q); err != nil || g.Lease.Capacity != first {
			t.Fatalf("Lease = %v, %v, want %v", g.Lease.Capacity, err, first)
		}
	})
	if allocated != 0 || r.demands.rankState != drawn || len(r.expiries) != entries || !r.solved {
		t.Errorf("%v allocations, %d places drawn, %d entries, solved %v; want nothing touched",
			allocated, r.demands.rankState-drawn, len(r.expiries)-entries, r.solved)
	}
}

// TestSumIsExact compares with numbers of any precision, from 1e-20 to 1e290.
func TestSumIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s exactSum
		slow := new(big.Float).SetPrec(4096)
		var in []float64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			x := rapid.Float64Range(0, 1).Draw(t, "x") *
				math.Pow(10, float64(rapid.SampledFrom([]int{-20, 0, 1, 17, 100, 290}).Draw(t, "size")))
			if len(in) > 0 && rapid.Bool().Draw(t, "take back") {
				x = -in[len(in)-1]
				in = in[:len(in)-1]
			} else {
				in = append(in, x)
			}
			s.add(x)
			slow.Add(slow, new(big.Float).SetFloat64(x))
			want, _ := slow.Float64()
			if got := s.value(); math.Abs(got-want) > 1e-15*want {
				t.Fatalf("sum = %v, want %v", got, want)
			}
		}
		for _, x := range in {
			s.add(-x)
		}
		if len(s.parts) != 0 || s.value() != 0 {
			t.Fatalf("sum = %v after all was taken back, want 0", s.parts)
		}
	})
}
