package lazy_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// chunkLimits are the limits that can be taken in chunks.
var chunkLimits = []struct {
	kind gatehouse.Kind
	cmd  gatehouse.Command
}{
	{gatehouse.TokenBucket, gatehouse.Command{Rule: gatehouse.Rule{Size: 100, Interval: time.Second}}},
	{gatehouse.FixedWindow, gatehouse.Command{Rule: gatehouse.Rule{Size: 100, Interval: time.Second}}},
	{gatehouse.FixedWindow, gatehouse.Command{Rule: gatehouse.Rule{Size: 300, Calendar: gatehouse.Day}}},
}

// checkWindows fails when more was let through in a window than the limit.
func (f *fleet) checkWindows(seed uint64, limit int64) {
	f.t.Helper()
	windows := make(map[int64]int64)
	for _, g := range f.grants {
		windows[g.end.UnixNano()] += g.cost
		if g.at.After(g.end) || g.at.Equal(g.end) {
			f.t.Errorf("seed %d: server %d let something through at %s, want it before %s",
				seed, g.server, g.at, g.end)
		}
	}
	for end, n := range windows {
		if n > limit {
			f.t.Errorf("seed %d: %d let through in the window until %d, want at most %d", seed, n, end, limit)
		}
	}
}

// Whatever happens between the servers and the store, no window has more than its limit: some of what was
// taken may never be let through instead.
func TestChunksNeverLetMoreThroughThanTheLimit(t *testing.T) {
	for _, faults := range []castest.Faults{
		{},
		{Latency: latency},
		{Latency: 5 * latency, Twice: 0.1},
		{
			Latency: latency, Unsent: 0.05, LostRequest: 0.03, LostAnswer: 0.05, Late: 0.05, Twice: 0.05,
			LostWake: 0.3, TwiceWoken: 0.3,
		},
	} {
		for _, limit := range chunkLimits {
			for seed := range uint64(seeds / 2) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, seed, lazy.SyncRule{Interval: interval, Chunk: 1 + int64(seed)*7}, 3)
					f.shared.Set(faults)
					f.chunkLoad(seed, gatehouse.Key{Kind: limit.kind, Name: "a"}, limit.cmd)
					f.close()
					f.checkWindows(seed, limit.cmd.Size)
					// With chunks of 1 and servers that are all far away each token is a transaction, and
					// servers whose transactions collide claim the record one after the other.
					if f.total() < limit.cmd.Size/3 {
						t.Errorf("seed %d: %d were let through in all, want at least a third of %d",
							seed, f.total(), limit.cmd.Size)
					}
				})
			}
		}
	}
}

// With a store that has no clock, such as etcd, windows are those of the servers' clocks, which differ. The
// record is of one time even so.
func TestChunksHoldWithClocksThatDiffer(t *testing.T) {
	for _, limit := range chunkLimits {
		for seed := range uint64(seeds / 2) {
			synctest.Test(t, func(t *testing.T) {
				f := newSkewed(t, seed, lazy.SyncRule{Interval: interval, Chunk: 8})
				f.shared.Set(castest.Faults{Latency: latency})
				f.chunkLoad(seed, gatehouse.Key{Kind: limit.kind, Name: "a"}, limit.cmd)
				f.close()
				f.checkWindows(seed, limit.cmd.Size)
			})
		}
	}
}

// A slow clock does not let a server know less: what it lets through lazily stays within the bound of a
// store that has a clock, give or take how much the clocks differ.
func TestLazyServersWithClocksThatDiffer(t *testing.T) {
	limit := gatehouse.Command{Rule: gatehouse.Rule{Size: 300, Calendar: gatehouse.Month}}
	key := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "a"}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := newSkewed(t, seed, lazy.SyncRule{Interval: interval})
			f.shared.Set(castest.Faults{Latency: latency})
			f.load(seed, key, limit, 6*time.Second)
			f.close()
			last := slices.MaxFunc(f.grants, func(a, b grant) int { return a.heard.Compare(b.heard) })
			late := int64(0)
			for _, g := range f.grants {
				if g.heard.After(last.heard.Add(-known)) {
					late += g.cost
				}
			}
			if f.total() > limit.Size+late {
				t.Errorf("seed %d: %d were let through, want at most %d and what was in the last %s, %d",
					seed, f.total(), limit.Size, known, late)
			}
		})
	}
}

