package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// Those who wait behind a server that has gone are served once that is found; those behind one that is there
// wait for it.
func TestServedAfterServerHasGone(t *testing.T) {
	for _, goes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := castest.New(1, false)
			first := cas.New(store.Server(0), cas.Config{Server: 1})
			second := cas.New(store.Server(0), cas.Config{Server: 2})
			g := gate.New(second, gate.Config{FirstTicket: cas.FirstTicket(2) + 1})
			defer second.Close()
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1,
				MaxWait: gatehouse.Forever,
			}
			turn := &control.Turn{Ticket: cas.FirstTicket(1) + 1, Command: &cmd}
			if !offer(t, first, turn) {
				t.Fatal("a new bucket is empty")
			}
			if turn.Ticket++; offer(t, first, turn) {
				t.Fatal("an empty bucket gives something")
			}
			if goes {
				first.Close()
			} else {
				defer first.Close()
			}
			began := time.Now()
			d, err := g.Do(t.Context(), named(gatehouse.TokenBucket, "b"), cmd)
			took := time.Since(began)
			// The bucket has something again after a second, and a head that nobody renews ends after three.
			if err != nil || d.Outcome != gatehouse.Granted || (took < 1500*time.Millisecond) != goes {
				t.Errorf("the server has gone: %t: %s after %s, %v", goes, d.Outcome, took, err)
			}
		})
	}
}
