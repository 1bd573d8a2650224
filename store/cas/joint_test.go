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

// grantOf is a command for a grant that lasts for a minute, of one of each of these names: at most slots of a
// limiter in an hour, and of a semaphore at once.
func grantOf(id string, keys ...gatehouse.Key) *gatehouse.GrantCommand {
	cmd := &gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Minute}
	for _, key := range keys {
		m := gatehouse.Member{Key: key, Cost: 1}
		switch {
		case key.Kind.Limiter():
			m.Rule = gatehouse.Rule{Size: slots, Interval: time.Hour}
		case key.Kind == gatehouse.Semaphore:
			m.Size = slots
		}
		cmd.Want = append(cmd.Want, m)
	}
	return cmd
}

// A jointStore is what joint changes are put to.
type jointStore interface{ ApplyJoint(c *control.JointChange) }

// applyParts puts parts to a store, and waits.
func applyParts(s jointStore, parts []control.Part) (granted bool, err error) {
	done := make(chan error, 1)
	c := &control.JointChange{Parts: parts, Done: func(err error) { done <- err }}
	s.ApplyJoint(c)
	err = <-done
	return c.Granted, err
}

// decideGrant puts a command for a grant to a store.
func decideGrant(s jointStore, cmd *gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	var p control.GrantParts
	p.Acquire(cmd)
	granted, err := applyParts(s, p.Parts)
	if err == nil {
		err = p.Decide(granted, &d)
	}
	return d, err
}

// followGrant does something with a grant that is there.
func followGrant(s jointStore, cmd *gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	var p control.GrantParts
	p.Peek(cmd)
	if _, err = applyParts(s, p.Parts); err != nil {
		return d, err
	}
	record := p.Parts[0].Turn.Decision.Grant
	if record == nil {
		return gatehouse.GrantDecision{Outcome: gatehouse.Missing}, nil
	}
	err = p.Follow(cmd, record)
	if err != nil {
		return d, err
	}
	granted, err := applyParts(s, p.Parts)
	if err == nil {
		err = p.Decide(granted, &d)
	}
	return d, err
}

// fourNames are names of four kinds.
func fourNames() []gatehouse.Key {
	return []gatehouse.Key{
		named(gatehouse.TokenBucket, "t"), named(gatehouse.FixedWindow, "w"),
		named(gatehouse.Semaphore, "s"), named(gatehouse.Semaphore, "u"),
	}
}

// left is how much is left of a name by what a server says.
func left(t *testing.T, s *cas.Store, key gatehouse.Key) int64 {
	t.Helper()
	cmd := gatehouse.Command{Op: gatehouse.OpStats}
	if key.Kind.Limiter() {
		cmd = gatehouse.Command{
			Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: slots, Interval: time.Hour},
		}
	}
	d, err := applyTurn(s, key, control.Turn{Command: &cmd})
	if err != nil || d.Outcome == gatehouse.Missing {
		return slots
	}
	return d.Remaining
}

func wantLeft(t *testing.T, s *cas.Store, want int64, keys ...gatehouse.Key) {
	t.Helper()
	for _, key := range keys {
		if got := left(t, s, key); got != want {
			t.Errorf("%s: %d are left, want %d", key, got, want)
		}
	}
}

// onPair plays a test on two servers, of a store of each sort.
func onPair(t *testing.T, test func(t *testing.T, store *castest.Store, one, two *cas.Store)) {
	t.Helper()
	for name, leases := range map[string]bool{"redis": false, "etcd": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := castest.New(1, leases)
				one := cas.New(store.Server(0), cas.Config{Server: 1})
				two := cas.New(store.Server(0), cas.Config{Server: 2})
				defer one.Close()
				defer two.Close()
				test(t, store, one, two)
			})
		})
	}
}

