package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
)

// This file is what is decided over several names: all of it or nothing, at one instant.

var jointTests = []contractTest{
	{name: "grants are decided by the rules of control", body: grantsByTheRules},
	{name: "a grant takes all or nothing", body: grantTakesAllOrNothing},
	{name: "grants are atomic", body: grantsAreAtomic},
	{name: "any server goes on with a grant", body: anyServerGoesOn},
	{name: "a peek at a grant shows what was evicted", body: peekShowsEvicted},
	{name: "an id is granted once", body: idIsGrantedOnce},
	{name: "the undo of a grant takes all of it back", body: undoOfGrant},
	{name: "a grant ends in time", body: grantEndsInTime},
	{name: "grants that wait go in order", body: waitingGrantsGoInOrder},
	{name: "a grant that gives up leaves nothing behind", body: grantThatGivesUp},
	{name: "grants with crossing names do not stand still", body: crossingGrants},
	{name: "grants last", needs: needsLasting, body: grantsLast},
	{name: "a release elsewhere wakes a grant", servers: 2, body: releaseElsewhereWakesGrant},
}

// wantSlots is what a grant wants of semaphores of one size: one slot of each.
func wantSlots(size int64, names ...string) (want []gatehouse.Member) {
	for _, name := range names {
		want = append(want, gatehouse.Member{
			Key: keyOf(gatehouse.Semaphore, name), Rule: gatehouse.Rule{Size: size}, Cost: 1,
		})
	}
	return want
}

// acquireGrant is an acquire of a grant for an hour.
func acquireGrant(id string, want ...gatehouse.Member) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Want: want, Expires: time.Hour}
}

func aboutGrant(op gatehouse.Op, id string) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{Op: op, ID: id}
}

// tokens is a limiter of so many in an hour.
func tokens(kind gatehouse.Kind, name string, size, cost int64) gatehouse.Member {
	return gatehouse.Member{
		Key: keyOf(kind, name), Rule: gatehouse.Rule{Size: size, Interval: time.Hour}, Cost: cost,
	}
}

// wantGrant puts a command about a grant to a gate.
func (n *benchServer) wantGrant(
	cmd gatehouse.GrantCommand, outcome gatehouse.Outcome,
) gatehouse.GrantDecision {
	n.bench.Helper()
	d, err := n.gate.DoGrant(n.bench.Context(), cmd)
	if err != nil || d.Outcome != outcome {
		n.bench.Errorf("%s: %s is %s %q, %v, want %s", &cmd, cmd.Op, d.Outcome, d.Message, err, outcome)
	}
	return d
}

// wantHeld sees how many slots of a semaphore are held.
func (n *benchServer) wantHeld(name string, want int64) {
	n.bench.Helper()
	key := keyOf(gatehouse.Semaphore, name)
	d := n.applyOne(key, gatehouse.Command{Op: gatehouse.OpStats})
	held := int64(0)
	for _, stat := range d.Stats {
		if stat.Name == "held" {
			held = stat.Value.(int64)
		}
	}
	if held != want {
		n.bench.Errorf("%s: %d held, want %d", key, held, want)
	}
}

// wantLeft sees how much of a limiter is left.
func (n *benchServer) wantLeft(m gatehouse.Member, want int64) {
	n.bench.Helper()
	d := n.applyOne(m.Key, gatehouse.Command{Op: gatehouse.OpPeek, Rule: m.Rule})
	if d.Remaining != want {
		n.bench.Errorf("%s: %d left, want %d: %+v", m.Key, d.Remaining, want, d)
	}
}

// grantsByTheRules puts the same parts to the store and to the core, at the store's time.
func grantsByTheRules(b *testBench) {
	rng := rand.New(rand.NewPCG(7, 1)) // a fixed script
	states := map[gatehouse.Key]control.State{}
	// Fencing tokens are the store's own, so each side goes on from what it was told itself.
	stored, records := map[string]*gatehouse.GrantRecord{}, map[string]*gatehouse.GrantRecord{}
	for step := range 120 {
		cmd := randomGrant(rng)
		var parts, same control.GrantParts
		if cmd.Op == gatehouse.OpAcquire {
			parts.Acquire(&cmd)
			same.Acquire(&cmd)
		} else {
			record, ours := records[cmd.ID], stored[cmd.ID]
			if record == nil || parts.Follow(&cmd, ours) != nil || same.Follow(&cmd, record) != nil {
				continue
			}
		}
		got := b.applyJoint(b.at(step), &parts)
		want := serveSame(got.At, states, &same)
		g, w := grantSummary(got), grantSummary(want)
		if g != w {
			b.Fatalf("step %d, %s %s:\n got %s\nwant %s", step, &cmd, cmd.Op, g, w)
		}
		if last := &same.Parts[len(same.Parts)-1]; last.Turn.Decision.Grant != nil {
			records[cmd.ID] = last.Turn.Decision.Grant
			stored[cmd.ID] = parts.Parts[len(parts.Parts)-1].Turn.Decision.Grant
		}
	}
}

