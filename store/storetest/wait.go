package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is what happens to waiters, and to names.

// waitForever makes a command wait.
func waitForever(cmd gatehouse.Command) gatehouse.Command {
	cmd.MaxWait = gatehouse.Forever
	return cmd
}

// makeTicket is the n-th ticket that a test makes for itself.
func (s *waitSpy) makeTicket(n int) control.Ticket { return s.first + 1<<30 + control.Ticket(n) }

// listNames lists what a server has of a kind.
func (n *benchServer) listNames(kind gatehouse.Kind, after string) (names []string) {
	n.bench.Helper()
	err := n.store.Range(n.bench.Context(), kind, after, func(key gatehouse.Key, _ control.State) bool {
		if key.Kind != kind {
			n.bench.Errorf("asked for a %s, shown %s", kind, key)
		}
		names = append(names, key.Name)
		return true
	})
	if err != nil {
		n.bench.Errorf("Range: %v", err)
	}
	return names
}

// worthlessIsForgotten, and what is worth something is not.
func worthlessIsForgotten(b *testBench) {
	gone, stays := keyOf(gatehouse.Lock, "gone"), keyOf(gatehouse.Lock, "stays")
	first := b.at(0).want(gone, acquireOne("a", 1), gatehouse.Granted)
	b.at(0).want(stays, acquireOne("a", 1), gatehouse.Granted)
	b.at(1).want(gone, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	if names := b.at(0).listNames(gatehouse.Lock, ""); !slices.Equal(names, []string{"gone", "stays"}) {
		b.Errorf("there are %q, want both", names)
	}
	b.passTime(b.Linger)
	b.eventually("what is worth nothing is forgotten", func() bool {
		return slices.Equal(b.at(0).listNames(gatehouse.Lock, ""), []string{"stays"})
	})
	b.at(1).want(stays, acquireOne("b", 1), gatehouse.Refused)
	// The token must rise even where no trace of the name is left.
	if d := b.at(1).want(gone, acquireOne("a", 1), gatehouse.Granted); d.Fence <= first.Fence {
		b.Errorf("fencing token %d after %d and being forgotten", d.Fence, first.Fence)
	}
}

// listsInOrder: each name once, from the one after, of one kind, until it is asked to stop.
func listsInOrder(b *testBench) {
	var want []string
	for i := range 40 {
		name := strings.Repeat("n", i%3+1) + fmt.Sprint("/", i)
		b.at(i).want(keyOf(gatehouse.Lock, name), acquireOne("a", 1), gatehouse.Granted)
		b.at(i).want(keyOf(gatehouse.Event, name+"e"), commandBy(gatehouse.OpSend, ""), gatehouse.Granted)
		want = append(want, name)
	}
	b.at(0).want(keyOf(gatehouse.Lock, "nnn/deleted"), acquireOne("a", 1), gatehouse.Granted)
	b.at(1).want(keyOf(gatehouse.Lock, "nnn/deleted"), commandBy(gatehouse.OpDelete, ""), gatehouse.Granted)
	slices.Sort(want)
	// The start is excluded, and need not exist: it may lie between names or behind all of them.
	for i, after := range []string{"", want[0], want[17], "n", "nn/x", want[39], "zzz"} {
		at, found := slices.BinarySearch(want, after)
		if found {
			at++
		}
		if got := b.at(i).listNames(gatehouse.Lock, after); !slices.Equal(got, want[at:]) {
			b.Errorf("after %q: %q, want %q", after, got, want[at:])
		}
	}
	// A visit that returns false ends the listing, and so does an ended context.
	seen := 0
	err := b.at(0).store.Range(b.Context(), gatehouse.Lock, "", func(gatehouse.Key, control.State) bool {
		seen++
		return seen < 3
	})
	if err != nil || seen != 3 {
		b.Errorf("told to stop at the third: %d were shown, %v", seen, err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if err := b.at(0).store.Range(ctx, gatehouse.Lock, "",
		func(gatehouse.Key, control.State) bool { return true }); err == nil {
		b.Errorf("Range with an ended context has no error")
	}
}

// answeredLasts: what was answered is there after all servers were closed.
func answeredLasts(b *testBench) {
	lock, counter := keyOf(gatehouse.Lock, "lasts"), keyOf(gatehouse.Counter, "lasts")
	event, freed := keyOf(gatehouse.Event, "lasts"), keyOf(gatehouse.Lock, "freed")
	held := b.at(0).want(lock, acquireOne("a", 1), gatehouse.Granted)
	b.at(0).want(counter, gatehouse.Command{Op: gatehouse.OpCount, Amount: 7}, gatehouse.Granted)
	b.at(0).want(event, gatehouse.Command{Op: gatehouse.OpSend, Message: "m"}, gatehouse.Granted)
	was := b.at(0).want(freed, acquireOne("a", 1), gatehouse.Granted)
	// Of this lock only the fencing token must last: the next holder's must be greater.
	b.at(0).want(freed, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	// No server is left that could remember anything in its memory.
	b.closeAll()
	n := b.openServer()
	n.want(lock, acquireOne("b", 1), gatehouse.Refused)
	if d := n.want(lock, acquireOne("a", 1), gatehouse.Granted); d.Fence != held.Fence {
		b.Errorf("the hold has fencing token %d after all was closed, want %d", d.Fence, held.Fence)
	}
	if d := n.applyOne(counter, gatehouse.Command{Op: gatehouse.OpValue}); d.Value != 7 {
		b.Errorf("the counter stands at %d after all was closed, want 7", d.Value)
	}
	if d := n.want(event, gatehouse.Command{Op: gatehouse.OpWait}, gatehouse.Granted); d.Message != "m" {
		b.Errorf("the event says %q after all was closed, want %q", d.Message, "m")
	}
	if d := n.want(freed, acquireOne("b", 1), gatehouse.Granted); d.Fence <= was.Fence {
		b.Errorf("fencing token %d after %d and after all was closed", d.Fence, was.Fence)
	}
}

// waitersGoInOrder of their arrival at one server.
func waitersGoInOrder(b *testBench) {
	key := keyOf(gatehouse.Lock, "order")
	b.at(1).want(key, acquireOne("0", 1), gatehouse.Granted)
	var lines []chan gateReply
	for i := 1; i <= 8; i++ {
		line, _ := b.at(0).startWaiting(key, waitForever(acquireOne(fmt.Sprint(i), 1)))
		lines = append(lines, line)
	}
	b.inTurn(key, lines)
}

// inTurn releases a lock of holder "0", "1" and so on, and sees that the next one gets it, and no other.
func (b *testBench) inTurn(key gatehouse.Key, lines []chan gateReply) {
	b.Helper()
	last := uint64(0)
	for i := range lines {
		for j := i; j < len(lines); j++ {
			b.wantNoReply(fmt.Sprint("waiter ", j+1, " while ", i, " holds"), lines[j])
		}
		// At one server after the other, so that lines of other servers have to be woken.
		b.at(i).wantGranted(key, commandBy(gatehouse.OpRelease, fmt.Sprint(i)))
		a := b.waitReply(fmt.Sprint("waiter ", i+1), lines[i], gatehouse.Granted)
		if a.Fence <= last {
			b.Errorf("waiter %d has fencing token %d after %d", i+1, a.Fence, last)
		}
		last = a.Fence
	}
}

// nobodyOvertakes: servers give way to the command that has waited longest at any of them.
func nobodyOvertakes(b *testBench) {
	key := keyOf(gatehouse.Lock, "turns")
	b.at(0).want(key, acquireOne("0", 1), gatehouse.Granted)
	var lines []chan gateReply
	for i, server := range []int{0, 1, 1, 0, 2, 0, 1, 2, 2, 0} {
		line, _ := b.at(server).startWaiting(key, waitForever(acquireOne(fmt.Sprint(i+1), 1)))
		lines = append(lines, line)
	}
	b.inTurn(key, lines)
}

// givingUpLeavesNothing: not in a line, not at a barrier, not held.
func givingUpLeavesNothing(b *testBench) {
	key := keyOf(gatehouse.Semaphore, "give up")
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	first, leave := b.at(0).startWaiting(key, waitForever(acquireOne("gone", 1)))
	second, _ := b.at(1).startWaiting(key, waitForever(acquireOne("b", 1)))
	// In the line: the next one must get what is released.
	leave()
	b.at(1).wantGranted(key, commandBy(gatehouse.OpRelease, "a"))
	b.waitReply("who waits behind one who left", second, gatehouse.Granted)
	b.wantNoReply("who left", first)
	ctx, cancel := context.WithTimeout(b.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := b.at(0).gate.Do(ctx, key, waitForever(acquireOne("late", 1))); err == nil {
		b.Errorf("a call with an ended context has no error")
	}
	if took := time.Since(start); took > patience/2 {
		b.Errorf("a call with a context of 50 ms took %s", took)
	}
	b.at(0).wantGranted(key, commandBy(gatehouse.OpRelease, "b"))
	// A grant that its caller does not want any more is undone by the gate.
	got, giveBack := b.at(0).startWaiting(key, waitForever(acquireOne("c", 1)))
	b.waitReply("who hung up after it was granted", got, gatehouse.Granted)
	giveBack()
	b.eventually("nothing is held", func() bool {
		d := b.at(1).applyOne(key, commandBy(gatehouse.OpStats, ""))
		return d.Remaining == 1
	})
	// A barrier counts tickets in the state itself, so that leaving needs an undo at the store.
	barrier := keyOf(gatehouse.Barrier, "give up")
	wait := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}, MaxWait: gatehouse.Forever}
	_, leave = b.at(0).startWaiting(barrier, wait)
	leave()
	b.eventually("nobody is counted", func() bool {
		return b.at(1).applyOne(barrier, commandBy(gatehouse.OpStats, "")).Remaining == 2
	})
}

// deleteIsTold to each waiter, at every server.
func deleteIsTold(b *testBench) {
	for _, kind := range []gatehouse.Kind{gatehouse.Lock, gatehouse.Barrier, gatehouse.Event} {
		key := keyOf(kind, "delete")
		cmd := waitForever(gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 100}})
		if kind == gatehouse.Lock {
			b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
		}
		var lines []chan gateReply
		for i := range 9 {
			if kind == gatehouse.Lock {
				cmd = waitForever(acquireOne(fmt.Sprint(i), 1))
			}
			line, _ := b.at(i).startWaiting(key, cmd)
			lines = append(lines, line)
		}
		b.at(1).wantGranted(key, commandBy(gatehouse.OpDelete, ""))
		for i, line := range lines {
			b.waitReply(fmt.Sprint(key, ": waiter ", i, " of a deleted one"), line, gatehouse.Deleted)
		}
		if kind == gatehouse.Lock { // who comes now starts again
			b.at(0).want(key, acquireOne("b", 1), gatehouse.Granted)
			after, _ := b.at(1).startWaiting(key, waitForever(acquireOne("c", 1)))
			b.at(2).wantGranted(key, commandBy(gatehouse.OpRelease, "b"))
			b.waitReply("who came after the delete", after, gatehouse.Granted)
		}
		b.at(1).want(keyOf(kind, "missing"), commandBy(gatehouse.OpDelete, ""), gatehouse.Missing)
	}
}

// barrierOpens when all are there, wherever.
func barrierOpens(b *testBench) {
	key := keyOf(gatehouse.Barrier, "open")
	cmd := waitForever(gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 5}})
	var lines []chan gateReply
	for i := range 4 {
		line, _ := b.at(i).startWaiting(key, cmd)
		lines = append(lines, line)
	}
	for i, line := range lines {
		b.wantNoReply(fmt.Sprint("waiter ", i, " of 4 at a barrier for 5"), line)
	}
	last, _ := b.at(1).startWaiting(key, cmd)
	for i, line := range append(lines, last) {
		b.waitReply(fmt.Sprint("waiter ", i, " at a barrier"), line, gatehouse.Granted)
	}
	b.at(0).want(key, gatehouse.Command{
		Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 5},
	}, gatehouse.Conflict)
}

