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

// run has the near server keep the record to itself for as long as the call of the far one may take.
func (c postponedCase) run(t *testing.T) {
	p, key := newPair(t, false), named(c.kind, "a")
	defer p.close()
	if _, err := p.nearGate.Do(context.Background(), key, c.before); err != nil {
		t.Fatal(err)
	}
	claim := &cas.RecordChange{If: 1, Nonce: 1, Next: []byte{1}, Server: 1, Claim: cas.MaxClaim}
	if r, err := p.store.Server(0).Swap(context.Background(), key, claim); err != nil || r.Record == nil {
		t.Fatalf("a change that claims the record = %+v, %v", r, err)
	}
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
