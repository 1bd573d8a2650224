package capacity

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BenchmarkLease is one decision on a resource with so many leases: steady, where everybody wants what they
// wanted before, and changing, where everybody wants something else each time.
func BenchmarkLease(b *testing.B) {
	for _, kind := range []AlgorithmKind{FairShare, ProportionalShare} {
		for _, n := range []int{10, 1_000, 100_000, 1_000_000} {
			name := fmt.Sprintf("%v/%d/", kind, n)
			b.Run(name+"steady", func(b *testing.B) { benchmarkLease(b, kind, n, false) })
			b.Run(name+"changing", func(b *testing.B) { benchmarkLease(b, kind, n, true) })
		}
	}
}

func benchmarkLease(b *testing.B, kind AlgorithmKind, n int, changing bool) {
	b.Helper()
	v := newBench(b, fmt.Sprintf("%v capacity=%d", kind, 5*n))
	names := make([]string, n)
	for i := range names {
		names[i] = "client-" + strconv.Itoa(i)
	}
	before := heap()
	r := &Request{Resource: thing, Demands: []Demand{{Clients: 1}}}
	ask := func(i int, wants float64) {
		r.Demands[0].Wants = wants
		if _, err := v.Lease(v.now, names[i], r); err != nil {
			b.Fatal(err)
		}
	}
	const step = 1_000_003 // a prime, so that all have their turn in no order
	for i := range n {
		ask(i, float64(i%step%17))
	}
	bytes := float64(heap()-before) / float64(n)
	v.now = v.now.Add(time.Second)
	b.ReportAllocs()
	i, round := 0, 0
	for b.Loop() {
		i = (i + step) % n
		wants := float64(i % step % 17)
		if changing {
			round++
			wants = float64(round * 7919 % 1009)
		}
		ask(i, wants)
	}
	b.ReportMetric(bytes, "B/lease")
}

// heap is how much is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
