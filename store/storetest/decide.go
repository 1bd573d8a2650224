package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is what is decided: by the rules of package control, at once and for all, whichever server is
// asked.

// tests are the promises.
var tests = []contractTest{
	{name: "decides by the rules of control", body: decidesByTheRules},
	{name: "changes are atomic", body: changesAreAtomic},
	{name: "a queue is one change", body: queueIsOneChange},
	{name: "parameters count once", body: parametersCountOnce},
	{name: "an undo takes back what it names", body: undoTakesBack},
	{name: "fencing tokens rise", body: fencesRise},
	{name: "a hold ends in time", body: holdEndsInTime},
	{name: "a renewed hold lasts", body: renewedHoldLasts},
	{name: "a ticket counts once", body: ticketCountsOnce},
	{name: "time does not go back", body: timeRises},
	{name: "names are told apart", body: namesAreToldApart},
	{name: "as many holders as allowed", needs: needsHolders, body: holdersAreLimited},
	{name: "a charge counts everywhere", body: chargeCounts},
	{name: "what a third party reports holds everywhere", body: feedbackHoldsEverywhere},
	{name: "a delay beyond the longest takes nothing", body: maxDelayTakesNothing},
	{name: "a limit is in force everywhere", body: limitIsInForce},
	{name: "what is worth nothing is forgotten", needs: needsLinger, body: worthlessIsForgotten},
	{name: "lists names in order", body: listsInOrder},
	{name: "what was answered lasts", needs: needsLasting, body: answeredLasts},
	{name: "holders are told exactly", body: holdersAreTold},
	{name: "an evicted hold is not renewed", body: evictedIsNotRenewed},
	{name: "a closed name grants nothing", body: closedGrantsNothing},
	{name: "who waits elsewhere is told", servers: 2, body: waitersElsewhereAreTold},
	{name: "those who wait go in order", body: waitersGoInOrder},
	{name: "who gives up leaves nothing behind", body: givingUpLeavesNothing},
	{name: "a delete is told to all who wait", body: deleteIsTold},
	{name: "a barrier opens for all", body: barrierOpens},
	{name: "an event reaches all", body: eventReachesAll},
	{name: "a hold that ends lets the next one in", body: endLetsIn},
	{name: "many at once", body: manyAtOnce},
	{name: "a release elsewhere wakes", servers: 2, body: releaseElsewhereWakes},
	{name: "nobody overtakes at another server", servers: 2, body: nobodyOvertakes},
	{name: "watches wake, and are silent when stopped", servers: 2, body: watchesWake},
	{name: "a dead server leaves nothing behind", servers: 2, body: deadServerLeavesNothing},
}

func keyOf(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

// acquireOne is an acquire of 1, of size slots or tokens.
func acquireOne(holder string, size int64) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder,
		Rule: gatehouse.Rule{Size: size, Interval: time.Hour}, Cost: 1, Expires: time.Hour,
	}
}

func commandBy(op gatehouse.Op, holder string) gatehouse.Command {
	return gatehouse.Command{Op: op, Holder: holder, Expires: time.Hour}
}

// decidesByTheRules puts the same commands to the store and to a controller of the kind, at the store's time.
func decidesByTheRules(b *testBench) {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		key := keyOf(kind, "rules")
		rng := rand.New(rand.NewPCG(uint64(kind), 1)) // a fixed script
		var state control.State
		for step := range 60 {
			cmd := randomCommand(rng, kind)
			got := b.at(step).applyOne(key, cmd)
			queue := []control.Turn{{Command: &cmd}}
			// Clocks of servers differ by less than clockStep while nothing is stored.
			if got.Outcome == gatehouse.Missing &&
				(state == nil || !state.Expiry().After(got.At.Add(clockStep))) {
				state = nil // it was worth nothing, so that it need not be there
			}
			// The time of the store's decision: two clocks would never give the same remaining time.
			state = control.Serve(got.At, kind, state, queue)
			want := queue[0].Decision
			g, w := decisionSummary(got), decisionSummary(want)
			// The states differ from here on, so that later steps would only repeat the error.
			if g != w || !b.sameRetry(got, want) {
				b.Errorf("%s, step %d, %+v:\n got %s, retry %s\nwant %s, retry %s", key, step, cmd,
					g, got.RetryAfter, w, want.RetryAfter)
				break
			}
		}
	}
}

// clockStep is how much clocks may differ.
const clockStep = 100 * time.Millisecond

// decisionSummary is what two decisions must have alike. Fencing tokens are the store's own.
func decisionSummary(d gatehouse.Decision) string {
	return fmt.Sprintf("%s limit %d remaining %d value %d delay %s interval %s token %t, %d stats: %s",
		d.Outcome, d.Limit, d.Remaining, d.Value, d.Delay, d.Interval, d.Fence != 0, len(d.Stats), d.Message)
}

