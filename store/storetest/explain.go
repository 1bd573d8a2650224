package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Histories has clients of all servers of a store make so many calls, and looks for an order that explains
// what was answered: that is linearizability. Many short histories are checked in less time than a long one.
func Histories(t *testing.T, setup Setup, calls int) {
	t.Helper()
	made := 0
	for seed := uint64(0); made < calls; seed++ {
		b := &testBench{T: t, Setup: &setup}
		work := func(b *testBench) { b.makeCalls(seed, min(calls-made, perHistory)) }
		if setup.Virtual {
			synctest.Test(t, func(t *testing.T) { b.runOnPlace(t, work) })
		} else {
			b.runOnPlace(t, work)
		}
		made += b.history.Len()
		b.checkHistory(t)
		// The first seed that fails is the whole report.
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d calls are explained", made)
}

// Calls is how many calls a test of histories makes: so many, or so many times more as the variable HISTORIES
// says. With -short it is a third of them.
func Calls(t *testing.T, calls int) int {
	t.Helper()
	// Fewer calls find less, and nothing else changes.
	if testing.Short() {
		calls /= 3
	}
	if text := os.Getenv("HISTORIES"); text != "" {
		times, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
		calls *= times
	}
	return calls
}

// GrantCalls is how many calls a test of histories of grants makes: so many, or as many on each store if the
// variable HISTORIES is there, 10,000 times what it says.
func GrantCalls(t *testing.T, calls int) int {
	t.Helper()
	if os.Getenv("HISTORIES") != "" {
		calls = 10_000
	}
	return Calls(t, calls)
}

// perHistory is how many calls are explained together, and perName about how many of them are about one name.
const (
	perHistory = 24_000
	perName    = 400
	clients    = 6
)

// makeCalls has clients make calls about names that they share, a few at a time.
func (b *testBench) makeCalls(seed uint64, calls int) {
	var all sync.WaitGroup
	for i := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) // the same again
		c := &randomCaller{testBench: b, rng: rng, name: fmt.Sprint("c", i)}
		// Each client has its own source of numbers, so that a seed gives the same calls in any order of
		// them.
		all.Go(func() {
			for n := range (calls + clients - 1) / clients {
				c.makeCall(fmt.Sprint(seed, "/", n*clients*4/perName))
			}
		})
	}
	all.Wait()
}

// A randomCaller makes one call after the other, as the same holder.
type randomCaller struct {
	*testBench
	rng   *rand.Rand
	name  string
	fence uint64 // of what it was granted last, under whatever name
}

// makeCall makes one call about one of four controllers of a name.
func (c *randomCaller) makeCall(name string) {
	key, cmd := keyOf(gatehouse.Counter, name), gatehouse.Command{Op: gatehouse.OpValue}
	// Of 16 calls about 4 are for the lock, 4 for the semaphore, 5 for the counter and 3 for the event. Locks
	// and semaphores have the most to explain.
	switch what := c.rng.IntN(16); {
	case what < 4:
		key, cmd = keyOf(gatehouse.Lock, name), acquireOne(c.name, 1)
	case what < 8:
		key, cmd = keyOf(gatehouse.Semaphore, name), acquireOne(c.name, 3)
		cmd.Cost = 1 + c.rng.Int64N(2)
	case what < 10:
		cmd.Op, cmd.Amount = gatehouse.OpCount, c.rng.Int64N(9)-4
	case what == 10:
		cmd.Op, cmd.Amount = gatehouse.OpReset, c.rng.Int64N(9)
	case what > 12:
		key, cmd = keyOf(gatehouse.Event, name), gatehouse.Command{Op: gatehouse.OpWait}
		// A send is rare, since after it every wait has the same answer.
		if c.rng.IntN(64) == 0 {
			cmd = gatehouse.Command{Op: gatehouse.OpSend, Message: c.name}
		}
	}
	if cmd.Op == gatehouse.OpAcquire {
		c.callHold(key, cmd)
		return
	}
	_, _ = c.history.Do(c.Context(), c.randomGate(), key, cmd)
}

func (c *randomCaller) randomGate() gatehouse.Gate { return c.at(c.rng.IntN(len(c.nodes))).gate }

// callHold acquires, renews or releases, whatever the results of earlier calls. Some callers leave before the
// answer.
func (c *randomCaller) callHold(key gatehouse.Key, cmd gatehouse.Command) {
	cmd.Expires = 0 // a hold that ended by itself would have to be explained
	ctx := c.Context()
	switch c.rng.IntN(6) {
	case 0, 1:
		cmd.Op = gatehouse.OpRelease
	case 2:
		cmd.Op, cmd.Expires = gatehouse.OpRenew, gatehouse.AsAcquired
	case 3:
		cmd.MaxWait = time.Duration(c.rng.IntN(2)) * time.Millisecond
		if c.rng.IntN(2) == 0 {
			// A caller that leaves is the hard case: its acquire may have been granted, and is undone at any
			// time.
			patience := time.Duration(c.rng.Int64N(int64(time.Millisecond)))
			left, leave := context.WithTimeout(ctx, patience)
			defer leave()
			ctx = left
		}
	}
	if cmd.Op != gatehouse.OpAcquire && c.rng.IntN(2) == 0 {
		// A token of an earlier hold, or of another name, so that calls about a wrong hold happen too.
		cmd.Fence = c.fence
	}
	d, err := c.history.Do(ctx, c.randomGate(), key, cmd)
	if err == nil && d.Fence != 0 {
		c.fence = d.Fence
	}
}
