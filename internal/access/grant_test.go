package access

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// lockGrant does something with a grant over two locks, which is granted and lasts that long from now on.
func (b *quotaBench) lockGrant(op gatehouse.Op, id string, lasts time.Duration, fence uint64) (
	entry Pass, cmd gatehouse.GrantCommand, err error,
) {
	cmd = gatehouse.GrantCommand{Op: op, ID: id}
	keys := []gatehouse.Key{{Kind: gatehouse.Lock, Name: "a"}, {Kind: gatehouse.Lock, Name: "b"}}
	if op == gatehouse.OpAcquire {
		cmd.Expires = lasts
		cmd.Want = []gatehouse.Member{{Key: keys[0], Cost: 1}, {Key: keys[1], Cost: 1}}
	}
	entry, err = b.user.EnterGrant(&cmd)
	if err != nil {
		return entry, cmd, err
	}
	d := gatehouse.GrantDecision{Outcome: gatehouse.Granted, ID: cmd.ID, Fence: fence, ExpiresAfter: lasts}
	for _, key := range keys {
		d.Want = append(d.Want, gatehouse.MemberDecision{Key: key})
	}
	err = entry.LeaveGrant(&cmd, &d, nil)
	return entry, cmd, err
}

// wantCounted compares how many holds and names of the user count.
func (b *quotaBench) wantCounted(when string, holds, names int) {
	b.Helper()
	v, now := b.user.usage, b.user.now()
	v.holds.due, v.names.due = 0, 0
	v.holds.sweep(now)
	v.names.sweep(now)
	if len(v.holds.all) != holds || len(v.names.all) != names {
		b.Errorf("%s: %d holds and %d names count, want %d and %d",
			when, len(v.holds.all), len(v.names.all), holds, names)
	}
}

// A renewal moves the end of what counts, whether it was counted here before or not.
func TestRenewalsCount(t *testing.T) {
	b := newQuotaBench(t, "holders: 5, names: 5")
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Expires: time.Minute, Cost: 1, Holder: "h"}
	minute := &gatehouse.Decision{Outcome: gatehouse.Granted, ExpiresAfter: time.Minute, Fence: 3}
	for _, op := range []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpRenew} {
		cmd.Op = op
		one, err := b.enter(gatehouse.Lock, "l", cmd)
		if err != nil {
			t.Fatal(err)
		}
		one.leave(minute)
		b.now = b.now.Add(50 * time.Second)
		b.wantCounted("after 50 s", 1, 1)
	}
	b.now = b.now.Add(10 * time.Second)
	b.wantCounted("when it has ended", 0, 0)
	one, err := b.enter(gatehouse.Semaphore, "s", cmd) // acquired at another server
	if err != nil {
		t.Fatal(err)
	}
	one.leave(minute)
	b.wantCounted("renewed here", 1, 0)
}

// The record of a grant counts for as long as it is remembered after its end, which a renewal moves and a
// release brings forward; its holds count as those of other commands do.
func TestRecordsOfGrantsEnd(t *testing.T) {
	b := newQuotaBench(t, "holders: 5, names: 5")
	do := func(op gatehouse.Op, lasts time.Duration) {
		t.Helper()
		if _, _, err := b.lockGrant(op, "g", lasts, 7); err != nil {
			t.Fatal(err)
		}
	}
	do(gatehouse.OpAcquire, 10*time.Minute)
	b.wantCounted("acquired", 2, 3)
	b.now = b.now.Add(9 * time.Minute)
	do(gatehouse.OpRenew, 10*time.Minute)
	b.now = b.now.Add(10*time.Minute - 1)
	b.wantCounted("renewed", 2, 3)
	b.now = b.now.Add(1)
	b.wantCounted("ended", 0, 1)
	b.now = b.now.Add(10 * time.Minute)
	b.wantCounted("forgotten", 0, 0)
	do(gatehouse.OpAcquire, 24*time.Hour)
	b.wantCounted("acquired for a day", 2, 3)
	do(gatehouse.OpRelease, 0)
	b.now = b.now.Add(time.Minute)
	b.wantCounted("released", 0, 3)
	b.now = b.now.Add(gatehouse.MaxRemembered)
	b.wantCounted("an hour after the release", 0, 2) // the locks are looked up when room is needed
}

// A grant that is taken back counts no more, unless there is a later one with its id.
func TestGrantTakenBack(t *testing.T) {
	b := newQuotaBench(t, "holders: 2, names: 5")
	entry, cmd, err := b.lockGrant(gatehouse.OpAcquire, "g", time.Hour, 7)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = b.lockGrant(gatehouse.OpAcquire, "other", time.Hour, 8)
	b.wantQuota(err, "holders")
	entry.TakeBackGrant(&cmd)
	b.wantCounted("taken back", 0, 2) // the names stay until they are forgotten
	if _, _, err = b.lockGrant(gatehouse.OpAcquire, "g", time.Hour, 9); err != nil {
		t.Fatal(err)
	}
	entry.TakeBackGrant(&cmd)
	b.wantCounted("the earlier one taken back again", 2, 3)

	asked := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Hour,
		Want: []gatehouse.Member{{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}, Cost: 1}},
	}
	waiting, err := b.user.EnterGrant(&asked)
	if err != nil {
		t.Fatalf("a repeat at the quota: %v, want none", err)
	}
	waiting.TakeBackGrant(&asked)
	waiting.TakeBackGrant(&asked) // the second finds nothing to end
	b.wantCounted("a repeat given up before its decision", 2, 3)
}