// sameRetry reports whether two decisions tell the same time to try again. A store may know better when that
// will have come, or not know when a hold ends.
func (b *testBench) sameRetry(got, want gatehouse.Decision) bool {
	return (got.RetryAfter-want.RetryAfter).Abs() < clockStep ||
		b.Leases && got.RetryAfter == gatehouse.Forever
}

// randomCommand makes up a command.
func randomCommand(rng *rand.Rand, kind gatehouse.Kind) gatehouse.Command {
	cmd := gatehouse.Command{
		Rule:   gatehouse.Rule{Size: rng.Int64N(4), Interval: time.Hour},
		Holder: fmt.Sprint(rng.IntN(4)), Amount: rng.Int64N(9) - 4,
		Expires: time.Hour, Keep: time.Hour, Message: "m",
	}
	// At most the size, since a greater cost is invalid and would test nothing more.
	cmd.Cost = 1 + rng.Int64N(max(1, cmd.Size))
	if kind != gatehouse.Barrier && rng.IntN(4) == 0 {
		cmd.Size = gatehouse.InForce
	}
	// OpUndo is left out: it needs the grant of an earlier command, and undoTakesBack tests it.
	for known := false; !known; known = kind.Has(cmd.Op) && cmd.Op != gatehouse.OpUndo {
		cmd.Op = gatehouse.Op(1 + rng.IntN(int(gatehouse.OpDelete)))
	}
	// Fewer deletes, or hardly any state would live for more than a few steps.
	if cmd.Op == gatehouse.OpDelete && rng.IntN(3) > 0 {
		cmd.Op = gatehouse.OpStats
	}
	if kind == gatehouse.Lock {
		cmd.Cost = 1
	}
	// Pauses last longer than clocks may differ. An open ends them, so that other things are tried too.
	if cmd.Op == gatehouse.OpFeedback {
		cmd.Feedback = &gatehouse.Feedback{
			Status:     []int{200, gatehouse.StatusTooMany, gatehouse.StatusUnavailable}[rng.IntN(3)],
			RetryAfter: time.Hour, Remaining: rng.Int64N(4), Reset: time.Hour, Seed: 1,
		}
	}
	return cmd
}

// changesAreAtomic has many ask for what is there for few.
func changesAreAtomic(b *testBench) {
	const callers, each, size = 8, 25, 60
	// One kind for each way to lose a change: holds, tokens, and a plain number.
	for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.TokenBucket, gatehouse.Counter} {
		var granted, sum atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for j := range each {
					cmd := acquireOne(fmt.Sprint(i, "/", j), size)
					cmd.Amount = 1
					if kind == gatehouse.Counter {
						cmd.Op = gatehouse.OpCount
					}
					d, err := b.at(i).gate.Do(b.Context(), keyOf(kind, "atomic"), cmd)
					if err != nil {
						b.Errorf("%s: %v", kind, err)
					}
					if d.Outcome == gatehouse.Granted {
						granted.Add(1)
						sum.Add(d.Value)
					}
				}
			})
		}
		// A counter shows each value from 1 once if no change is lost.
		all.Wait()
		// Neither holds nor tokens come back during the test: exactly the size is granted.
		want, wantSum := int64(size), int64(0)
		if kind == gatehouse.Counter {
			want, wantSum = callers*each, callers*each*(callers*each+1)/2
		}
		if granted.Load() != want || sum.Load() != wantSum {
			b.Errorf("%s: %d were granted, the values add up to %d, want %d and %d", kind, granted.Load(),
				sum.Load(), want, wantSum)
		}
	}
}

// queueIsOneChange: no command that may wait overtakes one that must, and what gives something back serves
// those before it.
func queueIsOneChange(b *testBench) {
	key := keyOf(gatehouse.Semaphore, "queue")
	b.at(0).want(key, acquireOne("a", 2), gatehouse.Granted)
	wide, narrow, give := acquireOne("wide", 2), acquireOne("narrow", 2), commandBy(gatehouse.OpRelease, "a")
	wide.Cost, wide.MaxWait, narrow.MaxWait = 2, gatehouse.Forever, gatehouse.Forever
	first := control.Turn{Command: &wide, Ticket: b.at(1).store.makeTicket(1)}
	second := control.Turn{Command: &narrow, Ticket: b.at(1).store.makeTicket(2)}
	// There is room for narrow. It is refused because wide came first and waits.
	for i, d := range b.at(1).applyQueue(key, first, second) {
		if d.Outcome != gatehouse.Refused {
			b.Errorf("turn %d: %s, want both refused, the second behind the first", i, d.Outcome)
		}
	}
	first.Again, second.Again = true, true
	// The release is the last turn of the queue and still serves the first one, which now takes both slots.
	outcomes := []gatehouse.Outcome{gatehouse.Granted, gatehouse.Refused, gatehouse.Granted}
	for i, d := range b.at(1).applyQueue(key, first, second, control.Turn{Command: &give}) {
		if d.Outcome != outcomes[i] {
			b.Errorf("turn %d with a release: %s, want %s", i, d.Outcome, outcomes[i])
		}
	}
}

