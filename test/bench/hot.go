package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// bucket is an acquire that is always granted.
func bucket() gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Hour}, Cost: 1,
	}
}

// grant puts a command to a gate that grants it at once.
func grant(g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command) {
	d, err := g.Do(context.Background(), key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		panic(fmt.Sprintf("%s %s: %s, %v, want granted", key, cmd.Op, d.Outcome, err))
	}
}

// hotKey measures what one command costs that never has to wait.
func hotKey(_ context.Context, b *bench) (text string, rows []row, err error) {
	contestants := hotContestants()
	measures := []func() (float64, error){b.perOp(casAndClock())}
	for _, c := range contestants {
		measures = append(measures, b.perOp(func(n int) {
			for range n {
				c.once()
			}
		}))
	}
	all, err := b.race(measures...)
	if err != nil {
		return "", nil, err
	}
	// Allocations are counted apart from the race: AllocsPerRun reads the statistics of memory, which takes
	// time.
	for i, c := range contestants {
		note := fmt.Sprintf("allocations: %.0f", testing.AllocsPerRun(10_000, c.once))
		rows = append(rows, row{c.what, all[0], all[i+1], nanoseconds, c.budget, note})
	}
	text = "`gate.Do` on the memory store. The floor is what no limiter can do without: one\n" +
		"compare-and-swap and one reading of the clock."
	return text, rows, nil
}

// casAndClock is the floor.
func casAndClock() func(n int) {
	var taken atomic.Int64
	start := time.Now()
	return func(n int) {
		for range n {
			// Alone, the swap never fails. With two goroutines it may, and is not repeated: the floor need
			// not be right, only cheap.
			old := taken.Load()
			taken.CompareAndSwap(old, int64(time.Since(start)))
		}
	}
}

// A hotContestant is one kind of command.
type hotContestant struct {
	what   string
	budget budget
	once   func()
}

func hotContestants() []hotContestant {
	g := gate.New(memory.New(memory.Config{}), gate.Config{})
	key := func(kind gatehouse.Kind) gatehouse.Key { return gatehouse.Key{Kind: kind, Name: "bench"} }
	acquire := bucket()
	hold := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "holder",
		Rule: gatehouse.Rule{Size: 1}, Cost: 1, Expires: time.Minute,
	}
	release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "holder"}
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	// The event is sent before, or the command that waits for it would stay in line.
	grant(g, key(gatehouse.Event), gatehouse.Command{Op: gatehouse.OpSend, Message: "go"})
	return []hotContestant{
		{"token bucket: acquire", budget{most: 5}, func() { grant(g, key(gatehouse.TokenBucket), acquire) }},
		{"semaphore: acquire and release", budget{most: 10}, func() {
			grant(g, key(gatehouse.Semaphore), hold)
			grant(g, key(gatehouse.Semaphore), release)
		}},
		{"event, sent: wait", budget{}, func() { grant(g, key(gatehouse.Event), wait) }},
		{"counter: count", budget{}, func() { grant(g, key(gatehouse.Counter), count) }},
	}
}
