package cas_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A shareResult is what one of many grants was answered.
type shareResult struct {
	id string
	d  gatehouse.GrantDecision
	error
}

// grantAtOnce asks for many grants at the same time, by the commands that make returns.
func grantAtOnce(s *cas.Store, many int, command func(i int) *gatehouse.GrantCommand) []shareResult {
	answers := make(chan shareResult)
	for i := range many {
		go func() {
			cmd := command(i)
			d, err := decideGrant(s, cmd)
			answers <- shareResult{cmd.ID, d, err}
		}()
	}
	all := make([]shareResult, many)
	for i := range all {
		all[i] = <-answers
	}
	return all
}

// countGranted is how many were granted. Their fencing tokens differ.
func countGranted(t *testing.T, all []shareResult) (granted int64) {
	t.Helper()
	fences := map[uint64]string{}
	for _, r := range all {
		if r.error != nil {
			t.Errorf("%s: %v", r.id, r.error)
		}
		if r.d.Outcome != gatehouse.Granted {
			continue
		}
		granted++
		if other, is := fences[r.d.Fence]; is && r.d.Fence != 0 {
			t.Errorf("%s and %s have the fencing token %d, want two", other, r.id, r.d.Fence)
		}
		fences[r.d.Fence] = r.id
	}
	return granted
}

// Grants over the same names that come at the same time are decided together, as one after the other: each
// has its own record and token, and no limit is passed.
func TestGrantsShareARoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		names      int
		withRecord bool
		size       int64
	}{
		"limiters and semaphores": {4, true, slots}, "limiters with records": {2, true, 15},
		"without records": {2, false, slots},
	} {
		t.Run(name, func(t *testing.T) {
			onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
				keys, withRecord := fourNames()[:c.names], c.withRecord
				command := func(i int) *gatehouse.GrantCommand {
					cmd := grantOf(fmt.Sprint("g", i), keys...)
					if !withRecord {
						cmd.ID, cmd.Expires = "", 0
					}
					for i := range cmd.Want {
						cmd.Want[i].Size = c.size
					}
					return cmd
				}
				if _, err := decideGrant(one, command(0)); err != nil {
					t.Fatal(err)
				}
				store.Set(castest.Faults{Latency: 10 * time.Millisecond})
				before := one.Stats()
				const many = 20
				all := grantAtOnce(one, many, func(i int) *gatehouse.GrantCommand { return command(i + 1) })
				if granted := countGranted(t, all); granted != c.size-1 {
					t.Errorf("%d were granted, want %d", granted, c.size-1)
				}
				after := one.Stats()
				// The first one goes alone. A record that may be there has to be read.
				trips := after.Swaps + after.Reads - before.Swaps - before.Reads
				if most := uint64(8); trips > most {
					t.Errorf("%d grants took %d round trips, want at most %d", many, trips, most)
				}
				store.Set(castest.Faults{})
				if c.size == slots { // by which it asks
					wantLeft(t, two, 0, keys...)
				}
				if !withRecord {
					return
				}
				for _, r := range all {
					peek := &gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: r.id}
					d, err := followGrant(two, peek)
					if granted := d.Outcome == gatehouse.Granted; err != nil ||
						granted != (r.d.Outcome == gatehouse.Granted) || granted && d.Fence != r.d.Fence {
						t.Errorf("%s was %s with token %d; it is %+v, %v",
							r.id, r.d.Outcome, r.d.Fence, d, err)
					}
				}
			})
		})
	}
}

// Grants that were decided together and whose answer was lost are learnt, or taken back, each by itself.
func TestSharedAnswersAreLost(t *testing.T) {
	for name, faults := range map[string]castest.Faults{
		"learnt": {LostAnswer: 0.7}, "made": {LostAnswer: 1, Silent: 1},
		"not made": {LostRequest: 1, Silent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
				keys := fourNames()
				if _, err := decideGrant(one, grantOf("warm", keys...)); err != nil {
					t.Fatal(err)
				}
				wantLeft(t, one, slots-1, keys...)
				store.Set(faults)
				all := grantAtOnce(one, 2*slots, func(i int) *gatehouse.GrantCommand {
					return grantOf(fmt.Sprint("g", i), keys...)
				})
				store.Set(castest.Faults{})
				pass(5 * time.Second)
				if n := one.PendingUndos(); n > 0 {
					t.Fatalf("%d undos are pending", n)
				}
				there := int64(0)
				for _, r := range all {
					d, err := followGrant(two, &gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: r.id})
					if err != nil {
						t.Fatal(err)
					}
					switch is := d.Outcome == gatehouse.Granted; {
					case is:
						there++
					case r.error == nil && r.d.Outcome == gatehouse.Granted:
						t.Errorf("%s was granted and is not there", r.id)
					}
				}
				wantLeft(t, two, slots-1-there, keys...)
			})
		})
	}
}

// What is refused because of a hold that the backend ends before it answers is decided again, also beside a
// change that only looks and is granted.
func TestRefusalBesideALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := castest.New(1, true).Server(0)
		s := cas.New(backend, cas.Config{Server: 1})
		defer s.Close()
		limiter, lock := named(gatehouse.TokenBucket, "t"), named(gatehouse.Lock, "l")
		parts := func(op gatehouse.Op, holder string) []control.Part {
			cmd := grantOf("", limiter, lock)
			cmd.Op = op
			var p control.GrantParts
			p.Acquire(cmd)
			// Without the record of the grant, which would be read first.
			p.Parts[1].Turn.Holder, p.Parts[1].Optional = holder, op == gatehouse.OpPeek
			return p.Parts[:2]
		}
		if granted, err := applyParts(s, parts(gatehouse.OpAcquire, "a")); err != nil || !granted {
			t.Fatalf("a lock that is free: granted %t, %v", granted, err)
		}
		// Both wait for the reply to a change of the limiter alone, 10 ms before the hold ends. Their request
		// arrives 10 ms after that.
		backend.SetExtraLatency(40 * time.Millisecond)
		pass(time.Minute - 50*time.Millisecond)
		before, done := s.Stats(), make(chan error)
		tell := func(err error) { done <- err }
		first := parts(gatehouse.OpAcquire, "")[0].Turn.Command
		s.Apply(&control.Change{Key: limiter, Turns: []control.Turn{{Command: first}}, Done: tell})
		look := &control.JointChange{Parts: parts(gatehouse.OpPeek, ""), Done: tell}
		take := &control.JointChange{Parts: parts(gatehouse.OpAcquire, "b"), Done: tell}
		s.ApplyJoint(look)
		s.ApplyJoint(take)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if !look.Granted || !take.Granted {
			t.Errorf("granted: the look %t, the lock %t, want both", look.Granted, take.Granted)
		}
		// The limiter, and both twice.
		after := s.Stats()
		if trips := after.Swaps + after.Reads - before.Swaps - before.Reads; trips != 3 {
			t.Errorf("%d round trips, want 3", trips)
		}
	})
}