// A grant takes of all names or of none, and what one server granted another one releases.
func TestGrantIsAllOrNothing(t *testing.T) {
	onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
		keys, lock := fourNames(), named(gatehouse.Lock, "l")
		d, err := decideGrant(one, grantOf("a", append(keys, lock)...))
		if err != nil || d.Outcome != gatehouse.Granted || d.Fence == 0 {
			t.Fatalf("a grant of free names = %+v, %v", d, err)
		}
		wantLeft(t, two, slots-1, keys...)
		refused, err := decideGrant(two, grantOf("b", append(keys, lock)...))
		if err != nil || refused.Outcome != gatehouse.Refused || refused.Binding != len(keys) {
			t.Fatalf("a grant of a lock that is held = %+v, %v, want it refused by that", refused, err)
		}
		wantLeft(t, one, slots-1, keys...)
		wantLeft(t, two, slots-1, keys...)
		if again, err := decideGrant(two, grantOf("a", append(keys, lock)...)); err != nil ||
			again.Outcome != gatehouse.Granted || again.Fence != d.Fence {
			t.Errorf("the same again at another server = %+v, %v, want the same grant", again, err)
		}
		end := &gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "a", Fence: d.Fence}
		if ended, err := followGrant(two, end); err != nil || ended.Outcome != gatehouse.Granted {
			t.Fatalf("a release at another server = %+v, %v", ended, err)
		}
		wantLeft(t, one, slots, named(gatehouse.Semaphore, "s"), named(gatehouse.Semaphore, "u"))
		later, err := decideGrant(two, grantOf("b", append(keys, lock)...))
		if err != nil || later.Outcome != gatehouse.Granted || later.Fence <= d.Fence {
			t.Errorf("a grant after the release = %+v, %v, want it with a greater token than %d",
				later, err, d.Fence)
		}
		for key := range store.Records() {
			if key == (gatehouse.Key{Kind: gatehouse.Grant, Name: "c"}) {
				t.Error("a grant that was refused has left a record")
			}
		}
	})
}

// Two servers that grant over the same names at once pass no limit, and are not stuck with names in any
// order.
func TestGrantsOfTwoServersAtOnce(t *testing.T) {
	onPair(t, func(t *testing.T, _ *castest.Store, one, two *cas.Store) {
		keys := fourNames()
		results := make(chan string)
		const each = 20
		for i := range each {
			for n, s := range []*cas.Store{one, two} {
				some := keys[i%2 : 2+i%3]
				go func() {
					d, err := decideGrant(s, grantOf(fmt.Sprint(n, "-", i), some...))
					results <- fmt.Sprintf("%s %v", d.Outcome, err)
				}()
			}
		}
		for range 2 * each {
			if got := <-results; got != "granted <nil>" && got != "refused <nil>" {
				t.Error(got)
			}
		}
		least := int64(slots)
		for _, key := range keys {
			n := left(t, one, key)
			if n < 0 {
				t.Errorf("%s: %d are left", key, n)
			}
			least = min(least, n)
		}
		if least > 0 {
			t.Errorf("at least %d are left of each, want one of them used up", least)
		}
	})
}

// A change whose answer was lost is learnt, or taken back under all names.
func TestGrantWithALostAnswer(t *testing.T) {
	onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
		keys := fourNames()
		d, err := decideGrant(one, grantOf("warm", keys...))
		if err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("%+v, %v", d, err)
		}
		// The connection breaks, so that there is time to ask again.
		store.Set(castest.Faults{LostAnswer: 0.7})
		for i := range 2 {
			d, err := decideGrant(one, grantOf(fmt.Sprint("learnt", i), keys...))
			t.Logf("with lost answers: %s, %v", d.Outcome, err)
		}
		store.Set(castest.Faults{})
		pass(5 * time.Second)
		granted := int64(0)
		for _, id := range []string{"warm", "learnt0", "learnt1"} {
			d, err := followGrant(two, &gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: id})
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome == gatehouse.Granted {
				granted++
			}
		}
		wantLeft(t, two, slots-granted, keys...)
		if n := one.PendingUndos(); n > 0 {
			t.Errorf("%d undos are pending", n)
		}
	})
}

