package gate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// limiterOf is a member that takes of a fixed window of a minute.
func limiterOf(name string, size int64) gatehouse.Member {
	return gatehouse.Member{
		Key:  gatehouse.Key{Kind: gatehouse.FixedWindow, Name: name},
		Rule: gatehouse.Rule{Size: size, Interval: time.Minute, Burst: size - 1},
	}
}

// under is a command of a user with two parents.
func under(op gatehouse.Op, cost int64) gatehouse.GrantCommand {
	user := limiterOf("user", 10)
	cmd := gatehouse.Command{Op: op, Rule: user.Rule, Cost: cost, MaxWait: 2 * time.Minute}
	return cmd.WithParents(user.Key, limiterOf("team", 6), limiterOf("org", 7))
}

// TestParents: a name and its parents are charged together, and the level that has the least left says so. A
// peek and a delay are answered as the acquire would be, and take nothing.
func TestParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for range 3 {
			d := mustGrant(t, g, under(gatehouse.OpPeek, 6))
			if d.Decisive() != 1 || d.ID != "" {
				t.Errorf("a peek has %+v, want the team, and no record", d)
			}
			if d := mustGrant(t, g, under(gatehouse.OpDelay, 6)); d.AsOne().Delay != 0 {
				t.Errorf("a delay = %s, want 0", d.AsOne().Delay)
			}
		}
		names := func() (names []string) {
			for _, name := range []string{"user", "team", "org"} {
				d, _ := g.Do(t.Context(), limiterOf(name, 1).Key, gatehouse.Command{
					Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce},
				})
				names = append(names, fmt.Sprintf("%s%d", d.Outcome, d.Remaining))
			}
			return names
		}
		if got := strings.Join(names(), " "); got != "missing0 missing0 missing0" {
			t.Errorf("after questions alone the names are %s, want none", got)
		}
		mustGrant(t, g, under(gatehouse.OpAcquire, 4))
		if got := strings.Join(names(), " "); got != "granted6 granted2 granted3" {
			t.Errorf("after 4 of each there are %s", got)
		}
		cmd := under(gatehouse.OpPeek, 3)
		d, err := g.DoGrant(t.Context(), cmd)
		if err != nil || d.Outcome != gatehouse.Refused || d.Binding != 1 || d.AsOne().Limit != 6 {
			t.Errorf("a peek at 3 = %+v, %v, want a refusal by the team", d, err)
		}
		if d := mustGrant(t, g, under(gatehouse.OpDelay, 3)); d.AsOne().Delay <= 0 || d.Decisive() != 1 {
			t.Errorf("a delay of 3 = %+v, want until the team's next window", d)
		}
		began := time.Now()
		mustGrant(t, g, under(gatehouse.OpAcquire, 3)) // waits for it
		if waited := time.Since(began); waited <= 0 || waited > time.Minute {
			t.Errorf("it waited %s, want until the next window", waited)
		}
		if got := strings.Join(names(), " "); got != "granted7 granted3 granted4" {
			t.Errorf("after 3 of the next window there are %s", got)
		}
	})
}

// TestBadParents: what makes no sense is refused, as it is for one name.
func TestBadParents(t *testing.T) {
	g := newGate()
	bad := func(cmd gatehouse.GrantCommand, want string) {
		t.Helper()
		_, err := g.DoGrant(t.Context(), cmd)
		if gatehouse.CodeOf(err) != gatehouse.CodeInvalid || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v = %v, want invalid with %q", cmd, err, want)
		}
	}
	bad(under(gatehouse.OpAcquire, 7), "fixedwindow/team: cost 7 can never fit a size of 6")
	bad(under(gatehouse.OpDelay, 0), "Cost is 0")
	bad(under(gatehouse.OpReserve, 1), "no operation reserve")
	user := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: limiterOf("user", 10).Rule, Cost: 1}
	bad(user.WithParents(limiterOf("user", 10).Key, limiterOf("user", 6)), "twice")
	look := wants("", "a")
	look.Op, look.Expires = gatehouse.OpPeek, 0
	bad(look, "no limiter")
	look.ID = "x"
	bad(look, "Want is of 1 names, want none")
}

// TestPeekBehindWhoWaits: a question is answered as an acquire would be, which may not overtake.
func TestPeekBehindWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, under(gatehouse.OpAcquire, 4))
		submitGrant(g, under(gatehouse.OpAcquire, 6), l.done("waits"))
		team := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: limiterOf("team", 6).Rule, Cost: 6,
			MaxWait: time.Minute}
		submit(g, limiterOf("team", 6).Key, team, l.done("team"))
		synctest.Wait()
		d, err := g.DoGrant(t.Context(), under(gatehouse.OpPeek, 1))
		if err != nil || d.Outcome != gatehouse.Refused {
			t.Errorf("a peek = %+v, %v, want a refusal, since others wait", d, err)
		}
		g.Close()
		synctest.Wait()
	})
}

// TestFollowGrant: a grant that waits is told its place in each of its lines.
func TestFollowGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		mustGrant(t, g, wants("first", "a", "b"))
		submit(g, semaphore("b"), acquire("x"), l.done("x"))
		r := newGrantRequest(wants("second", "a", "b"), l.done("second"))
		g.SubmitGrant(r)
		var places []string
		began := time.Now()
		stop := g.FollowGrant(r, func(key gatehouse.Key, w gatehouse.WaiterEntry) {
			places = append(places, fmt.Sprintf("%s %d at %s", key.Name, w.Position, time.Since(began)))
		})
		time.Sleep(1500 * time.Millisecond)
		mustGrant(t, g, ends("first"))
		time.Sleep(2 * time.Second)
		stop()
		synctest.Wait()
		slices.Sort(places)
		want := "a 1 at 0s, b 1 at 2s, b 1 at 3s, b 2 at 0s" // at 3s it is known how long holds last
		if got := strings.Join(places, ", "); got != want {
			t.Errorf("it was told %q, want %q", got, want)
		}
		must(t, g, semaphore("b"), release("x"))
		l.wantOrder(t, "x", "second")
		mustGrant(t, g, ends("second"))
		wantIdle(t, g, "a", "b")
	})
}

// TestExplainedGrant: a refusal says who holds the semaphore that refuses, and how many wait before.
func TestExplainedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, start := newGate(), newLog(), time.Now()
		must(t, g, semaphore("a"), owned("first", "train-a"))
		time.Sleep(90 * time.Second)
		cmd := wants("late", "a", "b")
		cmd.Explain = true
		for _, before := range []string{"", "; 1 waiting before you", "; 2 waiting before you"} {
			cmd.MaxWait = 10 * time.Second
			d, err := g.DoGrant(t.Context(), cmd)
			held := map[time.Duration]string{100 * time.Second: "100 s", 110 * time.Second: "110 s",
				120 * time.Second: "2 m"}[time.Since(start)]
			want := "is full: 1 of 1 held, train-a for " + held + before
			if err != nil || d.Want[0].Message != want || d.Want[1].Message != "" {
				t.Errorf("the refusal says %+v, %v, want %q", d.Want, err, want)
			}
			submit(g, semaphore("a"), acquire(before+"x"), l.done(before))
		}
		g.Close()
		synctest.Wait()
	})
}
