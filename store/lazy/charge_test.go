package lazy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// A charge gives the chunk of its server back first, and what it lays ahead bars chunks everywhere. What
// other servers have in chunks counts as taken.
func TestAChargeInChunks(t *testing.T) {
	for _, limit := range chunkLimits {
		synctest.Test(t, func(t *testing.T) {
			f := chunkFleet(t, 2)
			key := gatehouse.Key{Kind: limit.kind, Name: "a"}
			cmd := limit.cmd
			cmd.Op, cmd.Cost, cmd.Size = gatehouse.OpAcquire, 1, 100
			f.must(f.servers[0], key, cmd)
			charge := gatehouse.Command{
				Op: gatehouse.OpCharge, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 150,
			}
			d := f.must(f.servers[0], key, charge)
			if d.Outcome != gatehouse.Granted || d.Delay <= 0 || d.Remaining != 0 {
				t.Errorf("%s: a charge of more than is left = %+v, want it granted and in debt", key, d)
			}
			if n := f.passAll(key, cmd); n != 0 {
				t.Errorf("%s: %d passed while it was in debt, want none", key, n)
			}
			refund := charge
			refund.Op = gatehouse.OpRefund
			f.must(f.servers[1], key, refund)
			if n := f.passAll(key, cmd); n != cmd.Size-1 {
				t.Errorf("%s: %d passed after the charge was refunded, want %d", key, n, cmd.Size-1)
			}
			f.close()
		})
	}
}

// A server that is told of no limit lets through what is in force, in chunks or not, and tells the store of
// no other.
func TestLimitInForce(t *testing.T) {
	for _, rule := range []lazy.SyncRule{{Interval: interval}, {Interval: interval, Chunk: 10}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, rule, 2)
			key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Day},
			}
			f.must(f.servers[0], key, cmd)
			<-time.After(3 * interval)
			inForce := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: gatehouse.InForce},
			}
			for range 60 {
				for _, s := range f.servers {
					if d := f.must(s, key, inForce); d.Outcome == gatehouse.Granted && d.Limit != 100 {
						t.Fatalf("%v: the limit is %d, want 100", rule, d.Limit)
					}
				}
				<-time.After(3 * interval)
			}
			if n := f.total(); n != 100 {
				t.Errorf("%v: %d passed, want 100", rule, n)
			}
			if d := f.must(f.servers[1], key, gatehouse.Command{
				Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce},
			}); d.Limit != 100 {
				t.Errorf("%v: the limit is %d afterwards, want 100", rule, d.Limit)
			}
			f.close()
		})
	}
}