// What may have been granted to a call that failed is taken back, whether it was made or not.
func TestGrantOfUnknownOutcomeIsTakenBack(t *testing.T) {
	for name, faults := range map[string]castest.Faults{
		"made": {LostAnswer: 1, Silent: 1}, "not made": {LostRequest: 1, Silent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
				keys := fourNames()
				if d, err := decideGrant(one, grantOf("warm", keys...)); err != nil ||
					d.Outcome != gatehouse.Granted {
					t.Fatalf("%+v, %v", d, err)
				}
				// Known, so that the change is the first that is sent.
				wantLeft(t, one, slots-1, keys...)
				store.Set(faults)
				cmd := grantOf("", keys[:2]...) // of limiters, whose names are all known
				cmd.Expires = 0
				if d, err := decideGrant(one, cmd); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Fatalf("a call without an answer = %+v, %v", d, err)
				}
				store.Set(castest.Faults{})
				pass(5 * time.Second)
				if n := one.PendingUndos(); n > 0 {
					t.Fatalf("%d undos are pending", n)
				}
				wantLeft(t, two, slots-1, keys...)
			})
		})
	}
}

// An undo of a grant whose answer was lost is done once.
func TestUndoOfAGrantIsDoneOnce(t *testing.T) {
	onPair(t, func(t *testing.T, store *castest.Store, one, two *cas.Store) {
		keys := fourNames()
		var p control.GrantParts
		p.Acquire(grantOf("a", keys...))
		if granted, err := applyParts(one, p.Parts); !granted || err != nil {
			t.Fatal(granted, err)
		}
		if d, err := decideGrant(two, grantOf("b", keys...)); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatal(d, err)
		}
		wantLeft(t, one, slots-2, keys...)
		p.Undo()
		store.Set(castest.Faults{LostAnswer: 1, Silent: 1})
		if _, err := applyParts(one, p.Parts); err == nil {
			t.Fatal("an answer was not lost")
		}
		store.Set(castest.Faults{})
		p = control.GrantParts{} // the caller uses it for something else
		pass(5 * time.Second)
		wantLeft(t, two, slots-1, keys...)
		if n := one.PendingUndos(); n > 0 {
			t.Errorf("%d undos are pending", n)
		}
	})
}

// Warm names are granted in one round trip, and refused in one.
func TestGrantTakesOneRoundTrip(t *testing.T) {
	onPair(t, func(t *testing.T, _ *castest.Store, one, _ *cas.Store) {
		keys := fourNames()[:2]
		for i := range slots + 1 {
			before := one.Stats()
			cmd := grantOf("", keys...)
			cmd.Expires = 0
			d, err := decideGrant(one, cmd)
			if err != nil {
				t.Fatal(err)
			}
			after := one.Stats()
			trips := after.Swaps + after.Reads - before.Swaps - before.Reads
			if i > 0 && trips != 1 {
				t.Errorf("grant %d, %s, took %d round trips, want 1", i, d.Outcome, trips)
			}
		}
	})
}

// While the store is away all who wait in the queues of a grant's names are answered, and the names can be
// used afterwards.
func TestGrantsWhileTheStoreIsAway(t *testing.T) {
	onPair(t, func(t *testing.T, store *castest.Store, one, _ *cas.Store) {
		keys := fourNames()
		if _, err := decideGrant(one, grantOf("warm", keys...)); err != nil {
			t.Fatal(err)
		}
		store.Set(castest.Faults{LostRequest: 1, Silent: 1})
		errs := make(chan error)
		for i := range 10 {
			go func() {
				_, err := decideGrant(one, grantOf(fmt.Sprint(i), keys[i%3:]...))
				errs <- err
			}()
			go func() {
				cmd := gatehouse.Command{Op: gatehouse.OpStats}
				_, err := applyTurn(one, keys[i%4], control.Turn{Command: &cmd})
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Errorf("without the store: %v", err)
			}
		}
		store.Set(castest.Faults{})
		pass(3 * time.Second)
		d, err := decideGrant(one, grantOf("after", keys...))
		if err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("when the store is back: %+v, %v", d, err)
		}
	})
}
