package lease_test

import (
	"context"
	"testing"

	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// resource is one of a client without a server, which has all the capacity it asks for.
func resource(tb testing.TB) *lease.Resource {
	tb.Helper()
	c, err := lease.New(lease.Config{Servers: []string{"127.0.0.1:1"}, Fallback: 1e9})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close(context.Background()) })
	r, err := c.Resource("r", 1e9, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// decisions are what users of a resource do for each call of theirs.
func decisions(tb testing.TB) map[string]func() {
	tb.Helper()
	r, ctx := resource(tb), tb.Context()
	rate, gauge := lease.NewRateLimiter(r), lease.NewGauge(r)
	adaptive := lease.NewAdaptive(r, lease.AdaptiveConfig{})
	tb.Cleanup(adaptive.Close)
	return map[string]func(){
		"Rate.Allow":     func() { rate.Allow() },
		"Rate.Wait":      func() { _ = rate.Wait(ctx) },
		"Adaptive.Allow": func() { adaptive.Allow() },
		"Adaptive.Wait":  func() { _ = adaptive.Wait(ctx) },
		"Gauge.Acquire": func() {
			if gauge.Acquire(ctx) == nil {
				gauge.Release()
			}
		},
		"Resource.Capacity": func() { r.Capacity() },
	}
}

// BenchmarkDecision: at most 100 ns each, without a request or an allocation.
func BenchmarkDecision(b *testing.B) {
	for name, decide := range decisions(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
	}
}

// BenchmarkDecisionsAtOnce is BenchmarkDecision by all processors.
func BenchmarkDecisionsAtOnce(b *testing.B) {
	for name, decide := range decisions(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					decide()
				}
			})
		})
	}
}

// TestDecisionsAllocateNothing: and ask nobody.
func TestDecisionsAllocateNothing(t *testing.T) {
	for name, decide := range decisions(t) {
		if n := testing.AllocsPerRun(1000, decide); n != 0 {
			t.Errorf("%s allocates %g times, want never", name, n)
		}
	}
}

// BenchmarkQueue: one that waits among a thousand, when there is capacity.
func BenchmarkQueue(b *testing.B) {
	k := newKnob(0)
	rate := lease.NewRateLimiter(k)
	defer rate.Close()
	passed := make(chan error)
	const n = 1000
	for b.Loop() {
		for range n {
			go func() { passed <- rate.Wait(context.Background()) }()
		}
		await.True(b, "all wait", func() bool { return rate.Waiting() >= n })
		k.turn(-1)
		for range n {
			if err := <-passed; err != nil {
				b.Fatal(err)
			}
		}
		k.turn(0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/waiter")
}