// applyJoint puts parts to a store.
func (b *testBench) applyJoint(n *benchServer, parts *control.GrantParts) (d gatehouse.GrantDecision) {
	b.Helper()
	done := make(chan error, 1)
	c := &control.JointChange{Parts: parts.Parts, Done: func(err error) { done <- err }}
	n.store.ApplyJoint(c)
	err := <-done
	if err == nil {
		err = parts.Decide(c.Granted, &d)
	}
	if err != nil {
		b.Fatalf("a joint change: %v", err)
	}
	return d
}

// serveSame serves parts on states of its own.
func serveSame(
	now time.Time, states map[gatehouse.Key]control.State, parts *control.GrantParts,
) (d gatehouse.GrantDecision) {
	joint := make([]control.JointPart, len(parts.Parts))
	for i := range joint {
		joint[i] = control.JointPart{Part: &parts.Parts[i], State: states[parts.Parts[i].Key]}
	}
	granted := control.ServeJoint(now, joint)
	for i := range joint {
		states[joint[i].Key] = joint[i].State
	}
	if err := parts.Decide(granted, &d); err != nil {
		panic(err)
	}
	return d
}

// grantSummary is what must be the same on all stores: not the tokens, which a store may count otherwise.
func grantSummary(d gatehouse.GrantDecision) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s ended=%t binding=%d %q", d.Outcome, d.Ended, d.Binding, d.Message)
	for i := range d.Want {
		m := &d.Want[i]
		fmt.Fprintf(&s, "; %s %s cost %d, capped %d, booked %d, %d of %d",
			m.Key, m.Outcome, m.Cost, m.Capped, m.Booked, m.Remaining, m.Limit)
	}
	return s.String()
}

// randomGrant is a command about one of few grants over few names.
func randomGrant(rng *rand.Rand) gatehouse.GrantCommand {
	all := append(wantSlots(2, "j1", "j2"), tokens(gatehouse.TokenBucket, "j3", 10, 1),
		tokens(gatehouse.FixedWindow, "j4", 20, 1), tokens(gatehouse.SlidingLog, "j5", 15, 1),
		gatehouse.Member{Key: keyOf(gatehouse.Lock, "j6"), Cost: 1})
	cmd := gatehouse.GrantCommand{ID: fmt.Sprint("id", rng.IntN(6)), Expires: time.Hour}
	// Half of them are acquires, most of which find something taken.
	switch rng.IntN(6) {
	case 0, 1, 2:
		cmd.Op = gatehouse.OpAcquire
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		cmd.Want = all[:1+rng.IntN(len(all))]
		cmd.OnExpiry, cmd.Overrun = gatehouse.OnExpiry(rng.IntN(3)), gatehouse.Overrun(rng.IntN(2))
		for i := range cmd.Want {
			if cmd.Want[i].Key.Kind.Limiter() {
				cmd.Want[i].Cost = 1 + rng.Int64N(4)
			}
		}
		return cmd
	case 3:
		cmd.Op = gatehouse.OpRenew
		return cmd
	case 4:
		cmd.Op = gatehouse.OpRelease
	default:
		cmd.Op = []gatehouse.Op{gatehouse.OpSettle, gatehouse.OpTopUp}[rng.IntN(2)]
	}
	cmd.Costs = []gatehouse.MemberCost{{Key: all[2+rng.IntN(3)].Key, Cost: 1 + rng.Int64N(6)}}
	return cmd
}

// grantTakesAllOrNothing has one member of each kind refuse, and sees that the others kept what they had.
func grantTakesAllOrNothing(b *testBench) {
	n := b.at(0)
	bucket := tokens(gatehouse.TokenBucket, "all tokens", 10, 4)
	want := append(wantSlots(1, "all a", "all b"), bucket)
	n.wantGrant(acquireGrant("first", wantSlots(1, "all b")...), gatehouse.Granted)
	d := n.wantGrant(acquireGrant("second", want...), gatehouse.Refused)
	if d.Binding != 1 {
		b.Errorf("member %d binds, want 1", d.Binding)
	}
	n.wantHeld("all a", 0)
	n.wantLeft(bucket, 10)
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "first"), gatehouse.Granted)
	first := n.wantGrant(acquireGrant("second", want...), gatehouse.Granted)
	n.wantHeld("all a", 1)
	n.wantLeft(bucket, 6)
	// A token is above all earlier ones under each of the names.
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "second"), gatehouse.Granted)
	one := n.applyOne(keyOf(gatehouse.Semaphore, "all a"), acquireOne("k", 1))
	if one.Fence <= first.Fence {
		b.Errorf("a later hold has fence %d, not above %d", one.Fence, first.Fence)
	}
	// What a grant holds is no key's to release.
	n.want(keyOf(gatehouse.Semaphore, "all b"), commandBy(gatehouse.OpRelease, "second"), gatehouse.Conflict)
}

