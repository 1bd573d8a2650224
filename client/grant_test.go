package client_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// TestGrants asks a client what it asks a gate in this process, from the acquire of a grant to its end, and
// compares what both answer.
func TestGrants(t *testing.T) {
	_, address := serveGate(t)
	distant := newClient(t, client.Config{Addresses: []string{address}})
	near := gate.New(memory.New(memory.Config{}), gate.Config{})
	slots := gatehouse.Key{Kind: gatehouse.Semaphore, Name: "calls"}
	tokens := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "tokens/min"}
	want := []gatehouse.Member{
		{Key: tokens, Rule: gatehouse.Rule{Size: 1000, Calendar: gatehouse.Month}, Cost: 600},
		{Key: slots, Rule: gatehouse.Rule{Size: 2}, Cost: 1},
	}
	spent := func(n int64) []gatehouse.MemberCost { return []gatehouse.MemberCost{{Key: tokens, Cost: n}} }
	owner := &gatehouse.Owner{Name: "train-a"}
	for i, cmd := range []gatehouse.GrantCommand{
		{Op: gatehouse.OpAcquire, ID: "a", Expires: time.Minute, Want: want, Owner: owner},
		{Op: gatehouse.OpAcquire, ID: "a", Expires: time.Minute, Want: want},
		{Op: gatehouse.OpAcquire, ID: "a", Expires: time.Minute, Want: want[1:]},
		{Op: gatehouse.OpAcquire, ID: "b", Expires: time.Minute, Want: want},
		{Op: gatehouse.OpAcquire, Want: []gatehouse.Member{{
			Key: tokens, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 5000, Clip: true,
		}}},
		{Op: gatehouse.OpSettle, ID: "a", Costs: spent(250)},
		{Op: gatehouse.OpTopUp, ID: "a", Costs: spent(5)},
		{Op: gatehouse.OpTopUp, ID: "a", Costs: spent(5000)},
		{Op: gatehouse.OpPeek, ID: "a"},
		{Op: gatehouse.OpRenew, ID: "a", Expires: gatehouse.AsAcquired},
		{Op: gatehouse.OpRenew, ID: "a", Expires: time.Hour, Fence: 1},
		{Op: gatehouse.OpSettle, ID: "a", Costs: spent(1100)},
		{Op: gatehouse.OpRelease, ID: "a", Costs: spent(300)},
		{Op: gatehouse.OpRelease, ID: "a"},
		{Op: gatehouse.OpPeek, ID: "a"},
		{Op: gatehouse.OpPeek, ID: "unknown"},
		{
			Op: gatehouse.OpAcquire, ID: "c", Expires: time.Minute, Want: want, Overrun: gatehouse.OverrunCap,
			OnExpiry: gatehouse.ExpiryZero,
		},
		{Op: gatehouse.OpSettle, ID: "c", Costs: spent(1100)},
	} {
		inside, err := near.DoGrant(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		told, err := distant.DoGrant(t.Context(), cmd)
		if err != nil {
			t.Fatalf("%d: %s = %v, want what Go says: %+v", i, cmd.Op, err, inside)
		}
		compareGrants(t, &cmd, &told, &inside)
	}
}

// compareGrants compares what the client says with what the gate decided.
func compareGrants(t *testing.T, cmd *gatehouse.GrantCommand, told, inside *gatehouse.GrantDecision) {
	t.Helper()
	if told.Outcome != inside.Outcome || told.Binding != inside.Binding && told.Want != nil {
		t.Errorf("%s of %s:\ntold   %+v\ninside %+v", cmd.Op, cmd, told, inside)
		return
	}
	if told.Outcome > gatehouse.Granted {
		if told.Message == "" || inside.Message != "" && cmd.Fence == 0 && told.Message != inside.Message {
			t.Errorf("%s of %s says %q, want %q", cmd.Op, cmd, told.Message, inside.Message)
		}
		return
	}
	if told.Ended != inside.Ended || len(told.Want) != len(inside.Want) ||
		told.ID != inside.ID && told.Outcome == gatehouse.Granted ||
		(told.Fence == 0) != (inside.Fence == 0) && told.Outcome == gatehouse.Granted ||
		(told.RetryAfter > 0) != (inside.RetryAfter > 0) {
		t.Errorf("%s of %s:\ntold   %+v\ninside %+v", cmd.Op, cmd, told, inside)
		return
	}
	for i := range told.Want {
		got, want := &told.Want[i], &inside.Want[i]
		if got.Key != want.Key || got.Outcome != want.Outcome || got.Remaining != want.Remaining ||
			got.Limit != want.Limit || got.Booked != want.Booked || got.Capped != want.Capped ||
			told.Outcome == gatehouse.Granted && got.Cost != want.Cost {
			t.Errorf("%s of %s, %s:\ntold   %+v\ninside %+v", cmd.Op, cmd, got.Key, got, want)
		}
	}
}

// TestFollowGrant follows a grant through its places in line to the outcome, which is that of DoGrant.
func TestFollowGrant(t *testing.T) {
	_, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	acquire := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "first", Expires: time.Minute, MaxWait: time.Minute,
		Want: []gatehouse.Member{{Key: key(gatehouse.Lock), Cost: 1}},
	}
	tellNothing := func(place client.LinePlace) { t.Errorf("told %+v, want nothing", place) }
	d, err := c.FollowGrant(t.Context(), acquire, tellNothing)
	if err != nil || d.Outcome != gatehouse.Granted || d.Fence == 0 || len(d.Want) != 1 {
		t.Fatalf("at once = %+v, %v, want it granted", d, err)
	}
	acquire.ID = "second"
	released := false
	d, err = c.FollowGrant(t.Context(), acquire, func(place client.LinePlace) {
		if place.Key != key(gatehouse.Lock) || place.Position != 1 || place.Grant != "second" {
			t.Errorf("told %+v, want the first place", place)
		}
		if !released {
			released = true
			release := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "first"}
			if _, err := c.DoGrant(t.Context(), release); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || d.Outcome != gatehouse.Granted || d.ID != "second" || !released {
		t.Errorf("after a wait = %+v, %v, want it granted", d, err)
	}
	acquire.ID, acquire.MaxWait = "third", 50*time.Millisecond
	d, err = c.FollowGrant(t.Context(), acquire, func(client.LinePlace) {})
	if err != nil || d.Outcome != gatehouse.Refused || d.Binding != 0 || d.Want[0].Message == "" {
		t.Errorf("not in time = %+v, %v, want it refused with the holders", d, err)
	}
	acquire.ID, acquire.Want[0].Key.Kind = "second", gatehouse.Semaphore
	d, err = c.FollowGrant(t.Context(), acquire, tellNothing)
	if err != nil || d.Outcome != gatehouse.Conflict {
		t.Errorf("an id that is taken = %+v, %v, want a conflict", d, err)
	}
	acquire.ID = ""
	_, err = c.FollowGrant(t.Context(), acquire, tellNothing)
	if gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("without an id = %v, want it invalid", err)
	}
}
