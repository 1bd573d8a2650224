package lazy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// chunkFleet is some servers that take 50 at once, and do not give back what they do not use for an hour.
func chunkFleet(t *testing.T, servers int) *fleet {
	t.Helper()
	return newFleet(t, 1, lazy.SyncRule{Interval: time.Hour, Chunk: 50}, servers)
}

// passAll has the servers let through all they have, one after the other, and returns how many that were.
func (f *fleet) passAll(key gatehouse.Key, cmd gatehouse.Command) (n int64) {
	f.t.Helper()
	before := f.total()
	for _, s := range f.servers {
		f.exhaust(s, key, cmd)
	}
	return f.total() - before
}

// What lies in a chunk was taken by no client: neither refund nor reset makes more of it.
func TestAChunkIsNotRefunded(t *testing.T) {
	for _, limit := range chunkLimits {
		synctest.Test(t, func(t *testing.T) {
			f := chunkFleet(t, 1)
			key := gatehouse.Key{Kind: limit.kind, Name: "a"}
			cmd := limit.cmd
			cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1
			f.must(f.servers[0], key, cmd)
			f.must(f.servers[0], key, gatehouse.Command{Op: gatehouse.OpRefund, Cost: 50})
			if n := f.passAll(key, cmd); n != cmd.Size {
				t.Errorf("%s: after one was taken and 50 were refunded %d passed, want %d", key, n, cmd.Size)
			}
			f.close()
		})
	}
}

// What is out at others counts as taken in what follows, until they say that they did not use it.
func TestChunksCountAfterAResetOrDelete(t *testing.T) {
	for _, op := range []gatehouse.Op{gatehouse.OpReset, gatehouse.OpDelete} {
		for _, limit := range chunkLimits {
			for servers := 1; servers <= 3; servers++ {
				synctest.Test(t, func(t *testing.T) {
					f := chunkFleet(t, servers)
					key := gatehouse.Key{Kind: limit.kind, Name: "a"}
					cmd := limit.cmd
					cmd.Op, cmd.Cost, cmd.Size = gatehouse.OpAcquire, 1, 150
					for _, s := range f.servers {
						f.must(s, key, cmd)
					}
					f.must(f.servers[0], key, gatehouse.Command{Op: op})
					// Each of the others has let one through before.
					want := cmd.Size - int64(servers-1)
					if n := f.passAll(key, cmd); n != want {
						t.Errorf("%s, %d servers: %d passed after %s, want %d", key, servers, n, op, want)
					}
					f.close()
				})
			}
		}
	}
}

// A server that gives its chunk back between a delete and the next use does not make room for what it has let
// through since the delete.
func TestWhatPassesBetweenADeleteAndTheNextUseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 50}, 2)
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Day},
		}
		f.must(f.servers[0], key, cmd)
		f.must(f.servers[1], key, gatehouse.Command{Op: gatehouse.OpDelete})
		before := f.total()
		for range 29 {
			f.must(f.servers[0], key, cmd)
		}
		<-time.After(3 * interval)
		if d, err := f.do(f.servers[1], key, gatehouse.Command{Op: gatehouse.OpStats}); err != nil ||
			d.Outcome != gatehouse.Missing {
			t.Errorf("stats of what was deleted = %s, %v, want missing", d.Outcome, err)
		}
		f.passAll(key, cmd)
		if n := f.total() - before; n != cmd.Size-1 { // as the first was let through before
			t.Errorf("%d passed since it was deleted, want %d", n, cmd.Size-1)
		}
		f.close()
	})
}

// A reservation that is taken back was never in the chunk.
func TestAReservationIsNotTakenBackIntoAChunk(t *testing.T) {
	for _, limit := range chunkLimits {
		synctest.Test(t, func(t *testing.T) {
			f := chunkFleet(t, 1)
			s, key := f.servers[0], gatehouse.Key{Kind: limit.kind, Name: "a"}
			cmd := limit.cmd
			cmd.Op, cmd.Cost, cmd.Size = gatehouse.OpAcquire, 1, 100
			f.must(s, key, cmd)
			reserve := cmd
			reserve.Op, reserve.Cost = gatehouse.OpReserve, 30
			r := &gate.Request{Key: key, Command: reserve}
			s.gate.Submit(r)
			synctest.Wait()
			s.gate.Cancel(r)
			synctest.Wait()
			if n := f.passAll(key, cmd); n != cmd.Size-1 {
				t.Errorf("%s: %d passed, want %d", key, n, cmd.Size-1)
			}
			f.close()
		})
	}
}

// A chunk of a record that is lost is worth nothing once its server has heard of it.
func TestAChunkIsWorthNothingWithoutItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := chunkFleet(t, 1)
		s, key := f.servers[0], gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Day},
		}
		f.must(s, key, cmd)
		f.shared.Restart(gatehouse.Forever)
		large := cmd
		large.Cost = 100 // more than there is in the chunk
		if d := f.must(s, key, large); d.Outcome != gatehouse.Granted {
			t.Errorf("all of a limiter that is new = %s, want granted", d.Outcome)
		}
		if n := f.passAll(key, cmd); n != 0 {
			t.Errorf("%d passed then, want none", n)
		}
		f.close()
	})
}
