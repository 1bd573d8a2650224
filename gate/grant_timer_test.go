package gate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A jointCounter counts the joint changes that are put to a store.
type jointCounter struct {
	*memory.Store
	n int
}

func (s *jointCounter) ApplyJoint(c *control.JointChange) {
	s.n++
	s.Store.ApplyJoint(c)
}

// A grant that waits for the end of a pause is put to the store a few times, and not again and again.
func TestGrantInAPauseIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jointCounter{Store: memory.New(memory.Config{})}
		g, l := gate.New(store, gate.Config{}), newLog()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "x"}
		rule := gatehouse.Rule{Size: 1000, Interval: time.Second}
		must(t, g, key, gatehouse.Command{
			Op: gatehouse.OpFeedback, Rule: rule,
			Feedback: &gatehouse.Feedback{Status: 429, RetryAfter: 5 * time.Second},
		})
		submitGrant(g, gatehouse.GrantCommand{
			Op: gatehouse.OpAcquire, ID: "a", Expires: time.Minute, MaxWait: gatehouse.Forever,
			Want: []gatehouse.Member{{Key: key, Rule: rule, Cost: 1}},
		}, l.done("a"))
		time.Sleep(5200 * time.Millisecond)
		synctest.Wait()
		l.wantOrder(t, "a")
		if store.n > 10 {
			t.Errorf("it was put to the store %d times, want 10 at most", store.n)
		}
	})
}

// A busyStore has no time for topups: as a shared store does to which other servers were faster each time, it
// refuses them for a while, and tells nothing of the grant.
type busyStore struct {
	*memory.Store
	n int
}

func (s *busyStore) ApplyJoint(c *control.JointChange) {
	if c.Parts[0].Turn.Grant.Command.Op != gatehouse.OpTopUp || len(c.Parts) == 1 {
		s.Store.ApplyJoint(c)
		return
	}
	s.n++
	for i := range c.Parts {
		d := &c.Parts[i].Turn.Decision
		*d = gatehouse.Decision{Outcome: gatehouse.Refused, At: time.Now(), RetryAfter: time.Second / 4}
		if c.Parts[i].Key.Kind == gatehouse.Grant {
			d.Outcome, d.RetryAfter = gatehouse.Granted, 0
		}
	}
	c.Done(nil)
}

// A topup of a grant whose end was not told is put to the store when it may be granted, and not sooner.
func TestTopupAtABusyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &busyStore{Store: memory.New(memory.Config{})}
		g, l := gate.New(store, gate.Config{}), newLog()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "x"}
		rule := gatehouse.Rule{Size: 9, Interval: time.Second}
		mustGrant(t, g, gatehouse.GrantCommand{
			Op: gatehouse.OpAcquire, ID: "a", Expires: time.Hour,
			Want: []gatehouse.Member{{Key: key, Rule: rule, Cost: 1}},
		})
		cancel := submitGrant(g, gatehouse.GrantCommand{
			Op: gatehouse.OpTopUp, ID: "a", MaxWait: gatehouse.Forever,
			Costs: []gatehouse.MemberCost{{Key: key, Cost: 1}},
		}, l.done("a"))
		time.Sleep(time.Second)
		synctest.Wait()
		if store.n > 8 {
			t.Errorf("it was put to the store %d times in a second, want 8 at most", store.n)
		}
		cancel()
		g.Close()
	})
}
