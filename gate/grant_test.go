package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// wants returns an acquire of a grant that waits for ever: one slot of each semaphore.
func wants(id string, names ...string) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: id, Expires: time.Hour, MaxWait: gatehouse.Forever,
	}
	for _, name := range names {
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key: semaphore(name), Rule: gatehouse.Rule{Size: 1}, Cost: 1,
		})
	}
	return cmd
}

// ends returns a release of a grant.
func ends(id string) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id}
}

// mustGrant does a command about a grant that is to be granted at once.
func mustGrant(t *testing.T, g *gate.Gate, cmd gatehouse.GrantCommand) gatehouse.GrantDecision {
	t.Helper()
	d, err := g.DoGrant(t.Context(), cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		t.Fatalf("%s %s = %s %s, %v, want granted", &cmd, cmd.Op, d.Outcome, d.Message, err)
	}
	return d
}

// submitGrant submits a command about a grant, and returns what cancels it.
func submitGrant(
	g *gate.Gate, cmd gatehouse.GrantCommand, done func(gatehouse.Decision, error),
) (cancel func()) {
	r := newGrantRequest(cmd, done)
	g.SubmitGrant(r)
	return func() { g.CancelGrant(r) }
}

// newGrantRequest is a request whose outcome is told.
func newGrantRequest(cmd gatehouse.GrantCommand, done func(gatehouse.Decision, error)) *gate.GrantRequest {
	return &gate.GrantRequest{Command: cmd, Decided: func(r *gate.GrantRequest) {
		done(gatehouse.Decision{Outcome: r.Decision.Outcome, Message: r.Decision.Message}, r.Err)
	}}
}

// wantIdle sees that nobody waits, and that the semaphores are free.
func wantIdle(t *testing.T, g *gate.Gate, names ...string) {
	t.Helper()
	if n := g.Waiting(); n != 0 {
		t.Errorf("%d wait, want none", n)
	}
	for _, name := range names {
		d, err := g.Do(context.Background(), semaphore(name), gatehouse.Command{Op: gatehouse.OpStats})
		if err != nil {
			t.Fatal(err)
		}
		for _, stat := range d.Stats {
			if (stat.Name == "held" || stat.Name == "waiting") && stat.Value != int64(0) {
				t.Errorf("%s: %s = %v, want 0", name, stat.Name, stat.Value)
			}
		}
	}
}

func TestGrantOfSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		first := mustGrant(t, g, wants("first", "a", "b"))
		if first.Fence == 0 || first.ExpiresAfter != time.Hour || len(first.Want) != 2 {
			t.Errorf("granted %+v, want a fence, an hour and two members", first)
		}
		again := mustGrant(t, g, wants("first", "a", "b"))
		if again.Fence != first.Fence {
			t.Errorf("a retry has fence %d, want %d", again.Fence, first.Fence)
		}
		submitGrant(g, wants("second", "b", "c"), l.done("second"))
		l.wantOrder(t)
		mustGrant(t, g, wants("third", "c")) // what is blocked elsewhere holds nothing
		mustGrant(t, g, ends("third"))
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "second")
		d, err := g.DoGrant(t.Context(), ends("first"))
		if err != nil || d.Outcome != gatehouse.Conflict {
			t.Errorf("a second release = %s, %v, want a conflict", d.Outcome, err)
		}
		mustGrant(t, g, ends("second"))
		wantIdle(t, g, "a", "b", "c")
	})
}

// Requests for the same names are granted in order of arrival, single commands among them.
func TestGrantsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a", "b"))
		submitGrant(g, wants("1", "a", "b"), l.done("1"))
		submit(g, semaphore("a"), acquire("2"), l.done("2"))
		submitGrant(g, wants("3", "b", "a"), l.done("3"))
		submit(g, semaphore("b"), acquire("4"), l.done("4"))
		submitGrant(g, wants("5", "a", "b"), l.done("5"))
		l.wantOrder(t) // what is on its way to the store when something comes free may take it
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "1")
		mustGrant(t, g, ends("1"))
		// 3 waits for a, which 2 has without an end: b is not kept for it.
		l.wantOrder(t, "1", "2", "4")
		must(t, g, semaphore("a"), release("2"))
		l.wantOrder(t, "1", "2", "4")
		must(t, g, semaphore("b"), release("4"))
		l.wantOrder(t, "1", "2", "4", "3")
		mustGrant(t, g, ends("3"))
		l.wantOrder(t, "1", "2", "4", "3", "5")
		mustGrant(t, g, ends("5"))
		wantIdle(t, g, "a", "b")
	})
}

func TestGrantTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a"))
		cmd := wants("second", "a", "b")
		cmd.MaxWait = time.Second
		submitGrant(g, cmd, l.done("second"))
		submitGrant(g, wants("third", "a"), l.done("third"))
		time.Sleep(time.Second)
		l.wantOrder(t, "second")
		if r := l.get("second"); r.err != nil || r.outcome != gatehouse.Refused || r.after != time.Second {
			t.Errorf("second: %+v, want it refused after a second", r)
		}
		cmd.ID, cmd.MaxWait = "fourth", 0
		if d, err := g.DoGrant(t.Context(), cmd); err != nil || d.Outcome != gatehouse.Refused {
			t.Errorf("fourth: %s, %v, want it refused", d.Outcome, err)
		}
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "second", "third")
		mustGrant(t, g, ends("third"))
		wantIdle(t, g, "a", "b")
	})
}

func TestGrantIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a"))
		cancel := submitGrant(g, wants("second", "a", "b"), l.done("second"))
		granted := submitGrant(g, wants("third", "a"), l.done("third"))
		cancel()
		cancel()
		l.wantOrder(t, "second")
		if r := l.get("second"); !errors.Is(r.err, context.Canceled) {
			t.Errorf("second: %v, want it canceled", r.err)
		}
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "second", "third")
		granted() // nobody is there to be told
		synctest.Wait()
		wantIdle(t, g, "a", "b")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		mustGrant(t, g, wants("fourth", "a"))
		if _, err := g.DoGrant(ctx, wants("fifth", "a")); gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Errorf("fifth: %v, want a timeout", err)
		}
		mustGrant(t, g, ends("fourth"))
		wantIdle(t, g, "a", "b")
	})
}

func TestGrantsWhenTheGateCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a"))
		submitGrant(g, wants("second", "a", "b"), l.done("second"))
		submitGrant(g, wants("third", "a"), l.done("third"))
		g.Close()
		l.wantOrder(t, "second", "third")
		for _, name := range []string{"second", "third"} {
			if r := l.get(name); gatehouse.CodeOf(r.err) != gatehouse.CodeUnavailable {
				t.Errorf("%s: %v, want unavailable", name, r.err)
			}
		}
		mustGrant(t, g, wants("fourth", "c"))
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestGrantWhoseNameIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a"))
		submitGrant(g, wants("second", "b", "a"), l.done("second"))
		submitGrant(g, wants("third", "a", "c"), l.done("third"))
		must(t, g, semaphore("a"), gatehouse.Command{Op: gatehouse.OpDelete})
		synctest.Wait()
		for _, name := range []string{"second", "third"} {
			if r := l.get(name); r.outcome != gatehouse.Deleted || r.err != nil {
				t.Errorf("%s: %s, %v, want deleted", name, r.outcome, r.err)
			}
		}
		mustGrant(t, g, wants("fourth", "a"))
		mustGrant(t, g, ends("first")) // what it had there is gone
		mustGrant(t, g, ends("fourth"))
		wantIdle(t, g, "b", "c")
	})
}

// Two that wait with one id are told of one grant.
func TestTwoGrantsWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a"))
		submitGrant(g, wants("same", "a", "b"), l.done("1"))
		cancel := submitGrant(g, wants("same", "a", "b"), l.done("2"))
		submitGrant(g, wants("same", "c", "a"), l.done("3"))
		mustGrant(t, g, ends("first"))
		l.wantOrder(t, "1", "2", "3")
		if r := l.get("3"); r.outcome != gatehouse.Conflict {
			t.Errorf("another grant of that id: %s, want a conflict", r.outcome)
		}
		cancel() // the other one stays
		synctest.Wait()
		peek := mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "same"})
		if peek.Ended {
			t.Error("the grant has ended, since one of two answers was taken back")
		}
		mustGrant(t, g, ends("same"))
		wantIdle(t, g, "a", "b", "c")
	})
}

// A grant of limiters waits for all of them, by one timer.
func TestGrantOfLimitersWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, MaxWait: gatehouse.Forever}
		cmd.Want = []gatehouse.Member{
			{Key: limiter("a"), Rule: gatehouse.Rule{Size: 1, Interval: 3 * time.Second}, Cost: 1},
			{Key: limiter("b"), Rule: gatehouse.Rule{Size: 5, Interval: 5 * time.Second}, Cost: 5},
		}
		mustGrant(t, g, cmd)
		submitGrant(g, cmd, l.done("second"))
		submitGrant(g, cmd, l.done("third"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if a, b := l.get("second").after, l.get("third").after; a != 5*time.Second || b != 10*time.Second {
			t.Errorf("granted after %s and %s, want 5 and 10 s", a, b)
		}
		wantIdle(t, g)
	})
}

func limiter(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.FixedWindow, Name: name}
}

