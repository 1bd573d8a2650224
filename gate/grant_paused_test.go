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
