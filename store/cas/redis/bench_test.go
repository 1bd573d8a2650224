package redis_test

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// callers is how many goroutines ask at once.
const callers = 512

// spread has callers make b.N calls in all.
func spread(b *testing.B, server *redistest.Server, call func(i int) error) {
	b.Helper()
	here, there := spent(b), spentBy(b, server)
	var next atomic.Int64
	var work sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for range callers {
		work.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "decisions/s")
	b.ReportMetric((spent(b)-here)/float64(b.N), "go-us/op")
	b.ReportMetric((spentBy(b, server)-there)/float64(b.N), "redis-us/op")
}

// spent is the processor time of this process in µs. Unlike the rate it does not depend on what else the
// machine does.
func spent(b *testing.B) float64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3
}

// spentBy is the processor time of a Redis in µs.
func spentBy(b *testing.B, server *redistest.Server) (total float64) {
	b.Helper()
	for line := range strings.Lines(server.CLI(b, "INFO", "cpu")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if seconds, err := strconv.ParseFloat(text, 64); err == nil &&
			(name == "used_cpu_user" || name == "used_cpu_sys") {
			total += seconds * 1e6
		}
	}
	return total
}

// benchmarkKeys are how many names are asked for.
var benchmarkKeys = []struct {
	name string
	keys int
	warm bool
}{{"hot", 1, true}, {"warm", 100_000, true}, {"cold", 1 << 40, false}}

// Gatehouse on Redis: a gcra of one token per call.
func BenchmarkSwap(b *testing.B) {
	for _, of := range benchmarkKeys {
		b.Run(of.name, func(b *testing.B) {
			server := redistest.Start(b)
			g := gate.New(openStore(b, server.Address), gate.Config{})
			cmd := gatehouse.Command{
				Op:   gatehouse.OpAcquire,
				Rule: gatehouse.Rule{Size: 1_000_000, Interval: time.Second, Burst: 1_000_000}, Cost: 1,
			}
			call := func(i int) error {
				key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "user " + strconv.Itoa(i%of.keys)}
				_, err := g.Do(context.Background(), key, cmd)
				return err
			}
			if of.warm {
				warm(b, of.keys, call)
			}
			spread(b, server, call)
		})
	}
}

func warm(b *testing.B, keys int, call func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for i := int(next.Add(1)); i <= keys; i = int(next.Add(1)) {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}

// plainText is a GCRA as it is usually written for Redis.
//
//go:embed testdata/gcra.lua
var plainText string

// The same by a plain script, with the same client and as many callers.
func BenchmarkPlainScript(b *testing.B) {
	for _, of := range benchmarkKeys {
		b.Run(of.name, func(b *testing.B) {
			server := redistest.Start(b)
			client, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{server.Address}, DisableCache: true, ForceSingleClient: true,
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(client.Close)
			gcra := rueidis.NewLuaScript(plainText)
			call := func(i int) error {
				key := "gcra/user " + strconv.Itoa(i%of.keys)
				arguments := []string{"1000000", "1000000", "1"}
				_, err := gcra.Exec(context.Background(), client, []string{key}, arguments).ToArray()
				return err
			}
			if of.warm {
				warm(b, of.keys, call)
			}
			spread(b, server, call)
		})
	}
}

// openStore returns the store of one server.
func openStore(tb testing.TB, address string) *cas.Store {
	tb.Helper()
	backend := open(tb, "redis://"+address)
	store := cas.New(backend, cas.Config{Server: 1, Timeout: patience, Names: 400_000})
	tb.Cleanup(store.Close)
	return store
}