// Settle, topup and renew go to a grant by its id.
func TestGrantIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		rule := gatehouse.Rule{Size: 10, Interval: time.Hour}
		cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: "one", Expires: time.Minute}
		cmd.Want = []gatehouse.Member{
			{Key: limiter("tokens"), Rule: rule, Cost: 5},
			{Key: semaphore("slots"), Rule: gatehouse.Rule{Size: 1}, Cost: 1},
		}
		mustGrant(t, g, cmd)
		costs := func(n int64) []gatehouse.MemberCost {
			return []gatehouse.MemberCost{{Key: limiter("tokens"), Cost: n}}
		}
		d := mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpTopUp, ID: "one", Costs: costs(3)})
		if d.Want[0].Cost != 8 {
			t.Errorf("after a topup %d count, want 8", d.Want[0].Cost)
		}
		renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "one", Expires: 2 * time.Minute}
		d = mustGrant(t, g, renew)
		if d.ExpiresAfter != 2*time.Minute {
			t.Errorf("renewed for %s, want 2 min", d.ExpiresAfter)
		}
		// A topup that waits, and what a settle gives back.
		submitGrant(g, gatehouse.GrantCommand{
			Op: gatehouse.OpTopUp, ID: "one", Costs: costs(4), MaxWait: gatehouse.Forever,
		}, l.done("topup"))
		l.wantOrder(t)
		take := acquire("")
		take.Rule, take.Cost = rule, 1
		submit(g, limiter("tokens"), take, l.done("single"))
		l.wantOrder(t)
		mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpSettle, ID: "one", Costs: costs(2)})
		l.wantOrder(t, "topup", "single")
		release := ends("one")
		release.Costs = costs(1)
		mustGrant(t, g, release)
		d = mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "one"})
		if !d.Ended || d.Want[0].Cost != 1 {
			t.Errorf("at its end %+v, want it ended with 1", d)
		}
		release.Costs[0].Key = limiter("other")
		if _, err := g.DoGrant(t.Context(), release); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("a name that is none of its: %v, want it invalid", err)
		}
		missing, err := g.DoGrant(t.Context(), ends("none"))
		if err != nil || missing.Outcome != gatehouse.Missing {
			t.Errorf("none: %s, %v, want it missing", missing.Outcome, err)
		}
		wantIdle(t, g, "slots")
	})
}

// The bounds of waiters hold for grants.
func TestGrantsWithoutRoomToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := gate.New(memory.New(memory.Config{}), gate.Config{Waiters: 4, Line: 2}), newLog()
		mustGrant(t, g, wants("first", "a", "b"))
		var cancels []func()
		for i, names := range [][]string{{"a"}, {"a", "b"}, {"a"}, {"b"}, {"b"}} {
			name := fmt.Sprint(i)
			cancels = append(cancels, submitGrant(g, wants(name, names...), l.done(name)))
		}
		l.wantOrder(t, "2", "4")
		for _, name := range []string{"2", "4"} {
			if r := l.get(name); gatehouse.CodeOf(r.err) != gatehouse.CodeExhausted {
				t.Errorf("%s: %v, want it exhausted", name, r.err)
			}
		}
		for _, cancel := range cancels {
			cancel()
		}
		mustGrant(t, g, ends("first"))
		wantIdle(t, g, "a", "b")
	})
}

// A grant that waits for many names takes as much room as many that wait for one. When it has left, there is
// room again.
func TestGrantsWaitForSoManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := gate.New(memory.New(memory.Config{}), gate.Config{Waiters: 4}), newLog()
		mustGrant(t, g, wants("first", "a", "b", "c"))
		cancel := submitGrant(g, wants("three", "a", "b", "c"), l.done("three"))
		submitGrant(g, wants("two", "a", "b"), l.done("two"))
		cancels := []func(){submitGrant(g, wants("one", "a"), l.done("one"))}
		l.wantOrder(t, "two")
		if r := l.get("two"); gatehouse.CodeOf(r.err) != gatehouse.CodeExhausted {
			t.Errorf("two: %v, want it exhausted", r.err)
		}
		cancel()
		cancels = append(cancels, submitGrant(g, wants("again", "a", "b", "c"), l.done("again")))
		l.wantOrder(t, "two", "three")
		for _, cancel := range cancels {
			cancel()
		}
		mustGrant(t, g, ends("first"))
		wantIdle(t, g, "a", "b", "c")
	})
}

// Four names cost little more than four times one, and nothing is allocated.
func BenchmarkGrant(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(n, " limiters"), func(b *testing.B) {
			g := newGate()
			r := &gate.GrantRequest{Command: limitersOf(n), Checked: true}
			b.ReportAllocs()
			for b.Loop() {
				g.SubmitGrant(r)
				if r.Err != nil || r.Decision.Outcome != gatehouse.Granted {
					b.Fatal(r.Decision, r.Err)
				}
			}
		})
	}
}

func limitersOf(n int) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	for i := range n {
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.TokenBucket, Name: fmt.Sprint("bench", i)},
			Rule: gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Hour}, Cost: 1,
		})
	}
	return cmd
}
