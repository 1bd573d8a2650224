package storetest

import (
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
		b := &bench{T: t, Setup: &setup}
		work := func(b *bench) { b.mingle(seed, min(calls-made, perHistory)) }
		if setup.Virtual {
			synctest.Test(t, func(t *testing.T) { b.play(t, work) })
		} else {
			b.play(t, work)
		}
		made += b.history.Len()
		if b.explain(t); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d calls are explained", made)
}

// Calls is how many calls a test of histories makes: so many, or so many times more as the variable HISTORIES
// says.
func Calls(t *testing.T, calls int) int {
	t.Helper()
	if text := os.Getenv("HISTORIES"); text != "" {
		times, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
		calls *= times
	}
	return calls
}

// perHistory is how many calls are explained together, and perName about how many of them are about one name.
const (
	perHistory = 24_000
	perName    = 400
	clients    = 6
)

// mingle has clients make calls about names that they share, a few at a time.
func (b *bench) mingle(seed uint64, calls int) {
	var all sync.WaitGroup
	for i := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) // #nosec G404 -- the same again
		all.Go(func() {
			for n := range (calls + clients - 1) / clients {
				b.call(rng, fmt.Sprint(seed, "/", n*clients*4/perName), fmt.Sprint("c", i))
			}
		})
	}
	all.Wait()
}

// call makes one call about one of four controllers of a name.
func (b *bench) call(rng *rand.Rand, name, client string) {
	key, cmd := named(gatehouse.Counter, name), gatehouse.Command{Op: gatehouse.OpValue}
	switch what := rng.IntN(16); {
	case what < 4:
		key, cmd = named(gatehouse.Lock, name), take(client, 1)
	case what < 8:
		key, cmd = named(gatehouse.Semaphore, name), take(client, 3)
		cmd.Cost = 1 + rng.Int64N(2)
	case what < 10:
		cmd.Op, cmd.Amount = gatehouse.OpCount, rng.Int64N(9)-4
	case what == 10:
		cmd.Op, cmd.Amount = gatehouse.OpReset, rng.Int64N(9)
	case what > 12:
		key, cmd = named(gatehouse.Event, name), gatehouse.Command{Op: gatehouse.OpWait}
		if rng.IntN(64) == 0 {
			cmd = gatehouse.Command{Op: gatehouse.OpSend, Message: client}
		}
	}
	if cmd.Op == gatehouse.OpAcquire && rng.IntN(2) == 0 {
		cmd.Op = gatehouse.OpRelease
	}
	cmd.Expires = 0 // a hold that ended by itself would have to be explained
	if cmd.Op == gatehouse.OpAcquire && rng.IntN(8) == 0 {
		cmd.MaxWait = time.Millisecond
	}
	_, _ = b.history.Do(b.Context(), b.at(rng.IntN(len(b.nodes))).gate, key, cmd)
}
