package access

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestOneHoldForTwo has two requests for one hold. It counts while either is under way or has it.
func TestOneHoldForTwo(t *testing.T) {
	b := newQuotaBench(t, "holders: 1")
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Expires: time.Hour, Cost: 1, Holder: "a"}
	granted := gatehouse.Decision{Outcome: gatehouse.Granted, ExpiresAfter: time.Hour, Fence: 7}
	ask := func() *entered {
		t.Helper()
		one, err := b.enter(gatehouse.Lock, "l", acquire)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	full := func(what string) {
		t.Helper()
		_, err := b.enter(gatehouse.Lock, "other", acquire)
		if gatehouse.CodeOf(err) != gatehouse.CodeQuota {
			t.Errorf("%s: another hold is let in, want a refusal", what)
		}
	}
	takeBack := func(e *entered) { e.entry.TakeBack(e.key, &e.cmd) }

	refused, left, first, second := ask(), ask(), ask(), ask()
	refused.leave(&gatehouse.Decision{Outcome: gatehouse.Refused})
	full("one of four was refused")
	takeBack(left)
	full("the client of one has left")
	first.leave(&granted)
	second.leave(&granted)
	takeBack(first)
	full("the first was not told")
	takeBack(second) // nor does the gate take it back: it cannot know that the first was not told either
	full("the second was not told")
	b.now = b.now.Add(time.Hour)
	third := ask()
	granted.Fence = 8
	third.leave(&granted)
	takeBack(third)
	takeBack(third)
	if n := len(b.user.usage.holds.all); n != 0 {
		t.Errorf("%d holds count after the only one that was granted was taken back, want 0", n)
	}
}

// grant asks for a grant over one limiter, and has it decided.
func (b *quotaBench) grant(id string, outcome gatehouse.Outcome, left time.Duration) error {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Want: []gatehouse.Member{
		{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}, Cost: 1},
	}}
	entry, err := b.user.EnterGrant(&cmd)
	if err != nil {
		return err
	}
	d := gatehouse.GrantDecision{Outcome: outcome, ID: cmd.ID, Fence: 7, ExpiresAfter: left}
	return entry.LeaveGrant(&cmd, &d, nil)
}

// TestGrantsCountAsNames has records of grants, which the store keeps as it does names.
func TestGrantsCountAsNames(t *testing.T) {
	b := newQuotaBench(t, "names: 3")
	for i := range 9 {
		if err := b.grant("refused-"+strconv.Itoa(i), gatehouse.Refused, 0); err != nil {
			t.Fatalf("grant %d that is refused: %v, want none, as nothing remains of it", i, err)
		}
	}
	for _, id := range []string{"1", "2", "2", ""} { // a name, and two grants
		if err := b.grant(id, gatehouse.Granted, time.Hour); err != nil {
			t.Fatalf("grant %q: %v, want none", id, err)
		}
	}
	b.wantQuota(b.grant("3", gatehouse.Granted, time.Hour), "names")
	b.now = b.now.Add(2*time.Hour - 1) // it is remembered as long as it lasted
	b.wantQuota(b.grant("3", gatehouse.Granted, time.Hour), "names")
	b.now = b.now.Add(1)
	if err := b.grant("3", gatehouse.Granted, time.Hour); err != nil {
		t.Errorf("after the grants are forgotten: %v, want none", err)
	}
}

// A repeat of a grant is answered with what is left of it, which is not as long as it is remembered.
func TestRepeatedGrantCountsAsLong(t *testing.T) {
	b := newQuotaBench(t, "names: 2")
	for _, left := range []time.Duration{time.Hour, time.Minute} {
		if err := b.grant("1", gatehouse.Granted, left); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(time.Hour - time.Minute)
	}
	b.wantQuota(b.grant("2", gatehouse.Granted, time.Hour), "names") // after nearly two hours
	b.now = b.now.Add(2 * time.Minute)
	if err := b.grant("2", gatehouse.Granted, time.Hour); err != nil {
		t.Errorf("after the grant is forgotten: %v, want none", err)
	}
}

// A meddlingGate has no grants, and does something before it says so.
type meddlingGate struct {
	gatehouse.Gate
	before func()
}

func (g *meddlingGate) DoGrant(context.Context, gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	g.before()
	return gatehouse.GrantDecision{Outcome: gatehouse.Missing}, nil
}

// A grant that is begun while it is looked up counts, although it was missing.
func TestGrantBegunWhileLookedUp(t *testing.T) {
	b := newQuotaBench(t, "names: 1")
	v, key := b.user.usage, recordKey("u\x00g")
	v.names.grant(key, endOf(b.user.now(), time.Hour), 7)
	gate := &meddlingGate{before: func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.names.ask(key, 1, b.user.now())
		v.names.grant(key, endOf(b.user.now(), 2*time.Hour), 8)
		v.names.endAsking(key)
	}}
	r := recount{ctx: t.Context(), gate: gate, usage: v, left: recountLooks}
	r.lookUpNames()
	if c, known := v.names.all[key]; !known || c.fence != 8 {
		t.Errorf("the grant counts as %+v, %t, want the one that was begun meanwhile", c, known)
	}
	gate.before = func() {}
	r.lookUpNames()
	if n := len(v.names.all); n != 0 {
		t.Errorf("%d names count, want 0, as the store has none", n)
	}
}

// Operations that need the right to manage begin names, too.
func TestNamesOfManagers(t *testing.T) {
	for kind, op := range map[gatehouse.Kind]gatehouse.Op{
		gatehouse.Lock: gatehouse.OpClose, gatehouse.Counter: gatehouse.OpReset,
		gatehouse.GCRA: gatehouse.OpFeedback,
	} {
		b := newQuotaBench(t, "names: 1")
		p := parse(t, "users: [{name: u, at-most: {names: 1}, may: [{on: '*', do: manage}]}]")
		b.users.SetPolicy(p)
		b.user = p.User("u")
		cmd := gatehouse.Command{Op: op, Keep: time.Hour}
		one, err := b.enter(kind, "a", cmd)
		if err != nil {
			t.Fatal(err)
		}
		one.leave(&gatehouse.Decision{Outcome: gatehouse.Granted, ResetAfter: time.Hour})
		b.now = b.now.Add(time.Minute)
		_, err = b.enter(kind, "b", cmd)
		b.wantQuota(err, "names")
		if _, err := b.enter(kind, "b", gatehouse.Command{Op: gatehouse.OpDelete}); err != nil {
			t.Errorf("a delete: %v, want none, as it begins nothing", err)
		}
	}
}
