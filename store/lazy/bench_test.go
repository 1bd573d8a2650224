//go:build unix

package lazy_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A GCRA of one token per call, hot and on many names, in memory and with a real Redis behind it.
func BenchmarkDecision(b *testing.B) {
	for _, of := range []struct {
		name     string
		keys     int
		interval time.Duration
	}{{"hot", 1, 100 * time.Millisecond}, {"100k", 100_000, 10 * time.Second}} {
		b.Run(of.name+"/memory", func(b *testing.B) { decide(b, memory.New(memory.Config{}), of.keys) })
		b.Run(of.name+"/lazy", func(b *testing.B) {
			shared := openRedis(b, redistest.Start(b))
			store := lazy.New(shared, lazy.Config{Rule: func(gatehouse.Key) lazy.SyncRule {
				return lazy.SyncRule{Interval: of.interval}
			}})
			b.Cleanup(store.Close)
			before := shared.Stats()
			decide(b, store, of.keys)
			after := shared.Stats()
			exchanges := after.Swaps + after.Reads - before.Swaps - before.Reads
			b.ReportMetric(float64(exchanges)/float64(b.N), "exchanges/op")
		})
	}
}

// openRedis returns the store of one server.
func openRedis(tb testing.TB, server *redistest.Server) *cas.Store {
	tb.Helper()
	backend, err := redis.Open("redis://" + server.Address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(backend.Close)
	shared := cas.New(backend, cas.Config{Server: 1, Timeout: 5 * time.Second})
	tb.Cleanup(shared.Close)
	return shared
}

// decide has a gate in front of a store asked b.N times, each name having been asked before.
func decide(b *testing.B, store gate.Store, keys int) {
	b.Helper()
	g := gate.New(store, gate.Config{})
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 1_000_000, Interval: time.Second, Burst: 1_000_000}, Cost: 1,
	}
	names := make([]gatehouse.Key, keys)
	for i := range names {
		names[i] = gatehouse.Key{Kind: gatehouse.GCRA, Name: "user " + strconv.Itoa(i)}
	}
	call := func(i int64) {
		if _, err := g.Do(context.Background(), names[i%int64(keys)], cmd); err != nil {
			b.Error(err)
		}
	}
	var work sync.WaitGroup
	var next atomic.Int64
	for range 256 {
		work.Go(func() {
			for i := next.Add(1); i <= int64(keys); i = next.Add(1) {
				call(i)
			}
		})
	}
	work.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	spent := processorTime(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			call(next.Add(1))
		}
	})
	b.ReportMetric(float64(processorTime(b)-spent)/float64(b.N), "cpu-ns/op")
}

// processorTime is what this process has used so far, in ns.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
