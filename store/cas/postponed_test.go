package cas_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A postponedCase is a request of the far server, and what happens before its first look.
type postponedCase struct {
	kind                  gatehouse.Kind
	before, wait, happens gatehouse.Command
	want                  gatehouse.Outcome
}

// A request that could not be looked at in time is there since it came: it hears of a delete and of an event
// that is over by its first look. Its limits come into force by that look.
func TestPostponedRequests(t *testing.T) {
	slot := slotBy("first", 0)
	ofTwo := slotBy("second", gatehouse.Forever)
	ofTwo.Size = 2
	limited := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: time.Hour}, Cost: 1,
	}
	raised := limited
	raised.Size, raised.MaxWait = 5, gatehouse.Forever
	listens := gatehouse.Command{Op: gatehouse.OpWait}
	hears := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: time.Second}
	nothing, deleted := gatehouse.Command{Op: gatehouse.OpStats}, gatehouse.Command{Op: gatehouse.OpDelete}
	over := gatehouse.Command{Op: gatehouse.OpSend, Keep: time.Millisecond}
	for _, c := range []postponedCase{
		{gatehouse.Semaphore, slot, ofTwo, nothing, gatehouse.Granted},
		{gatehouse.TokenBucket, limited, raised, nothing, gatehouse.Granted},
		{gatehouse.Semaphore, slot, ofTwo, deleted, gatehouse.Deleted},
		{gatehouse.Event, listens, hears, over, gatehouse.Granted},
	} {
		synctest.Test(t, c.run)
	}
}

// claim has a server claim a record.
func (p *pair) claim(t *testing.T, key gatehouse.Key, server uint32, length time.Duration) {
	t.Helper()
	change := &cas.RecordChange{If: 1, Nonce: 1, Next: []byte{1}, Server: server, Claim: length}
	if r, err := p.store.Server(0).Swap(context.Background(), key, change); err != nil || r.Record == nil {
		t.Fatalf("a change that claims the record = %+v, %v", r, err)
	}
}

// run has the near server keep the record to itself for as long as the call of the far one may take.
func (c postponedCase) run(t *testing.T) {
	p, key := newPair(t, false), named(c.kind, "a")
	defer p.close()
	if _, err := p.nearGate.Do(context.Background(), key, c.before); err != nil {
		t.Fatal(err)
	}
	p.claim(t, key, 1, cas.MaxClaim)
	decided := make(chan gatehouse.Decision, 1)
	p.farGate.Submit(&gate.Request{Key: key, Command: c.wait, Decided: func(r *gate.Request) {
		decided <- *r.Decision
	}})
	pass(cas.DefaultTimeout + 5*time.Millisecond) // less than a postponement
	if d, err := p.nearGate.Do(context.Background(), key, c.happens); err != nil {
		t.Fatalf("%s = %+v, %v", c.happens.Op, d, err)
	}
	select {
	case d := <-decided:
		if d.Outcome != c.want {
			t.Errorf("%s %s, and meanwhile %s = %+v, want %s", key, c.wait.Op, c.happens.Op, d, c.want)
		}
	case <-time.After(2 * cas.MaxClaim):
		t.Errorf("%s %s, and meanwhile %s: no answer, want %s", key, c.wait.Op, c.happens.Op, c.want)
	}
}

// The same holds for a request that stands behind others: they need not go before it is looked at.
func TestPostponedBehindOthers(t *testing.T) {
	for _, byGrant := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, key := newPair(t, false), named(gatehouse.Semaphore, "a")
			defer p.close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			acquire := func(holder string, size int64) (err error) {
				if byGrant {
					cmd := oneOfEach(holder, gatehouse.Forever, key)
					cmd.Want[0].Size = size
					_, err = p.farGate.DoGrant(ctx, cmd)
				} else {
					cmd := slotBy(holder, gatehouse.Forever)
					cmd.Size = size
					_, err = p.farGate.Do(ctx, key, cmd)
				}
				return err
			}
			if _, err := p.nearGate.Do(ctx, key, slotBy("holder", 0)); err != nil {
				t.Fatal(err)
			}
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- acquire("first", 1) }()
			pass(time.Second)
			p.claim(t, key, 9, cas.DefaultTimeout*11/5) // so that some looks fail
			go func() { second <- acquire("second", 2) }()
			if err := <-first; err != nil {
				t.Errorf("the first, behind which a slot comes, by a grant %t: %v", byGrant, err)
			}
			cancel()
			t.Logf("the second, which gave up: %v", <-second)
		})
	}
}
