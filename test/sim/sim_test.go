package sim_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// What the environment says: make sim sets it.
const (
	seedsVariable   = "SIM_SEEDS"   // how many seeds
	baseVariable    = "SIM_BASE"    // the first of them
	secondsVariable = "SIM_SECONDS" // of trouble for each seed
	seedVariable    = "SIM_SEED"    // the only one, with its whole history
)

// TestMain has the HTTP library start its clock for the Date header outside of virtual time: it never ends.
func TestMain(m *testing.M) {
	new(fasthttp.ResponseHeader).AppendBytes(nil)
	os.Exit(m.Run())
}

// setting is what the environment says, or else the usual number.
func setting(t *testing.T, name string, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// play plays one seed from its beginning to its end.
func play(t *testing.T, s setup) *cluster {
	t.Helper()
	var c *cluster
	synctest.Test(t, func(*testing.T) {
		c = newCluster(s)
		var clients sync.WaitGroup
		for i := range s.clients {
			one := &client{cluster: c, id: fmt.Sprint("c", i), rand: source(s.seed, uint64(i+10))}
			clients.Go(one.work)
		}
		c.trouble()
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		clients.Wait()
		c.enough()
		c.drills()
		c.judge()
		c.end()
	})
	if err := c.linear.Check(time.Minute); err != nil {
		c.violated("linear", gatehouse.Key{}, "%v", err)
	}
	c.explain()
	c.capacity()
	return c
}

// least is how many operations must get through in a minute of trouble; what is idle proves nothing.
const least = 50

// enough counts them.
func (c *cluster) enough() {
	n := 0
	for _, one := range c.calls {
		if one.decided() {
			n++
		}
	}
	if per := float64(n) / c.length.Minutes(); per < least {
		c.violated("enough", gatehouse.Key{}, "%.0f operations a minute got through, want %d", per, least)
	}
}

// TestSeeds plays the seeds 0 to 39, with -short 0 to 11, or those that the environment names.
func TestSeeds(t *testing.T) {
	// By itself as many seeds as the time for tests allows, rather than long ones.
	length := time.Duration(setting(t, secondsVariable, 60)) * time.Second
	if text := os.Getenv(seedVariable); text != "" {
		one(t, setupOf(setting(t, seedVariable, 0), length), true)
		return
	}
	usual := uint64(40)
	if testing.Short() {
		usual = 12
	}
	base, n := setting(t, baseVariable, 0), setting(t, seedsVariable, usual)
	var calls, virtual, played atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := base; seed < base+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				c := one(t, setupOf(seed, length), false)
				calls.Add(int64(len(c.calls)))
				virtual.Add(int64(c.lasted))
				if done := played.Add(1); done%max(int64(n/20), 1) == 0 { // it is small
					t.Logf("%d of %d seeds played", done, n)
				}
			})
		}
	})
	t.Logf("seeds %d to %d: %d calls in %s of virtual time", base, base+n-1, calls.Load(),
		time.Duration(virtual.Load()).Round(time.Minute))
}

// one plays a seed, and tells what was wrong.
func one(t *testing.T, s setup, whole bool) *cluster {
	t.Helper()
	c := play(t, s)
	told := false
	for _, v := range c.wrong {
		t.Errorf("seed %d: oracle %s: %s: %s", s.seed, v.oracle, v.key, v.text)
		if v.key != (gatehouse.Key{}) && !told && !whole {
			t.Logf("%s\nseed %d (%s), history of %s:\n%s", v.text, s.seed, s, v.key, c.tell(v.key))
			told = true
		}
	}
	if whole {
		t.Logf("seed %d (%s):\n%s", s.seed, s, c.tell(gatehouse.Key{}))
	}
	return c
}
