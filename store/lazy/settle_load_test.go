package lazy_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// judged has everything that happens to a name be judged.
func (f *fleet) judged(key gatehouse.Key, limit gatehouse.Command) *storetest.Chunks {
	judge := &storetest.Chunks{Kind: key.Kind, Size: limit.Size, Interval: limit.Interval}
	f.shared.Changed = func(changed gatehouse.Key, record []byte) {
		now := time.Now()
		if record == nil {
			judge.Changed(now, now.UnixNano(), nil)
			return
		}
		content, err := cas.ReadRecord(changed.Kind, record, now)
		if err != nil {
			f.t.Error(err)
			return
		}
		judge.Changed(now, content.AsOf, content.State)
	}
	return judge
}

// anything is one of the commands that take, give back or begin anew.
func anything(dice *rand.Rand, limit gatehouse.Command) gatehouse.Command {
	cmd := limit
	cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1+dice.Int64N(5)
	switch dice.IntN(600) { // so that most windows are used up
	case 0:
		cmd.Op = gatehouse.OpReset
	case 1:
		cmd.Op = gatehouse.OpDelete
	case 2, 3:
		cmd.Op, cmd.Cost = gatehouse.OpRefund, 1+dice.Int64N(60)
	case 4:
		cmd.Op = gatehouse.OpReserve
	case 5, 6, 7, 8:
		cmd.Op, cmd.Holder = gatehouse.OpReserve, "one"
	case 9, 10:
		cmd.Op, cmd.Holder = gatehouse.OpCancel, "one"
	case 11:
		cmd.Op = gatehouse.OpStats
	default:
		if dice.IntN(8) == 0 {
			cmd.MaxWait = time.Duration(dice.Int64N(int64(time.Second)))
		}
	}
	return cmd
}

// settleLoad has some ask for anything, some of whom leave before they are answered.
func (f *fleet) settleLoad(seed uint64, key gatehouse.Key, limit gatehouse.Command, judge *storetest.Chunks) {
	var work sync.WaitGroup
	for i := range 4 * len(f.servers) {
		s := f.servers[i%len(f.servers)]
		dice := rand.New(rand.NewPCG(seed, uint64(i))) // it is to be the same each time
		work.Go(func() {
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
				ctx, cancel := context.WithCancel(context.Background())
				if dice.IntN(5) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(dice.Int64N(int64(3*latency))))
				}
				call := storetest.ChunkCall{Cmd: anything(dice, limit), Begin: time.Now()}
				call.Decision, call.Err = s.gate.Do(ctx, key, call.Cmd)
				call.End = time.Now()
				cancel()
				judge.Done(&call)
				<-time.After(time.Duration(dice.Int64N(int64(40 * time.Millisecond))))
			}
		})
	}
	work.Wait()
}

// Whatever clients do and whatever goes wrong, no window lets through more than its limit and what was
// refunded of it, counted from the last reset or delete.
func TestChunksKeepTheLimitWhateverIsDone(t *testing.T) {
	for _, faults := range []castest.Faults{
		{Latency: latency},
		{
			Latency: latency, Unsent: 0.05, LostRequest: 0.03, LostAnswer: 0.05, Late: 0.05, Twice: 0.05,
			LostWake: 0.3, TwiceWoken: 0.3,
		},
	} {
		for _, limit := range chunkLimits[:2] {
			for seed := range uint64(2 * seeds) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, seed, lazy.SyncRule{Interval: interval, Chunk: 5 + int64(seed)*3}, 3)
					f.shared.Set(faults)
					key := gatehouse.Key{Kind: limit.kind, Name: "a"}
					judge := f.judged(key, limit.cmd)
					f.settleLoad(seed, key, limit.cmd, judge)
					f.close()
					if err := judge.Check(); err != nil {
						t.Errorf("seed %d: %s: %v", seed, limit.kind, err)
					}
				})
			}
		}
	}
}
