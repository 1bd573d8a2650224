package hold_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/hold"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// The examples ask a gate of the process. With client.New in its place they ask a server.
func exampleGate() *gate.Gate { return gate.New(memory.New(memory.Config{}), gate.Config{}) }

// At most four train at once. The slot is renewed for as long as it is held, and comes free when the program
// dies.
func ExampleSemaphore() {
	g, ctx := exampleGate(), context.Background()
	gpu, err := hold.Semaphore(g, "gpu", 4).Acquire(ctx)
	if err != nil {
		panic(err)
	}
	train := func(ctx context.Context) { fmt.Println("training:", ctx.Err() == nil) }
	train(gpu.Context()) // which ends when the slot is lost
	fmt.Println("released:", gpu.Release())
	// Output:
	// training: true
	// released: <nil>
}

// One at a time. The resource that is written to refuses a fence below one that it has seen.
func ExampleLock() {
	g, ctx := exampleGate(), context.Background()
	deploy := hold.Lock(g, "deploy")
	deploy.Owner = &gatehouse.Owner{Name: "ci", Purpose: "release 1.2"}
	first, err := deploy.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	_, ok, err := deploy.TryAcquire(ctx)
	fmt.Println("a second one at once:", ok, err)
	if err := first.Release(); err != nil {
		panic(err)
	}
	second, err := deploy.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("greater fence:", second.Fence() > first.Fence())
	fmt.Println(second.Release())
	// Output:
	// a second one at once: false <nil>
	// greater fence: true
	// <nil>
}

// Do ends the work when the lock is lost, and says so.
func ExampleHandle_Do() {
	g, ctx := exampleGate(), context.Background()
	err := hold.Lock(g, "nightly").Do(ctx, func(context.Context) error {
		return errors.New("disk is full")
	})
	fmt.Println(err, errors.Is(err, hold.ErrLost))
	// Output: disk is full false
}

// A lock and two slots, both or neither.
func ExampleGrant() {
	g, ctx := exampleGate(), context.Background()
	build, err := hold.Grant(g,
		gatehouse.Member{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: "repo"}, Cost: 1},
		gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.Semaphore, Name: "builders"},
			Rule: gatehouse.Rule{Size: 4}, Cost: 2,
		}).Acquire(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(build.Err(), build.Release())
	// Output: <nil> <nil>
}

// Five a second for all programs together. WaitN waits in line, Allow does not.
func ExampleLimiter() {
	g, ctx := exampleGate(), context.Background()
	api := hold.Limiter(g, gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "api"},
		gatehouse.Rule{Size: 5, Interval: time.Hour})
	fmt.Println(api.WaitN(ctx, 4))
	for range 2 {
		ok, err := api.Allow(ctx)
		fmt.Println(ok, err)
	}
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	fmt.Println(gatehouse.CodeOf(api.Wait(soon)))
	// Output:
	// <nil>
	// true <nil>
	// false <nil>
	// timeout
}

// A busy program takes a hundred tokens at once, decides by itself, and gives back what it does not use.
func ExampleLimiter_prefetch() {
	g, ctx := exampleGate(), context.Background()
	api := hold.Limiter(g, gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "api"},
		gatehouse.Rule{Size: 1000, Interval: 24 * time.Hour})
	api.Prefetch = 100
	allowed := 0
	for range 30 {
		if ok, err := api.Allow(ctx); err == nil && ok {
			allowed++
		}
	}
	api.Close()
	d, err := api.Decide(ctx, 1)
	fmt.Println(allowed, d.Remaining, err)
	// Output: 30 969 <nil>
}

// An estimate is reserved before the call, and what it really cost is said behind it.
func ExampleBudget() {
	g, ctx := exampleGate(), context.Background()
	tokens := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "tokens"}
	model := hold.Budget(g,
		gatehouse.Member{Key: tokens, Rule: gatehouse.Rule{Size: 10_000, Interval: time.Minute}, Cost: 1000},
		gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.Semaphore, Name: "calls"},
			Rule: gatehouse.Rule{Size: 20}, Cost: 1,
		})
	call, err := model.Reserve(ctx, gatehouse.MemberCost{Key: tokens, Cost: 3000})
	if err != nil {
		panic(err)
	}
	more, err := call.TopUp(ctx, gatehouse.MemberCost{Key: tokens, Cost: 500}) // while the answer streams
	fmt.Println(more, err)
	fmt.Println(call.Settle(ctx, gatehouse.MemberCost{Key: tokens, Cost: 3100}))
	fmt.Println(call.Release(gatehouse.MemberCost{Key: tokens, Cost: 3200}))
	// Output:
	// true <nil>
	// <nil>
	// <nil>
}

// Something has happened, and whoever waits or asks later is told.
func ExampleEvent() {
	g, ctx := exampleGate(), context.Background()
	build := hold.Event(g, "build-17")
	go func() { _ = build.Send(ctx, "green") }()
	message, err := build.Wait(ctx)
	fmt.Println(message, err)
	// Output: green <nil>
}

// All begin when all are there.
func ExampleBarrier() {
	g, ctx := exampleGate(), context.Background()
	start := hold.Barrier(g, "start", 2)
	go func() { _ = start.Wait(ctx) }()
	fmt.Println(start.Wait(ctx))
	// Output: <nil>
}

// A job says that it is alive, and a monitor learns when it stops doing so.
func ExampleWatchdog() {
	g, ctx := exampleGate(), context.Background()
	nightly := hold.Watchdog(g, "nightly", 10*time.Millisecond)
	fmt.Println(nightly.Kick(ctx))
	fmt.Println("fired:", nightly.Wait(ctx))
	// Output:
	// <nil>
	// fired: <nil>
}

// A number that all programs share.
func ExampleCounter() {
	g, ctx := exampleGate(), context.Background()
	visits := hold.Counter(g, "visits")
	for range 2 {
		value, err := visits.Add(ctx, 5)
		fmt.Println(value, err)
	}
	// Output:
	// 5 <nil>
	// 10 <nil>
}
