package fallback_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/fallback"
)

// Who comes while the store is away is not told of an earlier delete, whatever the clock of the store says.
func TestWaiterIsNotToldOfAnEarlierDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := castest.New(1, false)
		store.Jump(time.Hour)
		backend := store.Server(0)
		shared := cas.New(backend, cas.Config{Server: 1})
		defer shared.Close()
		circuit := breaker.New(shared, breaker.Config{})
		defer circuit.Close()
		g := gate.New(fallback.New(circuit, fallback.Config{
			Latest: shared.Latest, Rule: func(gatehouse.Key) fallback.Answer { return fallback.LocalShare },
		}), gate.Config{FirstTicket: cas.FirstTicket(1)})
		defer func() { _ = g.Drain(context.Background()) }()
		defer g.Close()
		cmd := acquire(1, 1)
		cmd.Interval = 10 * time.Second
		do := func(cmd gatehouse.Command) gatehouse.Decision {
			d, err := g.Do(context.Background(), bucket("a"), cmd)
			if err != nil {
				t.Fatalf("%s: %v", cmd.Op, err)
			}
			return d
		}
		do(cmd)
		do(gatehouse.Command{Op: gatehouse.OpDelete})
		backend.Cut(true)
		do(cmd) // by this server's share, which is empty then
		waiter := make(chan gatehouse.Decision)
		go func() {
			waits := cmd
			waits.MaxWait = time.Minute
			waiter <- do(waits)
		}()
		time.AfterFunc(2*time.Second, func() { backend.Cut(false) })
		if d := <-waiter; d.Outcome != gatehouse.Granted {
			t.Errorf("who came after the delete: %s, %s, want it granted", d.Outcome, d.Message)
		}
	})
}
