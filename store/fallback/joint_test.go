package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/fallback"
)

// Without the store a grant is refused with an error, though the rule would let each of its names through.
func TestNoRuleAnswersAGrant(t *testing.T) {
	for _, rule := range []fallback.Answer{fallback.Refuse, fallback.Allow, fallback.LocalShare} {
		synctest.Test(t, func(t *testing.T) {
			shared := castest.New(1, false)
			store := cas.New(shared.Server(0), cas.Config{Server: 1})
			defer store.Close()
			s := fallback.New(store, fallback.Config{
				Rule: func(gatehouse.Key) fallback.Answer { return rule },
			})
			cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
			for _, name := range []string{"a", "b"} {
				cmd.Want = append(cmd.Want, gatehouse.Member{
					Key: bucket(name), Cost: 1, Rule: gatehouse.Rule{Size: 9, Interval: time.Hour},
				})
			}
			grant := func() (granted bool, err error) {
				var p control.GrantParts
				p.Acquire(&cmd)
				done := make(chan error, 1)
				c := &control.JointChange{Parts: p.Parts, Done: func(err error) { done <- err }}
				s.ApplyJoint(c)
				err = <-done
				return c.Granted, err
			}
			if granted, err := grant(); err != nil || !granted {
				t.Errorf("%s: with the store: granted %t, %v", rule, granted, err)
			}
			shared.Set(castest.Faults{LostRequest: 1, Silent: 1})
			_, _, err := ask(s, bucket("a"), acquire(9, 1))
			if (err == nil) != (rule != fallback.Refuse) {
				t.Errorf("%s: a command without the store: %v", rule, err)
			}
			if _, err := grant(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Errorf("%s: a grant without the store: %v, want that it is unavailable", rule, err)
			}
		})
	}
}
