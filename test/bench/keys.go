package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// manyKeys measures commands whose controllers are not in the processor's caches, and what a
// controller takes of the memory while it is not used.
func manyKeys(_ context.Context, b *bench) (text string, rows []row, err error) {
	names := make([]string, b.scale(1_000_000, 100_000))
	for i := range names {
		names[i] = fmt.Sprintf("user-%07d", i)
	}
	// The names exist already, so the difference is without them for the floor and for ours.
	before := heap()
	floor := newShardedMap(names)
	floorBytes := (heap() - before) / float64(len(names))
	// The floor stays reachable until the end; were it collected here, ours would look smaller by as much.
	before = heap()
	// The last tenth of the names is kept for semaphores and locks.
	g := gate.New(memory.New(memory.Config{Names: len(names)*10/9 + 1}), gate.Config{})
	take := func(name string) {
		grant(g, gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}, bucket())
	}
	for _, name := range names {
		take(name)
	}
	oursBytes := (heap() - before) / float64(len(names))

	orders := [2][]uint32{order(len(names), 1), order(len(names), 2)}
	both := func(take func(name string)) func() (float64, error) {
		return func() (float64, error) { return fromTwo(names, orders, take), nil }
	}
	timed := newShardedMap(names)
	start := time.Now()
	timed.clock = func() int64 { return int64(time.Since(start)) }
	all, err := b.race(both(floor.take), both(timed.take), both(take))
	if err != nil {
		return "", nil, err
	}
	runtime.KeepAlive(floor)
	what := fmt.Sprintf("token bucket: acquire, %d keys", len(names))
	rows = []row{
		{what, all[0], all[2], nanoseconds, budget{most: 1.5}, ""},
		{what + ", against a map with a clock", all[1], all[2], nanoseconds, budget{most: 1.2}, ""},
		{
			"memory of an idle token bucket", series{floorBytes}, series{oursBytes}, bytes,
			budget{most: 120, absolute: true}, "the bytes of its name aside",
		},
	}
	text = "Two goroutines take the keys in two random orders, made before. Times are for one command of\n" +
		"one goroutine while the other is at work. The floor is a `map[string]*keyCount` in 256 parts,\n" +
		"each with its mutex. With a clock, it reads the time for each key as ours must: that keeps the\n" +
		"processor from fetching the next key while it waits for the memory of this one."
	return text, rows, nil
}

// heap is what the heap holds after a collection.
func heap() float64 {
	runtime.GC()
	runtime.GC() // the second empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// order is a random one of n, the same every time.
func order(n int, seed uint64) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i) //nolint:gosec // far below 4 billion
	}
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // no secret
	random.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// fromTwo returns the nanoseconds of one take while two goroutines take all names.
func fromTwo(names []string, orders [2][]uint32, take func(name string)) float64 {
	var group sync.WaitGroup
	start := time.Now()
	// Both take every name, each in another order, so that they seldom meet at one key.
	for _, order := range orders {
		group.Go(func() {
			for _, i := range order {
				take(names[i])
			}
		})
	}
	group.Wait()
	return float64(time.Since(start)) / float64(len(names))
}

// A shardedMap is the floor.
type shardedMap struct {
	seed  maphash.Seed
	clock func() int64 // nil for none
	parts [256]struct {
		mu       sync.Mutex
		counters map[string]*keyCount
	}
}

type keyCount struct{ n, last int64 }

func newShardedMap(names []string) *shardedMap {
	m := &shardedMap{seed: maphash.MakeSeed()}
	for i := range m.parts {
		m.parts[i].counters = make(map[string]*keyCount)
	}
	for _, name := range names {
		m.take(name)
	}
	return m
}

func (m *shardedMap) take(name string) {
	// 256 parts make it unlikely that the two goroutines want the same mutex.
	part := &m.parts[maphash.String(m.seed, name)%uint64(len(m.parts))]
	part.mu.Lock()
	c := part.counters[name]
	if c == nil {
		c = new(keyCount)
		part.counters[name] = c
	}
	c.n++
	if m.clock != nil {
		c.last = m.clock()
	}
	part.mu.Unlock()
}
