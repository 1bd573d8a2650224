package gate_test

import (
	"testing"
	"testing/synctest"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A lateJointStore calls before, once, when a grant that waits is put to it, and after when it has decided
// and before that is known.
type lateJointStore struct {
	*memory.Store
	before, after func()
}

func (s *lateJointStore) ApplyJoint(c *control.JointChange) {
	before, after, done := s.before, s.after, c.Done
	if before == nil || c.Parts[0].Turn.Ticket == 0 {
		s.Store.ApplyJoint(c)
		return
	}
	s.before, s.after = nil, nil
	before()
	c.Done = func(err error) {
		after()
		done(err)
	}
	s.Store.ApplyJoint(c)
}

// What a waiting grant is refused is given back before the grant hears of that. It must be looked at again,
// also if its look before had found one of the names free.
func TestGivenBackDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateJointStore{Store: memory.New(memory.Config{})}
		g, other, l := gate.New(store, gate.Config{}), gate.New(store.Store, gate.Config{}), newLog()
		mustGrant(t, g, wants("first", "b", "c"))
		submitGrant(g, wants("waits", "a", "b", "c"), l.done("waits")) // it finds a free
		store.before = func() { mustGrant(t, other, wants("second", "a", "b")) }
		store.after = func() { mustGrant(t, g, ends("second")) }
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "waits")
		if got := l.get("waits"); got.outcome != gatehouse.Granted {
			t.Errorf("the grant was answered %s, %v, want granted", got.outcome, got.err)
		}
	})
}
