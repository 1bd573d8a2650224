package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// One that is bumped from the middle goes to the front, and all others keep their order: requests and grants
// in one line, as they are listed, served, and told how many wait before them.
func TestBumpFromTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("a"), newLog()
		must(t, g, key, acquire("first"))
		for _, name := range []string{"r1", "g2", "r3", "g4", "r5", "r6"} {
			if name[0] == 'g' {
				submitGrant(g, ownedGrant(name, name, "a", "b"), l.done(name))
			} else {
				submit(g, key, owned(name, name), l.done(name))
			}
			time.Sleep(time.Second)
		}
		listed := func(want string) {
			t.Helper()
			list, _ := waitersOf(t, g, key, gatehouse.Command{})
			var names []string
			for one := range strings.SplitSeq(list, ", ") {
				names = append(names, strings.Fields(one)[1])
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("waiters are %s, want %s", got, want)
			}
		}
		bumped(t, g, key, 3)
		listed("r3 r1 g2 g4 r5 r6")
		bumped(t, g, key, 5)
		listed("r5 r3 r1 g2 g4 r6")
		// Those that give up are told how many stood before them.
		late := owned("late", "late")
		late.Explain, late.MaxWait = true, time.Second
		d, err := g.Do(t.Context(), key, late)
		if err != nil || !strings.HasSuffix(d.Message, "; 6 waiting before you") {
			t.Errorf("behind six: %q, %v", d.Message, err)
		}
		lateGrant := ownedGrant("late", "late", "a", "b")
		lateGrant.Explain, lateGrant.MaxWait = true, time.Second
		one, err := g.DoGrant(t.Context(), lateGrant)
		if err != nil || !strings.HasSuffix(one.Want[0].Message, "; 6 waiting before you") {
			t.Errorf("a grant behind six: %q, %v", one.Want[0].Message, err)
		}
		order := []string{"r5", "r3", "r1", "g2", "g4", "r6"}
		must(t, g, key, release("first"))
		for i, name := range order {
			l.wantOrder(t, order[:i+1]...)
			if name[0] == 'g' {
				mustGrant(t, g, ends(name))
			} else {
				must(t, g, key, release(name))
			}
		}
		wantIdle(t, g, "a", "b")
	})
}

// A list of names leaves out holds that have ended since the name was used last, and drops nothing.
func TestDescribeWithEndedHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key := newGate(), semaphore("a")
		for i, cost := range []int64{1, 2, 3} {
			cmd := acquire(fmt.Sprint(i))
			cmd.Size, cmd.Cost, cmd.Expires = 10, cost, time.Duration(i+1)*time.Minute
			if i == 1 {
				cmd.Expires = 0 // it has no end
			}
			must(t, g, key, cmd)
		}
		for after, want := range []struct {
			used    int64
			holders int
		}{{6, 3}, {5, 2}, {5, 2}, {2, 1}} {
			all, err := g.Describe(t.Context(), gate.Prefix{Kind: gatehouse.Semaphore}, 10)
			if err != nil || len(all) != 1 || all[0].Used != want.used || all[0].Holders != want.holders {
				t.Errorf("after %d minutes: %+v, %v, want %+v", after, all, err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Grants count among all that wait at the server.
func TestGrantsAmongAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := gate.New(memory.New(memory.Config{}), gate.Config{Waiters: 2, Line: 2}), newLog()
		must(t, g, semaphore("a"), acquire("first"))
		must(t, g, semaphore("b"), acquire("first"))
		submit(g, semaphore("a"), acquire("x"), l.done("x"))
		submit(g, semaphore("a"), acquire("y"), l.done("y"))
		_, err := g.DoGrant(t.Context(), wants("op", "b"))
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted || !strings.Contains(err.Error(), "2 requests") {
			t.Errorf("a grant beside as many as may wait: %v", err)
		}
		must(t, g, semaphore("a"), release("first"))
		l.wantOrder(t, "x")
		submitGrant(g, wants("op", "b"), l.done("op"))
		must(t, g, semaphore("b"), release("first"))
		l.wantOrder(t, "x", "op")
		g.Close()
		synctest.Wait()
	})
}