// parametersCountOnce: a waiting command does not resize anything by being looked at again.
func parametersCountOnce(b *testBench) {
	key := keyOf(gatehouse.Semaphore, "once")
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	cmd := waitForever(acquireOne("b", 1))
	waits := control.Turn{Command: &cmd, Ticket: b.at(0).store.makeTicket(1)}
	waits.Since = b.at(0).wantTurn(key, waits, gatehouse.Refused).At
	grow := acquireOne("a", 5) // shares the hold, and makes the semaphore larger
	b.at(1).want(key, grow, gatehouse.Granted)
	// Again marks a command whose limits were applied before. Its size of 1 must not shrink the semaphore.
	waits.Again = true
	if d := b.at(0).wantTurn(key, waits, gatehouse.Granted); d.Limit != 5 {
		b.Errorf("the size is %d after one who waited was looked at again, want 5", d.Limit)
	}
}

// undoTakesBack: by its fencing token, and nothing else.
func undoTakesBack(b *testBench) {
	key := keyOf(gatehouse.Lock, "undo")
	first := b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	cmd := acquireOne("a", 1)
	undo := control.UndoOf(&control.Turn{Command: &cmd}, &gatehouse.Decision{
		Outcome: gatehouse.Granted, At: first.At, Fence: first.Fence - 1,
	})
	// The token is one below the hold's. The undo succeeds, because what it names is gone, but must not end
	// this hold.
	b.at(1).wantTurn(key, undo, gatehouse.Granted)
	b.at(0).want(key, acquireOne("b", 1), gatehouse.Refused)
	// With the right token it ends the hold. A repetition must spare the hold of the next holder.
	undo.Granted.Fence = first.Fence
	b.at(1).wantTurn(key, undo, gatehouse.Granted)
	b.at(0).want(key, acquireOne("b", 1), gatehouse.Granted)
	b.at(1).wantTurn(key, undo, gatehouse.Granted)
	b.at(0).want(key, acquireOne("c", 1), gatehouse.Refused)
}

// fencesRise: with every grant under a name, also after it was deleted.
func fencesRise(b *testBench) {
	key, last := keyOf(gatehouse.Lock, "fence"), uint64(0)
	for i := range 40 {
		d := b.at(i).want(key, acquireOne("a", 1), gatehouse.Granted)
		if d.Fence <= last {
			b.Errorf("grant %d: fencing token %d after %d", i, d.Fence, last)
		}
		last = d.Fence
		// Sharing a hold is not a new grant: the token that its holder has must stay valid.
		if again := b.at(i+1).want(key, acquireOne("a", 1), gatehouse.Granted); again.Fence != last {
			b.Errorf("grant %d: fencing token %d by sharing the hold of %d", i, again.Fence, last)
		}
		if i%3 == 0 {
			b.at(i+1).want(key, commandBy(gatehouse.OpDelete, ""), gatehouse.Granted)
		} else {
			b.at(i+1).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
		}
		b.passTime(time.Millisecond) // where tokens are made of the time, there may be one grant for each µs
	}
}

// holdEndsInTime: not before, and not much later.
func holdEndsInTime(b *testBench) {
	key, cmd := keyOf(gatehouse.Lock, "end"), acquireOne("a", 1)
	cmd.Expires = b.Unit
	// The hold begins between start and granted, and it ends between two looks at it.
	start := time.Now()
	b.at(0).want(key, cmd, gatehouse.Granted)
	granted := time.Now()
	for i := 0; ; i++ {
		began := time.Now()
		if d := b.at(i).applyOne(key, acquireOne("b", 1)); d.Outcome == gatehouse.Granted {
			// The bounds are on the safe side: a slow test machine must not turn a right store into a wrong
			// one.
			if ended := time.Now(); ended.Sub(start) < b.Unit {
				b.Errorf("a hold of %s ended within %s", b.Unit, ended.Sub(start))
			}
			break
		}
		if began.Sub(granted) > b.Unit+b.Slack {
			b.Fatalf("a hold of %s is there after %s", b.Unit, began.Sub(granted))
		}
		b.passTime(b.Unit / 16)
	}
	b.at(1).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Conflict)
	b.at(1).want(key, commandBy(gatehouse.OpRenew, "a"), gatehouse.Conflict)
}

