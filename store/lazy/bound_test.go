package lazy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

const (
	interval = 100 * time.Millisecond
	latency  = 10 * time.Millisecond // at most, each way
	// known is how long after it was let through at the latest the others know of it: two intervals, and
	// as many round trips as it takes when others are faster some times.
	known = 2*interval + 12*latency
	seeds = 8
)

// limits are all varieties of limiters.
var limits = []struct {
	kind gatehouse.Kind
	cmd  gatehouse.Command
}{
	{gatehouse.TokenBucket, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second}}},
	{gatehouse.FixedWindow, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second}}},
	{gatehouse.FixedWindow, gatehouse.Command{Rule: gatehouse.Rule{Size: 500, Calendar: gatehouse.Day}}},
	{gatehouse.GCRA, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second, Burst: 20}}},
	{gatehouse.SlidingWindow, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second}}},
	{gatehouse.SlidingWindow, gatehouse.Command{
		Rule: gatehouse.Rule{Size: 60, Interval: time.Second, Mode: gatehouse.ModeStrict},
	}},
	{gatehouse.SlidingLog, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second}}},
	{gatehouse.Pace, gatehouse.Command{Rule: gatehouse.Rule{Size: 60, Interval: time.Second}}},
	{gatehouse.GCRA, gatehouse.Command{Rule: gatehouse.Rule{Limits: gatehouse.NewLimitList(
		gatehouse.Limit{Size: 30, Interval: 500 * time.Millisecond},
		gatehouse.Limit{Size: 200, Interval: 10 * time.Second},
	)}}},
}

// load has each server asked for several seconds, more than the limit allows.
func (f *fleet) load(seed uint64, key gatehouse.Key, limit gatehouse.Command, length time.Duration) {
	var work sync.WaitGroup
	for i, s := range f.servers {
		dice := rand.New(rand.NewPCG(seed, uint64(i))) // it is to be the same each time
		work.Go(func() {
			for end := time.Now().Add(length); time.Now().Before(end); {
				cmd := limit
				cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1+dice.Int64N(3)
				_, _ = f.do(s, key, cmd)
				<-time.After(time.Duration(dice.Int64N(int64(s.number+4) * int64(5*time.Millisecond))))
			}
		})
	}
	work.Wait()
}

// A server decides knowing all that it has let through itself, and of the others at least what they had let
// through two intervals and some round trips before. So that is by how much the limit may be exceeded.
func TestEachServerKnowsOfTheOthersWithinTwoIntervals(t *testing.T) {
	for _, limit := range limits {
		t.Run(fmt.Sprintf("%s %s", limit.kind, limit.cmd.Mode), func(t *testing.T) {
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, seed, lazy.SyncRule{Interval: interval}, 3)
					f.shared.Set(castest.Faults{Latency: latency})
					key := gatehouse.Key{Kind: limit.kind, Name: "a"}
					f.load(seed, key, limit.cmd, 5*time.Second)
					f.close()
					created, _ := f.figure(key, "created_at").(time.Time)
					f.checkKnown(seed, limit.kind, limit.cmd, created)
					if got := f.figure(key, "acquired"); got != int64(len(f.grants)) {
						t.Errorf("seed %d: the store was told of %v, want %d", seed, got, len(f.grants))
					}
				})
			}
		})
	}
}

// checkKnown looks at some of what was let through: a limiter that has counted what the server had to know,
// and nothing else, must let it through too.
func (f *fleet) checkKnown(seed uint64, kind gatehouse.Kind, limit gatehouse.Command, created time.Time) {
	f.t.Helper()
	slices.SortStableFunc(f.grants, func(a, b grant) int { return a.at.Compare(b.at) })
	dice := rand.New(rand.NewPCG(seed, 99)) // it is to be the same each time
	for range 40 {
		last := f.grants[dice.IntN(len(f.grants))]
		state := control.New(kind)
		cmd := limit
		cmd.Op = gatehouse.OpAcquire
		turn := control.Turn{Command: &cmd, Forced: true}
		state.Step(created, &turn)
		for i := range f.grants {
			g := &f.grants[i]
			if g.server == last.server && g.at.Before(last.at) ||
				g.server != last.server && g.heard.Before(last.heard.Add(-known)) {
				cmd.Cost = g.cost
				state.Step(g.at, &turn)
			}
		}
		cmd.Cost, turn.Forced = last.cost, false
		state.Step(last.at, &turn)
		if d := turn.Decision; d.Outcome != gatehouse.Granted {
			f.t.Errorf("seed %d: server %d let %d through at %s, want not: it must know that %d are left",
				seed, last.server, last.cost, last.at.Sub(created), d.Remaining)
		}
	}
}
