package cas_test

import (
	"context"
	"errors"
	"fmt"
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

// A pair is a server that is near to the store and one that is 50 times as far away.
type pair struct {
	store     *castest.Store
	near, far *cas.Store
	nearGate  *gate.Gate
	farGate   *gate.Gate
}

func newPair(t *testing.T, leases bool) *pair {
	t.Helper()
	p := &pair{store: castest.New(1, leases)}
	open := func(number uint32, trip time.Duration) (*cas.Store, *gate.Gate) {
		b := p.store.Server(0)
		b.SetExtraLatency(trip)
		s := cas.New(b, cas.Config{Server: number})
		return s, gate.New(s, gate.Config{FirstTicket: cas.FirstTicket(number)})
	}
	p.near, p.nearGate = open(1, 200*time.Microsecond)
	p.far, p.farGate = open(2, 10*time.Millisecond)
	return p
}

func (p *pair) close() {
	p.nearGate.Close()
	p.farGate.Close()
	_ = p.nearGate.Drain(context.Background())
	_ = p.farGate.Drain(context.Background())
	p.near.Close()
	p.far.Close()
}

// busy has callers ask a gate for the same for a time, and returns how many were granted and failed.
func busy(g *gate.Gate, callers int, key gatehouse.Key, cmd gatehouse.Command) (granted, failed int) {
	const length = 2 * time.Second
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				d, err := g.Do(context.Background(), key, cmd)
				mu.Lock()
				if err != nil {
					failed++
				} else if d.Outcome == gatehouse.Granted {
					granted++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return granted, failed
}

// However many changes a near server makes, a far one makes its own, and the near one keeps most of its pace.
func TestFarServerMakesProgress(t *testing.T) {
	for _, leases := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, leases)
			defer p.close()
			key := named(gatehouse.Counter, "hot")
			cmd := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
			nearAlone, _ := busy(p.nearGate, 8, key, cmd)
			farAlone, _ := busy(p.farGate, 8, key, cmd)
			var near, far, failed int
			var both sync.WaitGroup
			both.Go(func() { near, _ = busy(p.nearGate, 8, key, cmd) })
			both.Go(func() { far, failed = busy(p.farGate, 8, key, cmd) })
			both.Wait()
			t.Logf("alone near %d, far %d; together near %d, far %d", nearAlone, farAlone, near, far)
			if far < farAlone/10 || near < nearAlone/3 || failed > 0 {
				t.Errorf("together the near server made %d of %d changes, the far one %d of %d, "+
					"and %d failed; want a third, a tenth and none", near, nearAlone, far, farAlone, failed)
			}
		})
	}
}

// Of a limit that both servers exhaust the far one gets a tenth of an even share at least, and the near one
// no less; whether what was taken comes back bit by bit or all at once.
func TestFarServerOnAnExhaustedLimit(t *testing.T) {
	for _, kind := range []gatehouse.Kind{
		gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.SlidingLog,
	} {
		for _, interval := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, false)
				defer p.close()
				cmd := gatehouse.Command{
					Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{
						Size:     int64(interval / time.Millisecond),
						Interval: interval,
					}, Cost: 1,
				}
				var near, far, failed int
				var both sync.WaitGroup
				both.Go(func() { near, _ = busy(p.nearGate, 64, named(kind, "hot"), cmd) })
				both.Go(func() { far, failed = busy(p.farGate, 64, named(kind, "hot"), cmd) })
				both.Wait()
				t.Logf("%s, %s: near %d, far %d", kind, interval, near, far)
				if even := (near + far) / 2; far < even/10 || near < even/10 || failed > 0 {
					t.Errorf("%s, %s: the near server let %d through, the far one %d, and %d failed there; "+
						"want a tenth of %d at least and none", kind, interval, near, far, failed, even)
				}
			})
		}
	}
}

// A server that dies with a claim keeps others back no longer than a part of their time.
func TestClaimOfADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, false)
		defer p.close()
		key := named(gatehouse.Counter, "hot")
		count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
		if _, err := p.nearGate.Do(context.Background(), key, count); err != nil {
			t.Fatal(err)
		}
		dead := p.store.Server(0)
		change := &cas.RecordChange{
			If: 1, Nonce: 1, Next: []byte{1}, Server: 7, Claim: 100 * time.Millisecond}
		if r, err := dead.Swap(context.Background(), key, change); err != nil || r.Swapped || r.Claimed > 0 {
			t.Fatalf("a change of another record = %+v, %v, want it to claim the record", r, err)
		}
		began := time.Now()
		if _, err := p.nearGate.Do(context.Background(), key, count); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 99*time.Millisecond || took > 110*time.Millisecond {
			t.Errorf("a change took %s, want the 100ms of the claim and little more", took)
		}
	})
}

// A call that only lost races says so; who may wait goes on waiting, and is answered in time.
func TestRacesLostUntilTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, false)
		defer p.close()
		key := named(gatehouse.Lock, "hot")
		acquire := gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: "a", Rule: gatehouse.Rule{Size: 1}, Cost: 1, Expires: time.Hour,
		}
		if _, err := p.nearGate.Do(context.Background(), key, acquire); err != nil {
			t.Fatal(err)
		}
		claims := p.store.Server(0) // one that claims the record for longer than both calls last
		change := &cas.RecordChange{If: 1, Nonce: 1, Next: []byte{1}, Server: 7, Claim: cas.MaxClaim}
		if _, err := claims.Swap(context.Background(), key, change); err != nil {
			t.Fatal(err)
		}
		renew := acquire
		renew.Op = gatehouse.OpRenew
		_, err := p.nearGate.Do(context.Background(), key, renew)
		if !errors.Is(err, cas.ErrConflict) || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("a renew that loses each race = %v, want that other servers were faster", err)
		}
		wait := acquire
		wait.Holder, wait.MaxWait = "b", 3*time.Second
		began := time.Now()
		d, err := p.nearGate.Do(context.Background(), key, wait)
		if took := time.Since(began); took < wait.MaxWait || took > wait.MaxWait+2*cas.DefaultTimeout {
			t.Errorf("who waits for %s was answered after %s: %+v, %v", wait.MaxWait, took, d, err)
		}
		for range 3 {
			turns := []control.Turn{{Command: &renew}}
			change := control.Change{Key: key, Turns: turns}
			if err := change.ApplyTo(p.near); !p.near.Answered(time.Second) {
				t.Errorf("the store answers, but not for %v", fmt.Sprint(err))
			}
		}
	})
}
