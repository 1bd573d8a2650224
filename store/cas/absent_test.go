package cas_test

import (
	"context"
	"sync"
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
			turn.Ticket++
			if offer(t, first, turn) {
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

// deafBackend is the backend of a server that never hears of a change.
type deafBackend struct{ *castest.Server }

func (b deafBackend) Listen(server uint32, wake func(gatehouse.Key)) (stop func()) {
	b.Server.Listen(server, wake)()
	return func() {}
}

// A server that cannot listen keeps its place: those at another one, who take each token as it comes, leave
// it the time in which a whole bucket fills.
func TestDeafServerIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := castest.New(1, false)
		deaf := cas.New(deafBackend{store.Server(0)}, cas.Config{Server: 1})
		defer deaf.Close()
		hearing := cas.New(store.Server(0), cas.Config{Server: 2})
		defer hearing.Close()
		key := named(gatehouse.GCRA, "b")
		rule := gatehouse.Rule{Size: 20, Interval: time.Second, Burst: 20}
		take := func(cost int64) gatehouse.Command {
			return gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: rule, Cost: cost, MaxWait: gatehouse.Forever,
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		many := gate.New(hearing, gate.Config{FirstTicket: cas.FirstTicket(2) + 1})
		for range 10 {
			work.Go(func() {
				for ctx.Err() == nil {
					_, _ = many.Do(ctx, key, take(1)) // until the other one is served
				}
			})
		}
		time.Sleep(time.Second)
		one := gate.New(deaf, gate.Config{FirstTicket: cas.FirstTicket(1) + 1})
		for range 3 {
			within, end := context.WithTimeout(ctx, 10*time.Second)
			began := time.Now()
			d, err := one.Do(within, key, take(20))
			end()
			if err != nil || d.Outcome != gatehouse.Granted {
				t.Fatalf("%s after %s, %v, want it to be granted", d.Outcome, time.Since(began), err)
			}
		}
	})
}
