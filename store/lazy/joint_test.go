package lazy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// grant asks a server for so many tokens of each of some buckets of ten.
func (s *server) grant(cost int64, names ...string) (granted bool, err error) {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	for _, name := range names {
		one := hourly()
		cmd.Want = append(cmd.Want, gatehouse.Member{Key: key(name), Cost: cost, Rule: one.Rule})
	}
	var p control.GrantParts
	p.Acquire(&cmd)
	done := make(chan error, 1)
	c := &control.JointChange{Parts: p.Parts, Done: func(err error) { done <- err }}
	s.lazy.ApplyJoint(c)
	err = <-done
	return c.Granted, err
}

// A grant counts what was let through here and not told yet, finds what lies in a chunk here, and is counted
// by what is let through afterwards.
func TestGrantsOverLazyNames(t *testing.T) {
	for _, rule := range []lazy.SyncRule{{Interval: interval}, {Interval: interval, Chunk: 5}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, rule, 2)
			defer f.close()
			one, two := f.servers[0], f.servers[1]
			for range 4 {
				f.must(one, key("a"), hourly())
			}
			if granted, err := one.grant(7, "a", "b"); err != nil || granted {
				t.Errorf("%+v: 7 of 10 after 4 were let through: granted %t, %v", rule, granted, err)
			}
			if granted, err := one.grant(6, "a", "b"); err != nil || !granted {
				t.Errorf("%+v: 6 of 10 after 4 were let through: granted %t, %v", rule, granted, err)
			}
			for _, s := range []*server{one, two} {
				if d := f.must(s, key("a"), hourly()); d.Outcome != gatehouse.Refused {
					t.Errorf("%+v: server %d lets through more than there is: %+v", rule, s.number, d)
				}
			}
			cmd := hourly()
			cmd.Cost = 4
			if d := f.must(one, key("b"), cmd); d.Outcome != gatehouse.Granted {
				t.Errorf("%+v: the 4 that are left are not let through: %+v", rule, d)
			}
			// Without the store nothing is granted, and names are usable when it is back.
			f.shared.Set(castest.Faults{LostRequest: 1, Silent: 1})
			if _, err := one.grant(1, "b", "c"); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Errorf("%+v: without the store: %v", rule, err)
			}
			f.shared.Set(castest.Faults{})
			<-time.After(5 * time.Second)
			if granted, err := one.grant(10, "c"); err != nil || !granted {
				t.Errorf("%+v: when the store is back: granted %t, %v", rule, granted, err)
			}
		})
	}
}
