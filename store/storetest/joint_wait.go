package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// This file is how grants wait.

// startGrant submits an acquire of a grant, and returns when it waits.
func (n *benchServer) startGrant(cmd gatehouse.GrantCommand) (answered chan gateReply, cancel func()) {
	n.bench.Helper()
	answered = make(chan gateReply, 1)
	before := n.gate.Waiting()
	r := &gate.GrantRequest{Command: cmd, Decided: func(r *gate.GrantRequest) {
		answered <- gateReply{gatehouse.Decision{Outcome: r.Decision.Outcome}, r.Err, time.Now()}
	}}
	n.gate.SubmitGrant(r)
	// A shared store answers later, and until then it is not known whether it waits.
	n.bench.eventually(fmt.Sprintf("%s waits", &cmd), func() bool {
		return n.gate.Waiting() > before || len(answered) > 0
	})
	return answered, func() { n.gate.CancelGrant(r) }
}

// waitingGrant is an acquire that waits for ever.
func waitingGrant(id string, want ...gatehouse.Member) gatehouse.GrantCommand {
	cmd := acquireGrant(id, want...)
	cmd.MaxWait = gatehouse.Forever
	return cmd
}

// waitingGrantsGoInOrder has grants for the same names wait, and a single command behind one.
func waitingGrantsGoInOrder(b *testBench) {
	n := b.at(0)
	n.wantGrant(acquireGrant("order0", wantSlots(1, "order a", "order b")...), gatehouse.Granted)
	var replies []chan gateReply
	for i := 1; i <= 3; i++ {
		names := []string{"order a", "order b"}
		// The order in which a grant has its names must not matter.
		if i == 2 {
			names = []string{"order b", "order a"}
		}
		cmd := waitingGrant(fmt.Sprint("order", i), wantSlots(1, names...)...)
		answered, _ := n.startGrant(cmd)
		replies = append(replies, answered)
	}
	for i, answered := range replies {
		b.wantNoReply("a grant in line", answered)
		n.wantGrant(aboutGrant(gatehouse.OpRelease, fmt.Sprint("order", i)), gatehouse.Granted)
		b.waitReply("the next grant", answered, gatehouse.Granted)
	}
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "order3"), gatehouse.Granted)
	n.wantHeld("order a", 0)
	n.wantHeld("order b", 0)
}

// grantThatGivesUp has a waiting grant leave, and sees that those behind it go on.
func grantThatGivesUp(b *testBench) {
	n := b.at(0)
	n.wantGrant(acquireGrant("gives0", wantSlots(1, "gives a")...), gatehouse.Granted)
	leaver, cancel := n.startGrant(waitingGrant("gives1", wantSlots(1, "gives a", "gives b")...))
	next, _ := n.startGrant(waitingGrant("gives2", wantSlots(1, "gives a")...))
	cancel()
	if a := <-leaver; a.err == nil {
		b.Errorf("who gave up was answered %s", a.Outcome)
	}
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "gives0"), gatehouse.Granted)
	b.waitReply("who is behind", next, gatehouse.Granted)
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "gives2"), gatehouse.Granted)
	// What it had left in the records would keep the grants of other servers waiting.
	other := b.at(1)
	other.wantGrant(acquireGrant("gives3", wantSlots(1, "gives a", "gives b")...), gatehouse.Granted)
	other.wantGrant(aboutGrant(gatehouse.OpRelease, "gives3"), gatehouse.Granted)
}

// crossingGrants has many at all servers want names that cross, again and again.
func crossingGrants(b *testBench) {
	const callers, each = 6, 8
	var inside [3]atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			n := b.at(caller)
			for i := range each {
				// Whoever has one of the two, another one has the other: who waits must hold nothing.
				x, y := caller%3, (caller+1+i%2)%3
				id := fmt.Sprint("cross", caller, ".", i)
				want := wantSlots(1, fmt.Sprint("cross", x), fmt.Sprint("cross", y))
				d, err := n.gate.DoGrant(b.Context(), waitingGrant(id, want...))
				if err != nil || d.Outcome != gatehouse.Granted {
					b.Errorf("%s: %s, %v, want it granted", id, d.Outcome, err)
					return
				}
				if inside[x].Add(1) > 1 || inside[y].Add(1) > 1 {
					b.Errorf("%s: something is held twice", id)
				}
				inside[x].Add(-1)
				inside[y].Add(-1)
				n.wantGrant(aboutGrant(gatehouse.OpRelease, id), gatehouse.Granted)
			}
		})
	}
	all.Wait()
	for i := range inside {
		b.at(0).wantHeld(fmt.Sprint("cross", i), 0)
	}
}

// grantsLast has all servers close, and looks what is there.
func grantsLast(b *testBench) {
	bucket := tokens(gatehouse.FixedWindow, "lasts", 10, 4)
	cmd := acquireGrant("lasts", append(wantSlots(1, "lasts"), bucket)...)
	fence := b.at(0).wantGrant(cmd, gatehouse.Granted).Fence
	// From here on nothing is known but by the store.
	b.closeAll()
	b.openServer()
	n := b.at(0)
	if d := n.wantGrant(cmd, gatehouse.Granted); d.Fence != fence {
		b.Errorf("a repeat has fence %d, want %d", d.Fence, fence)
	}
	n.wantHeld("lasts", 1)
	n.wantLeft(bucket, 6)
	settle := aboutGrant(gatehouse.OpSettle, "lasts")
	settle.Costs = []gatehouse.MemberCost{{Key: bucket.Key, Cost: 1}}
	n.wantGrant(settle, gatehouse.Granted)
	n.wantLeft(bucket, 9)
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "lasts"), gatehouse.Granted)
}

// releaseElsewhereWakesGrant has a grant wait at one server for what another gives back.
func releaseElsewhereWakesGrant(b *testBench) {
	b.at(0).wantGrant(acquireGrant("wakes0", wantSlots(1, "wakes a")...), gatehouse.Granted)
	b.at(0).wantGrant(acquireGrant("wakes1", wantSlots(1, "wakes b")...), gatehouse.Granted)
	waits, _ := b.at(1).startGrant(waitingGrant("wakes2", wantSlots(1, "wakes a", "wakes b")...))
	b.wantNoReply("a grant that waits", waits)
	b.at(0).wantGrant(aboutGrant(gatehouse.OpRelease, "wakes0"), gatehouse.Granted)
	b.at(0).wantGrant(aboutGrant(gatehouse.OpRelease, "wakes1"), gatehouse.Granted)
	b.waitReply("a grant that waits", waits, gatehouse.Granted)
	b.at(0).wantGrant(aboutGrant(gatehouse.OpRelease, "wakes2"), gatehouse.Granted)
}