// renewedHoldLasts as long as it is renewed, and no longer.
func renewedHoldLasts(b *testBench) {
	key, cmd := keyOf(gatehouse.Lock, "renew"), acquireOne("a", 1)
	cmd.Expires = b.Unit
	fence := b.at(0).want(key, cmd, gatehouse.Granted).Fence
	cmd.Op = gatehouse.OpRenew
	for i := range 6 {
		// Six thirds are twice the length of the hold, so that it lives by its renewals alone.
		b.passTime(b.Unit / 3)
		if d := b.at(i).want(key, cmd, gatehouse.Granted); d.Fence != fence {
			b.Errorf("renewed: fencing token %d, want %d still", d.Fence, fence)
		}
		b.at(i+1).want(key, acquireOne("b", 1), gatehouse.Refused)
	}
	b.eventually("the hold ends", func() bool {
		return b.at(1).applyOne(key, acquireOne("b", 1)).Outcome == gatehouse.Granted
	})
}

// ticketCountsOnce, however often it is looked at.
func ticketCountsOnce(b *testBench) {
	key := keyOf(gatehouse.Barrier, "ticket")
	cmd := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}, MaxWait: gatehouse.Forever}
	waits := control.Turn{Command: &cmd, Ticket: b.at(0).store.makeTicket(1)}
	for range 3 {
		waits.Since = b.at(0).wantTurn(key, waits, gatehouse.Refused).At
		waits.Again = true
	}
	undo := control.UndoOf(&waits, nil)
	b.at(0).wantTurn(key, undo, gatehouse.Granted)
	// The undo has removed the ticket, however often it was counted. One more arrival alone must not open the
	// barrier.
	other := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}}
	b.at(1).want(key, other, gatehouse.Refused)
}

// timeRises for each name, whichever server is asked.
func timeRises(b *testBench) {
	key, last := keyOf(gatehouse.Counter, "time"), time.Time{}
	for i := range 50 {
		d := b.at(i).applyOne(key, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1})
		// Each call begins after the one before has ended, so that an earlier time is wrong in any order.
		if d.At.Before(last) {
			b.Errorf("a decision at %s after one at %s", d.At, last)
		}
		last = d.At
	}
}

// namesAreToldApart, whatever is in them.
func namesAreToldApart(b *testBench) {
	names := []string{
		"a", "A", "a/b", "a//b", "/", "a b", "%2F", "a%2Fb", "{a}", "{a}b", "*", "?", "[a-z]", ":", "a:b",
		"ü", "\u65e5\u672c", "a\\", `"`, "'", "$", "..", ".", "a\u00a0b", "~",
	}
	for i, name := range names {
		for _, kind := range []gatehouse.Kind{gatehouse.Counter, gatehouse.Lock} {
			// A lock of the same name, to find kinds that share a key.
			if kind == gatehouse.Lock {
				b.at(i).want(keyOf(kind, name), acquireOne("a", 1), gatehouse.Granted)
				continue
			}
			count := gatehouse.Command{Op: gatehouse.OpCount, Amount: int64(i + 1)}
			d := b.at(i).applyOne(keyOf(kind, name), count)
			if d.Value != int64(i+1) {
				b.Errorf("counter %q: %d, want %d; it is another one's too", name, d.Value, i+1)
			}
		}
	}
}

// holdersAreLimited: one more than allowed is Exhausted, and it goes on when one has left.
func holdersAreLimited(b *testBench) {
	key, size := keyOf(gatehouse.Semaphore, "holders"), int64(b.Holders)*2
	// Queues of 100, because a round trip for each holder would take too long.
	for i := 0; i < b.Holders; i += 100 {
		queue := make([]control.Turn, 0, 100)
		for j := i; j < min(i+100, b.Holders); j++ {
			cmd := acquireOne(fmt.Sprint("h", j), size)
			queue = append(queue, control.Turn{Command: &cmd})
		}
		for j, d := range b.at(i/100).applyQueue(key, queue...) {
			if d.Outcome != gatehouse.Granted {
				b.Fatalf("holder %d: %s", i+j, d.Outcome)
			}
		}
	}
	b.at(0).want(key, acquireOne("more", size), gatehouse.Exhausted)
	// A holder that is there already needs no more room.
	b.at(1).want(key, acquireOne("h0", size), gatehouse.Granted)
	b.at(1).want(key, commandBy(gatehouse.OpRelease, "h0"), gatehouse.Granted)
	b.at(0).want(key, acquireOne("more", size), gatehouse.Granted)
}
