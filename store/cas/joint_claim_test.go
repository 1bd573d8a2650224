package cas_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// However many changes a near server makes of one of its names, grants of a far one are made: at least a
// tenth of those that it makes alone. The near one keeps a third of its pace.
func TestFarServerGrants(t *testing.T) {
	for _, leases := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, leases)
			defer p.close()
			hot, cold := named(gatehouse.TokenBucket, "hot"), named(gatehouse.TokenBucket, "cold")
			rule := gatehouse.Rule{Size: 1 << 30, Interval: time.Hour}
			take := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 1}
			grants := func() (granted, failed int64) {
				var work sync.WaitGroup
				var well, ill atomic.Int64
				end := time.Now().Add(2 * time.Second)
				for range 4 {
					work.Go(func() {
						for time.Now().Before(end) {
							d, err := p.farGate.DoGrant(context.Background(), gatehouse.GrantCommand{
								Op: gatehouse.OpAcquire, Want: []gatehouse.Member{
									{Key: hot, Rule: rule, Cost: 1}, {Key: cold, Rule: rule, Cost: 1},
								},
							})
							switch {
							case err != nil:
								ill.Add(1)
							case d.Outcome == gatehouse.Granted:
								well.Add(1)
							}
						}
					})
				}
				work.Wait()
				return well.Load(), ill.Load()
			}
			alone, _ := grants()
			nearAlone, _ := busy(p.nearGate, 8, hot, take)
			var far, failed int64
			var near int
			var both sync.WaitGroup
			both.Go(func() { far, failed = grants() })
			both.Go(func() { near, _ = busy(p.nearGate, 8, hot, take) })
			both.Wait()
			t.Logf("grants alone %d, together %d; commands alone %d, together %d",
				alone, far, nearAlone, near)
			if far < alone/10 || near < nearAlone/3 || failed > 0 {
				t.Errorf("together %d of %d grants were made, %d failed, and %d of %d commands; "+
					"want a tenth, none and a third", far, alone, failed, near, nearAlone)
			}
		})
	}
}
