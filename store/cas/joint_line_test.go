package cas_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// slotBy is a command for the only slot of a semaphore.
func slotBy(holder string, maxWait time.Duration) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: 1}, Cost: 1,
		Expires: time.Hour, MaxWait: maxWait,
	}
}

// oneOfEach is a grant of the only slot of each of these.
func oneOfEach(id string, maxWait time.Duration, keys ...gatehouse.Key) gatehouse.GrantCommand {
	cmd := *grantOf(id, keys...)
	cmd.Expires, cmd.MaxWait = time.Hour, maxWait
	for i := range cmd.Want {
		cmd.Want[i].Size = 1
	}
	return cmd
}

// A grant that waits at one server is granted when what refused it comes free at another one, sooner than it
// would look by itself; those who wait at the other one for a name that it does not have are not kept back by
// it, and what it holds then keeps them waiting until it ends.
func TestGrantsWaitAcrossServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, false)
		defer p.close()
		ctx := context.Background()
		a, b := named(gatehouse.Semaphore, "a"), named(gatehouse.Semaphore, "b")
		must := func(key gatehouse.Key, cmd gatehouse.Command) {
			t.Helper()
			if d, err := p.nearGate.Do(ctx, key, cmd); err != nil || d.Outcome != gatehouse.Granted {
				t.Fatalf("%s of %s by %s: %+v, %v", cmd.Op, key, cmd.Holder, d, err)
			}
		}
		must(a, slotBy("x", 0))
		granted := make(chan time.Time, 1)
		go func() {
			d, err := p.farGate.DoGrant(ctx, oneOfEach("g", gatehouse.Forever, a, b))
			if err != nil || d.Outcome != gatehouse.Granted {
				t.Errorf("a grant that waits: %+v, %v", d, err)
			}
			granted <- time.Now()
		}()
		pass(500 * time.Millisecond)
		// It waits for "a", whose end is far away, and so keeps nobody back at "b".
		must(b, slotBy("y", 0))
		must(b, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "y"})
		pass(3 * time.Second)
		freed := time.Now()
		must(a, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "x"})
		if took := (<-granted).Sub(freed); took > 100*time.Millisecond {
			t.Errorf("granted %s after the name came free, want at once", took)
		}
		waited := make(chan error, 1)
		go func() {
			_, err := p.nearGate.Do(ctx, b, slotBy("z", gatehouse.Forever))
			waited <- err
		}()
		pass(2 * time.Second)
		if len(waited) > 0 {
			t.Error("somebody has a slot that the grant holds")
		}
		end := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "g"}
		began := time.Now()
		if d, err := p.nearGate.DoGrant(ctx, end); err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("a release at another server: %+v, %v", d, err)
		}
		if err := <-waited; err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("who waited for it: %v after %s", err, time.Since(began))
		}
	})
}

// Who came first goes first, whether it is a command at one server or a grant of that name alone at another.
func TestGrantsTakeTurnsWithCommands(t *testing.T) {
	for _, leases := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, leases)
			defer p.close()
			p.store.Set(castest.Faults{})
			ctx, a := context.Background(), named(gatehouse.Semaphore, "a")
			if _, err := p.nearGate.Do(ctx, a, slotBy("first", 0)); err != nil {
				t.Fatal(err)
			}
			order := make(chan string, 3)
			go func() {
				if _, err := p.farGate.DoGrant(ctx, oneOfEach("g", gatehouse.Forever, a)); err != nil {
					t.Error(err)
				}
				order <- "grant"
			}()
			pass(200 * time.Millisecond)
			go func() {
				if _, err := p.nearGate.Do(ctx, a, slotBy("second", gatehouse.Forever)); err != nil {
					t.Error(err)
				}
				order <- "command"
			}()
			pass(4 * time.Second)
			release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "first"}
			if _, err := p.nearGate.Do(ctx, a, release); err != nil {
				t.Fatal(err)
			}
			if one := <-order; one != "grant" {
				t.Errorf("with leases %t: the %s went first, want the grant, which came first", leases, one)
			}
			end := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "g"}
			if _, err := p.farGate.DoGrant(ctx, end); err != nil {
				t.Error(err)
			}
			if one := <-order; one != "command" {
				t.Errorf("then the %s", one)
			}
		})
	}
}