// eventReachesAll waiters, and those that come later.
func eventReachesAll(b *testBench) {
	key := keyOf(gatehouse.Event, "event")
	var lines []chan gateReply
	for i := range 7 {
		line, _ := b.at(i).startWaiting(key, waitForever(gatehouse.Command{Op: gatehouse.OpWait}))
		lines = append(lines, line)
	}
	send := gatehouse.Command{Op: gatehouse.OpSend, Message: "now"}
	b.at(0).wantGranted(key, send)
	for i, line := range lines {
		if a := b.waitReply(fmt.Sprint("waiter ", i), line, gatehouse.Granted); a.Message != "now" {
			b.Errorf("waiter %d got %q, want %q", i, a.Message, "now")
		}
	}
	b.at(1).want(key, gatehouse.Command{Op: gatehouse.OpWait}, gatehouse.Granted)
	b.at(1).want(key, send, gatehouse.Conflict)
}

// endLetsIn: a waiter gets what ended, without a command of another client.
func endLetsIn(b *testBench) {
	key, cmd := keyOf(gatehouse.Lock, "let in"), acquireOne("a", 1)
	cmd.Expires = b.Unit
	start := time.Now()
	b.at(0).want(key, cmd, gatehouse.Granted)
	line, _ := b.at(1).startWaiting(key, waitForever(acquireOne("b", 1)))
	a := b.waitReply("who waits for a hold to end", line, gatehouse.Granted)
	// One second more than the slack: no release wakes the waiter, so that a timer has to look.
	if took := a.at.Sub(start); took < b.Unit || took > b.Unit+b.Slack+time.Second {
		b.Errorf("who waits for a hold of %s went after %s", b.Unit, took)
	}
}

