package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what people see of holders and waiters, and do to them, whichever server they ask.

// ownedBy is an acquire for somebody.
func ownedBy(holder, owner string, size int64) gatehouse.Command {
	cmd := acquireOne(holder, size)
	cmd.Owner = &gatehouse.Owner{Name: owner, Host: "host of " + owner, Purpose: "eval"}
	return cmd
}

// holders lists who holds, as far as that does not depend on the time.
func (n *benchServer) holders(key gatehouse.Key) string {
	n.bench.Helper()
	r := n.want(key, gatehouse.Command{Op: gatehouse.OpHolders}, gatehouse.Granted).Report
	var all []string
	for _, h := range r.Holders {
		// How much is left depends on how fast the machine is.
		ends := h.ExpiresAfter > 0 && h.ExpiresAfter <= time.Hour
		all = append(all, fmt.Sprintf("%s at %s for %s, %d renewals, %d slots, ends %t, evicted %t",
			h.Owner.Name, h.Owner.Host, h.Owner.Purpose, h.Renewals, h.Slots, ends, h.Evicted != nil))
		if h.Since.IsZero() || h.HeldFor < 0 || h.Fence == 0 {
			n.bench.Errorf("%s: a holder is %+v", key, h)
		}
	}
	return fmt.Sprintf("%d of %d: %s", r.Used, r.Limit, strings.Join(all, "; "))
}

// wantHolders wants every server to list the same.
func (b *testBench) wantHolders(key gatehouse.Key, want string) {
	b.Helper()
	for i := range b.nodes {
		if got := b.at(i).holders(key); got != want {
			b.Errorf("%s: at server %d holders are\n%s, want\n%s", key, i, got, want)
		}
	}
}

func holdersAreTold(b *testBench) {
	key := keyOf(gatehouse.Semaphore, "told")
	b.at(0).want(key, gatehouse.Command{Op: gatehouse.OpHolders}, gatehouse.Missing)
	two := ownedBy("b", "train-b", 3)
	two.Cost = 2
	b.at(0).want(key, ownedBy("a", "train-a", 3), gatehouse.Granted)
	b.at(1).want(key, two, gatehouse.Granted)
	b.at(2).want(key, commandBy(gatehouse.OpRenew, "a"), gatehouse.Granted)
	const a, bb = "train-a at host of train-a for eval, 1 renewals, 1 slots, ends true, evicted false",
		"train-b at host of train-b for eval, 0 renewals, 2 slots, ends true, evicted false"
	b.wantHolders(key, "3 of 3: "+a+"; "+bb)
	b.at(1).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	b.wantHolders(key, "2 of 3: "+bb)
	// One without an end, and without an owner, is told as well.
	lock := keyOf(gatehouse.Lock, "told")
	plain := acquireOne("k", 1)
	plain.Expires = 0
	b.at(1).want(lock, plain, gatehouse.Granted)
	b.wantHolders(lock, "1 of 1:  at  for , 0 renewals, 1 slots, ends false, evicted false")
}

func evictedIsNotRenewed(b *testBench) {
	key := keyOf(gatehouse.Lock, "evicted")
	short := ownedBy("a", "train-a", 1)
	short.Expires = 4 * b.Unit
	first := b.at(0).want(key, short, gatehouse.Granted).Fence
	evict := gatehouse.Command{
		Op: gatehouse.OpEvict, Fence: first, Message: "drained", Owner: &gatehouse.Owner{Name: "ops"},
	}
	b.at(1).want(key, evict, gatehouse.Granted)
	renew := commandBy(gatehouse.OpRenew, "a")
	// At every server, since the eviction is in the record and not in a server.
	for i := range b.nodes {
		d := b.at(i).want(key, renew, gatehouse.Conflict)
		if !strings.HasSuffix(d.Message, "evicted by ops: drained") {
			b.Errorf("a renewal is told %q, want who evicted and why", d.Message)
		}
	}
	// The refused renewals have not made it last longer.
	waits, _ := b.at(2).startWaiting(key, func() gatehouse.Command {
		cmd := acquireOne("b", 1)
		cmd.MaxWait = gatehouse.Forever
		return cmd
	}())
	second := b.waitReply("who waits for an evicted hold", waits, gatehouse.Granted).Fence
	b.at(0).want(key, renew, gatehouse.Conflict)
	// Evicted at once, it leaves its place before its term is over.
	evict.Fence, evict.Now = second, true
	b.at(1).want(key, evict, gatehouse.Granted)
	b.at(2).want(key, acquireOne("c", 1), gatehouse.Granted)
}

func closedGrantsNothing(b *testBench) {
	for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.Lock, gatehouse.TokenBucket} {
		key := keyOf(kind, "closed")
		b.at(0).want(key, acquireOne("a", 5), gatehouse.Granted)
		shut := gatehouse.Command{Op: gatehouse.OpClose, Message: "maintenance"}
		b.at(1).want(key, shut, gatehouse.Granted)
		d := b.at(2).want(key, acquireOne("b", 50), gatehouse.Refused)
		if d.Message != "is closed: maintenance" || d.RetryAfter != gatehouse.Forever {
			b.Errorf("%s: refused with %q, retry %s, want the reason and Forever", key, d.Message,
				d.RetryAfter)
		}
		// What is held can be given back while it is closed.
		if kind != gatehouse.TokenBucket {
			b.at(2).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
		}
		cmd := acquireOne("c", 5)
		cmd.MaxWait = gatehouse.Forever
		answered, _ := b.at(0).startWaiting(key, cmd)
		b.at(0).want(key, acquireOne("d", 5), gatehouse.Refused)
		b.wantNoReply("who waits at a closed name", answered)
		b.at(1).want(key, gatehouse.Command{Op: gatehouse.OpOpen}, gatehouse.Granted)
		// At the same server no other's change wakes the line, but whatever passes through it.
		b.at(0).wantGranted(key, gatehouse.Command{Op: gatehouse.OpOpen})
		b.waitReply("who waits when it is opened", answered, gatehouse.Granted)
	}
}

func waitersElsewhereAreTold(b *testBench) {
	key := keyOf(gatehouse.Lock, "elsewhere")
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	cmd := acquireOne("b", 1)
	cmd.MaxWait = gatehouse.Forever
	answered, cancel := b.at(1).startWaiting(key, cmd)
	// It is told once the other server has written it into the record.
	b.eventually("who waits elsewhere is told", func() bool {
		r := b.at(0).want(key, gatehouse.Command{Op: gatehouse.OpWaiters}, gatehouse.Granted).Report
		return len(r.Others) == 1 && r.Total == 0 && r.Others[0].Server != 0 && r.Others[0].Waiting == 1
	})
	b.wantNoReply("who waits", answered)
	cancel()
}