// chunkLoad has some ask and some wait, and some of those leave.
func (f *fleet) chunkLoad(seed uint64, key gatehouse.Key, limit gatehouse.Command) {
	var work sync.WaitGroup
	for i := range 4 * len(f.servers) {
		s := f.servers[i%len(f.servers)]
		dice := rand.New(rand.NewPCG(seed, uint64(i))) // it is to be the same each time
		work.Go(func() {
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
				cmd := limit
				cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1+dice.Int64N(3)
				if i >= 2*len(f.servers) {
					cmd.MaxWait = time.Duration(dice.Int64N(int64(time.Second)))
				}
				_, _ = f.do(s, key, cmd)
				<-time.After(time.Duration(dice.Int64N(int64(30 * time.Millisecond))))
			}
		})
	}
	work.Wait()
}

// Windows are those of the store's true time as well, which a server knows only about.
func TestAChunkIsUsedWithinItsWindowByTheStoresClock(t *testing.T) {
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, seed, lazy.SyncRule{Interval: interval, Chunk: 1000}, 2)
			f.shared.Set(castest.Faults{Latency: 4 * latency})
			f.shared.Jump(time.Duration(seed) * 77 * time.Millisecond)
			key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
			other := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "other"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1000, Interval: time.Second},
			}
			dice := rand.New(rand.NewPCG(seed, 0)) // it is to be the same each time
			for range 2000 {
				s := f.servers[dice.IntN(2)]
				before := time.Now()
				f.must(s, key, cmd)
				last := f.grants[len(f.grants)-1]
				if fromMemory := before.Equal(last.heard); fromMemory && !last.store.Before(last.end) {
					t.Errorf("seed %d: let through at %s by the store's clock, want it before %s",
						seed, last.store, last.end)
				}
				<-time.After(time.Millisecond)
				if dice.IntN(200) == 0 { // the clock is set a little, and the next answer tells
					f.shared.Jump(time.Duration(dice.Int64N(int64(20 * time.Millisecond))))
					f.grants = f.grants[:0]
					f.must(f.servers[0], other, cmd)
					f.must(f.servers[1], other, cmd)
				}
			}
			f.close()
		})
	}
}

// What one server has taken and does not use comes back within two intervals, and whoever waits at another
// server gets it.
func TestWhatIsLeftOfAChunkIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 50}, 2)
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 50, Interval: time.Hour},
		}
		f.must(f.servers[0], key, cmd)
		if d := f.must(f.servers[1], key, cmd); d.Outcome != gatehouse.Refused {
			t.Errorf("while the other has all of them = %s, want refused", d.Outcome)
		}
		began := time.Now()
		cmd.MaxWait = time.Minute
		if d := f.must(f.servers[1], key, cmd); d.Outcome != gatehouse.Granted {
			t.Errorf("after the other gave back = %s, want granted", d.Outcome)
		}
		if took := time.Since(began); took > 2*interval+time.Millisecond {
			t.Errorf("it took %s, want at most two intervals", took)
		}
		f.close()
	})
}

// A chunk is given back by Close, once.
func TestCloseGivesChunksBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: time.Minute, Chunk: 30}, 1)
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 10, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Month},
		}
		for range 4 {
			f.must(f.servers[0], key, cmd)
		}
		f.close()
		if got := f.figure(key, "available"); got != int64(60) {
			t.Errorf("available = %v, want 60", got)
		}
	})
}

// Under load above the limit the store is asked once an interval, and not for each refusal.
func TestRefusalsCostNoRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 50}, 1)
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Day},
		}
		for range 100 {
			f.must(f.servers[0], key, cmd)
		}
		before := f.servers[0].swap.Stats()
		for i := range 1000 {
			d := f.must(f.servers[0], key, cmd)
			if d.Outcome != gatehouse.Refused || d.RetryAfter <= 0 || d.Remaining != 0 {
				t.Fatalf("call %d = %+v, want refused", i, d)
			}
			<-time.After(time.Millisecond)
		}
		after := f.servers[0].swap.Stats()
		if asked := after.Swaps + after.Reads - before.Swaps - before.Reads; asked > 12 {
			t.Errorf("the store was asked %d times in ten intervals, want about once each", asked)
		}
		f.close()
	})
}

// What a client that went away was granted goes back to the chunk.
func TestUndoGoesBackToTheChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 2}, 1)
		s := f.servers[0]
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 2, Interval: time.Hour},
		}
		f.must(s, key, cmd)
		cmd.MaxWait = time.Second
		r := &gate.Request{Key: key, Command: cmd}
		s.gate.Submit(r)
		synctest.Wait()
		s.gate.Cancel(r)
		synctest.Wait()
		if d := f.must(s, key, cmd); d.Outcome != gatehouse.Granted {
			t.Errorf("after an undo = %s, want granted", d.Outcome)
		}
		if d := f.must(s, key, cmd); d.Outcome != gatehouse.Refused {
			t.Errorf("then = %s, want refused", d.Outcome)
		}
		f.close()
	})
}