// grantsAreAtomic has many want two names in both orders, where one has few: both count the same.
func grantsAreAtomic(b *testBench) {
	const callers, each, size = 6, 10, 20
	few := tokens(gatehouse.TokenBucket, "few", size, 1)
	many := tokens(gatehouse.FixedWindow, "many", 1000, 1)
	var granted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				cmd := acquireGrant(fmt.Sprint("atomic", caller, ".", i), few, many)
				// The order in which a client names them must not matter.
				if i%2 == 0 {
					cmd.Want[0], cmd.Want[1] = many, few
				}
				d, err := b.at(caller).gate.DoGrant(b.Context(), cmd)
				if err != nil {
					b.Errorf("%s: %v", &cmd, err)
				}
				if d.Outcome == gatehouse.Granted {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if granted.Load() != size {
		b.Errorf("%d were granted, want %d", granted.Load(), size)
	}
	b.at(0).wantLeft(few, 0)
	b.at(0).wantLeft(many, 1000-size)
}

// anyServerGoesOn has each operation on a grant come to another server.
func anyServerGoesOn(b *testBench) {
	bucket := tokens(gatehouse.FixedWindow, "goes on", 100, 10)
	want := append(wantSlots(1, "goes on"), bucket)
	costs := func(n int64) []gatehouse.MemberCost {
		return []gatehouse.MemberCost{{Key: bucket.Key, Cost: n}}
	}
	b.at(0).wantGrant(acquireGrant("goes-on", want...), gatehouse.Granted)
	topup := aboutGrant(gatehouse.OpTopUp, "goes-on")
	topup.Costs = costs(5)
	b.at(1).wantGrant(topup, gatehouse.Granted)
	b.at(2).wantLeft(bucket, 85)
	settle := aboutGrant(gatehouse.OpSettle, "goes-on")
	for i, figure := range []int64{3, 20, 8} { // the last one counts
		settle.Costs = costs(figure)
		b.at(i).wantGrant(settle, gatehouse.Granted)
		b.at(i+1).wantLeft(bucket, 100-figure)
	}
	renew := aboutGrant(gatehouse.OpRenew, "goes-on")
	renew.Expires = 2 * time.Hour
	b.at(1).wantGrant(renew, gatehouse.Granted)
	if d := b.at(2).wantGrant(aboutGrant(gatehouse.OpPeek, "goes-on"), gatehouse.Granted); d.Ended ||
		d.ExpiresAfter <= time.Hour || d.Want[1].Cost != 8 {
		b.Errorf("a peek says %+v, want two hours and a cost of 8", d)
	}
	release := aboutGrant(gatehouse.OpRelease, "goes-on")
	release.Costs = costs(2)
	b.at(0).wantGrant(release, gatehouse.Granted)
	b.at(1).wantLeft(bucket, 98)
	b.at(1).wantHeld("goes on", 0)
	// One that has ended is remembered, and told from one that never was.
	b.at(2).wantGrant(release, gatehouse.Conflict)
	b.at(1).wantGrant(settle, gatehouse.Conflict)
	b.at(0).wantGrant(aboutGrant(gatehouse.OpRelease, "never"), gatehouse.Missing)
}

// peekShowsEvicted evicts a hold of a grant at once.
func peekShowsEvicted(b *testBench) {
	bucket := tokens(gatehouse.TokenBucket, "evicted of", 100, 10)
	want := append(wantSlots(1, "evicted", "kept"), bucket)
	fence := b.at(0).wantGrant(acquireGrant("evicted-of", want...), gatehouse.Granted).Fence
	peek := aboutGrant(gatehouse.OpPeek, "evicted-of")
	for _, first := range []int64{1, 0} {
		d := b.at(1).wantGrant(peek, gatehouse.Granted)
		if d.Want[0].Cost != first || d.Want[1].Cost != 1 || d.Want[2].Cost != 10 || d.Fence != fence {
			b.Errorf("a peek says %+v, want %d, 1 and 10", d, first)
		}
		b.at(0).applyOne(want[0].Key, gatehouse.Command{Op: gatehouse.OpEvict, Fence: fence, Now: true})
	}
}

// idIsGrantedOnce repeats an acquire at all servers.
func idIsGrantedOnce(b *testBench) {
	bucket := tokens(gatehouse.TokenBucket, "once", 10, 4)
	cmd := acquireGrant("once", append(wantSlots(1, "once"), bucket)...)
	fence := b.at(0).wantGrant(cmd, gatehouse.Granted).Fence
	for i := range 3 {
		if d := b.at(i).wantGrant(cmd, gatehouse.Granted); d.Fence != fence {
			b.Errorf("a repeat has fence %d, want %d", d.Fence, fence)
		}
	}
	b.at(1).wantLeft(bucket, 6)
	// The same id for something else is a mistake of the client, and takes nothing.
	other := acquireGrant("once", bucket)
	b.at(1).wantGrant(other, gatehouse.Conflict)
	b.at(1).wantLeft(bucket, 6)
	b.at(0).wantGrant(aboutGrant(gatehouse.OpRelease, "once"), gatehouse.Granted)
	b.at(1).wantGrant(cmd, gatehouse.Conflict) // it has ended, and is remembered
}

// undoOfGrant has a client leave just after the grant.
func undoOfGrant(b *testBench) {
	n := b.at(0)
	bucket := tokens(gatehouse.TokenBucket, "undone", 10, 4)
	cmd := acquireGrant("undone", append(wantSlots(1, "undone a", "undone b"), bucket)...)
	n.cancelGranted(cmd)
	n.wantHeld("undone a", 0)
	n.wantHeld("undone b", 0)
	n.wantLeft(bucket, 10)
	n.wantGrant(aboutGrant(gatehouse.OpPeek, "undone"), gatehouse.Missing)
	// The repeat of a grant that somebody else was told of takes nothing with it.
	n.wantGrant(cmd, gatehouse.Granted)
	n.cancelGranted(cmd)
	n.wantHeld("undone a", 1)
	n.wantLeft(bucket, 6)
	// A topup is taken back too, and the grant stays.
	topup := aboutGrant(gatehouse.OpTopUp, "undone")
	topup.Costs = []gatehouse.MemberCost{{Key: bucket.Key, Cost: 3}}
	n.cancelGranted(topup)
	n.wantHeld("undone a", 1)
	n.wantLeft(bucket, 6)
	n.wantGrant(aboutGrant(gatehouse.OpRelease, "undone"), gatehouse.Granted)
	n.wantHeld("undone a", 0)
}

// cancelGranted puts a command about a grant to the gate, and cancels it once it was granted.
func (n *benchServer) cancelGranted(cmd gatehouse.GrantCommand) {
	n.bench.Helper()
	decided := make(chan struct{}, 1)
	r := &gate.GrantRequest{Command: cmd, Decided: func(*gate.GrantRequest) { decided <- struct{}{} }}
	n.gate.SubmitGrant(r)
	<-decided
	if r.Err != nil || r.Decision.Outcome != gatehouse.Granted {
		n.bench.Fatalf("%s: %s, %v, want it granted", &cmd, r.Decision.Outcome, r.Err)
	}
	n.gate.CancelGrant(r)
	ctx, cancel := context.WithTimeout(n.bench.Context(), patience)
	defer cancel()
	if err := n.gate.Drain(ctx); err != nil {
		n.bench.Fatalf("the undo: %v", err)
	}
}

// grantEndsInTime has grants expire, with and without what they took.
func grantEndsInTime(b *testBench) {
	for i, onExpiry := range []gatehouse.OnExpiry{gatehouse.ExpiryEstimate, gatehouse.ExpiryZero} {
		n, name := b.at(i), fmt.Sprint("ends", i)
		bucket := tokens(gatehouse.FixedWindow, name, 10, 4)
		cmd := acquireGrant(name, append(wantSlots(1, name), bucket)...)
		cmd.Expires, cmd.OnExpiry = b.Unit, onExpiry
		n.wantGrant(cmd, gatehouse.Granted)
		b.passTime(b.Unit + b.Slack)
		n.wantGrant(acquireGrant(name+"-next", wantSlots(1, name)...), gatehouse.Granted)
		left := int64(6)
		if onExpiry == gatehouse.ExpiryZero {
			left = 10
		}
		b.at(i+1).wantLeft(bucket, left)
		if d := n.wantGrant(aboutGrant(gatehouse.OpPeek, name), gatehouse.Granted); !d.Ended {
			b.Errorf("%s has not ended", name)
		}
		renew := aboutGrant(gatehouse.OpRenew, name)
		renew.Expires = gatehouse.AsAcquired
		n.wantGrant(renew, gatehouse.Conflict)
	}
}