// manyAtOnce: all kinds of calls from many, at all servers, explained by one order.
func manyAtOnce(b *testBench) {
	var all sync.WaitGroup
	// Six holders compete for two slots at all servers. What each of them is answered must fit one order,
	// which the history looks for at the end of the test.
	for i := range 6 {
		all.Go(func() {
			for j := range 25 {
				n := b.at(i + j)
				holder := fmt.Sprint(i)
				cmd := acquireOne(holder, 2)
				cmd.MaxWait = time.Duration(j%3) * 20 * time.Millisecond
				key := keyOf(gatehouse.Semaphore, "many")
				// A hold that is not released would refuse all later calls, and the rest of the history would
				// prove little.
				if d, err := b.history.Do(b.Context(), n.gate, key, cmd); err != nil {
					b.Errorf("%s: %v", key, err)
				} else if d.Outcome == gatehouse.Granted {
					_, _ = b.history.Do(b.Context(), n.gate, key, commandBy(gatehouse.OpRelease, holder))
				}
				counter := keyOf(gatehouse.Counter, "many")
				count := gatehouse.Command{Op: gatehouse.OpCount, Amount: int64(j)}
				if j%4 == 0 {
					// A read between the counts finds a server that answers an old value.
					count.Op = gatehouse.OpValue
				}
				_, _ = b.history.Do(b.Context(), n.gate, counter, count)
			}
		})
	}
	all.Wait()
}

