package gate_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A forgetfulStore makes joint changes, and loses the answers to releases.
type forgetfulStore struct{ *memory.Store }

func (s forgetfulStore) ApplyJoint(c *control.JointChange) {
	if c.Parts[0].Turn.Op != gatehouse.OpRelease {
		s.Store.ApplyJoint(c)
		return
	}
	// What is answered is written into the copy.
	lost := control.JointChange{Parts: slices.Clone(c.Parts), Done: func(error) {}}
	s.Store.ApplyJoint(&lost)
	c.Done(errors.New("the answer was lost"))
}

// A request and a grant wait for what a release gives back, the answer to which is lost. It may have taken
// effect, so that they are looked at again.
func TestReleaseOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := forgetfulStore{memory.New(memory.Config{})}
		g, l := gate.New(store, gate.Config{}), newLog()
		mustGrant(t, g, wants("first", "a", "b"))
		submit(g, semaphore("a"), gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: "x", Rule: gatehouse.Rule{Size: 1}, Cost: 1,
			MaxWait: gatehouse.Forever,
		}, l.done("request"))
		submitGrant(g, wants("second", "b"), l.done("grant"))
		submitGrant(g, ends("first"), l.done("release"))
		synctest.Wait()
		if l.get("release").err == nil {
			t.Error("the answer to the release was not lost")
		}
		for _, name := range []string{"request", "grant"} {
			if got := l.get(name); got.outcome != gatehouse.Granted {
				t.Errorf("the %s is answered %s, %v, want granted", name, got.outcome, got.err)
			}
		}
		g.Close()
	})
}