// releaseElsewhereWakes, by a message: sooner than a waiter looks by itself.
func releaseElsewhereWakes(b *testBench) {
	key, slow := keyOf(gatehouse.Lock, "wake"), 0
	const rounds, soon = 6, 500 * time.Millisecond
	for i := range rounds {
		b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
		line, _ := b.at(1).startWaiting(key, waitForever(acquireOne("b", 1)))
		start := time.Now()
		b.at(i).wantGranted(key, commandBy(gatehouse.OpRelease, "a"))
		if a := b.waitReply("who waits at another server", line, gatehouse.Granted); a.at.Sub(start) > soon {
			slow++
		}
		b.at(0).want(key, commandBy(gatehouse.OpRelease, "b"), gatehouse.Granted)
	}
	// Messages may be lost, and then a timer serves the waiter. It must be the exception, hence a share
	// instead of a bound for each.
	if slow > rounds/3 {
		b.Errorf("%d of %d were not woken within %s", slow, rounds, soon)
	}
}

// watchesWake when another server changes something that a command waits for.
func watchesWake(b *testBench) {
	key := keyOf(gatehouse.Lock, "watch")
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	var woken atomic.Int64
	stop := b.at(1).store.Watch(key, func() { woken.Add(1) })
	cmd := waitForever(acquireOne("b", 1))
	waits := control.Turn{Command: &cmd, Ticket: b.at(1).store.makeTicket(1)}
	// The ticket goes to the store directly, without a gate, so that no gate's own timer serves it.
	waits.Since = b.at(1).wantTurn(key, waits, gatehouse.Refused).At
	b.at(0).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	b.eventually("the watch wakes", func() bool { return woken.Load() > 0 })
	stop()
	before := woken.Load()
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Refused) // behind who waits at the other server
	b.at(1).wantTurn(key, control.UndoOf(&waits, nil), gatehouse.Granted)
	b.at(0).want(key, acquireOne("a", 1), gatehouse.Granted)
	b.at(0).want(key, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	// Longer than the second in which a server looks at its waiters by itself.
	b.passTime(1200 * time.Millisecond)
	if now := woken.Load(); now != before {
		b.Errorf("a watch that was stopped woke %d times more", now-before)
	}
}

// deadServerLeavesNothing except what it granted: commands that waited at it delay no other for long.
func deadServerLeavesNothing(b *testBench) {
	dead := b.at(1)
	if dead.kill == nil {
		return
	}
	lock, barrier := keyOf(gatehouse.Lock, "dead"), keyOf(gatehouse.Barrier, "dead")
	b.at(0).want(lock, acquireOne("a", 1), gatehouse.Granted)
	dead.startWaiting(lock, waitForever(acquireOne("b", 1)))
	wait := waitForever(gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}})
	dead.startWaiting(barrier, wait)
	line, _ := b.at(0).startWaiting(lock, waitForever(acquireOne("c", 1)))
	dead.kill()
	b.nodes, b.dead = slices.Delete(b.nodes, 1, 2), append(b.dead, dead)
	start := time.Now()
	b.at(0).want(lock, commandBy(gatehouse.OpRelease, "a"), gatehouse.Granted)
	// Three seconds until the others hold a silent server for dead, and a look at the waiters each second.
	const most = 3*time.Second + 1500*time.Millisecond
	if a := b.waitReply("who waits behind a dead server", line, gatehouse.Granted); a.at.Sub(start) > most {
		b.Errorf("who waits behind a dead server went after %s, want at most %s", a.at.Sub(start), most)
	}
	b.passTime(3500*time.Millisecond - time.Since(start))
	// By now the barrier must have forgotten the ticket of the dead server, or this one would pass.
	alone, leave := b.at(0).startWaiting(barrier, wait)
	b.wantNoReply("one at a barrier for two, the other of whom is dead", alone)
	leave()
}
