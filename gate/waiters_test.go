package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// owned is an acquire for somebody.
func owned(holder, owner string) gatehouse.Command {
	cmd := acquire(holder)
	cmd.Owner = &gatehouse.Owner{Name: owner}
	return cmd
}

// waitersOf lists who waits, and the list that follows.
func waitersOf(t *testing.T, g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command) (list, next string) {
	t.Helper()
	cmd.Op = gatehouse.OpWaiters
	r := must(t, g, key, cmd).Report
	var all []string
	for _, w := range r.Waiters {
		all = append(all, fmt.Sprintf("%d %s %s", w.Position, w.Owner.Name, w.WaitingFor))
	}
	return strings.Join(all, ", ") + fmt.Sprint(" of ", r.Total), r.Next
}

func TestWaitersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("told"), newLog()
		d, err := g.Do(t.Context(), key, gatehouse.Command{Op: gatehouse.OpWaiters})
		if err != nil || d.Outcome != gatehouse.Missing {
			t.Errorf("waiters at a name that is not used: %s, %v, want missing", d.Outcome, err)
		}
		must(t, g, key, acquire("first"))
		wait := func(want, wantNext string, cmd gatehouse.Command) {
			t.Helper()
			got, next := waitersOf(t, g, key, cmd)
			if got != want || (next != "") != (wantNext != "") {
				t.Errorf("waiters are %q, next %q, want %q", got, next, want)
			}
		}
		wait(" of 0", "", gatehouse.Command{})
		cancel := submit(g, key, owned("a", "A"), l.done("a"))
		time.Sleep(time.Second)
		submit(g, key, owned("b", "B"), l.done("b"))
		submit(g, key, acquire("c"), l.done("c"))
		time.Sleep(time.Second)
		wait("1 A 2s, 2 B 1s, 3  1s of 3", "", gatehouse.Command{})
		_, next := waitersOf(t, g, key, gatehouse.Command{Amount: 1})
		ticket, ok := gatehouse.ParseWaiterID(next)
		if !ok {
			t.Fatalf("next is %q, want an id", next)
		}
		wait("2 B 1s of 3", "more", gatehouse.Command{Amount: 1, Fence: ticket})
		cancel()
		wait("1 B 1s, 2  1s of 2", "", gatehouse.Command{Fence: ticket}) // that one is gone
		must(t, g, key, release("first"))
		must(t, g, key, release("b"))
		l.wantOrder(t, "b", "c")
	})
}

// bumped bumps the waiter in a place.
func bumped(t *testing.T, g *gate.Gate, key gatehouse.Key, position int) {
	t.Helper()
	r := must(t, g, key, gatehouse.Command{Op: gatehouse.OpWaiters}).Report
	ticket, _ := gatehouse.ParseWaiterID(r.Waiters[position-1].ID)
	must(t, g, key, gatehouse.Command{Op: gatehouse.OpBump, Fence: ticket})
}

func TestBump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.TokenBucket} {
			g, key, l := newGate(), gatehouse.Key{Kind: kind, Name: "bump"}, newLog()
			must(t, g, key, acquire("first"))
			bump := gatehouse.Command{Op: gatehouse.OpBump, Fence: 77}
			for range 2 { // without a line, and with one
				d, err := g.Do(t.Context(), key, bump)
				if err != nil || d.Outcome != gatehouse.Conflict {
					t.Errorf("a bump of nobody: %s, %v, want a conflict", d.Outcome, err)
				}
				time.Sleep(time.Millisecond)
				submit(g, key, owned("a", "A"), l.done("a"))
			}
			for _, name := range []string{"b", "c", "d"} {
				submit(g, key, owned(name, strings.ToUpper(name)), l.done(name))
				time.Sleep(time.Millisecond)
			}
			bumped(t, g, key, 5)
			bumped(t, g, key, 1) // who is in front stays there
			list, _ := waitersOf(t, g, key, gatehouse.Command{})
			if want := "1 D 1ms, 2 A "; !strings.HasPrefix(list, want) {
				t.Errorf("%s: waiters are %q, want %q first", kind, list, want)
			}
			if kind == gatehouse.Semaphore {
				for _, holder := range []string{"first", "d", "a", "b", "c"} {
					must(t, g, key, release(holder))
				}
			}
			time.Sleep(time.Minute)
			l.wantOrder(t, "d", "a", "a", "b", "c")
		}
	})
}

// TestExplainedRefusal: a refusal says who holds, and how many wait before.
func TestExplainedRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("explain"), newLog()
		must(t, g, key, owned("first", "train-a"))
		time.Sleep(90 * time.Second)
		for i := range 3 {
			submit(g, key, acquire(fmt.Sprint(i)), l.done(fmt.Sprint(i)))
		}
		cmd := acquire("late")
		cmd.Explain = true
		for _, wait := range []time.Duration{0, 10 * time.Second} {
			cmd.MaxWait = wait
			d, err := g.Do(t.Context(), key, cmd)
			want := fmt.Sprintf("is full: 1 of 1 held, train-a for %s s; 3 waiting before you",
				map[time.Duration]string{0: "90", 10 * time.Second: "100"}[wait])
			if err != nil || d.Message != want {
				t.Errorf("the refusal says %q, %v, want %q", d.Message, err, want)
			}
		}
		g.Close()
		synctest.Wait()
	})
}

// TestCloseHoldsTheLine: who waits at a closed name goes on waiting, and is granted when it is opened.
func TestCloseHoldsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.Lock, gatehouse.TokenBucket} {
			g, key, l := newGate(), gatehouse.Key{Kind: kind, Name: "closed"}, newLog()
			must(t, g, key, gatehouse.Command{Op: gatehouse.OpClose, Message: "maintenance"})
			submit(g, key, acquire("a"), l.done("a"))
			limited := acquire("b")
			limited.MaxWait = time.Second
			d, err := g.Do(t.Context(), key, limited)
			says := strings.Contains(d.Message, "is closed: maintenance")
			if err != nil || d.Outcome != gatehouse.Refused || !says {
				t.Errorf("%s: %s %q, %v, want it refused as closed", kind, d.Outcome, d.Message, err)
			}
			time.Sleep(time.Hour)
			l.wantOrder(t)
			must(t, g, key, gatehouse.Command{Op: gatehouse.OpOpen})
			l.wantOrder(t, "a")
		}
	})
}

func TestCycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		cycles := func(want string) {
			t.Helper()
			synctest.Wait()
			all, err := g.Cycles(t.Context())
			got := ""
			for _, c := range all {
				for _, link := range c.Links {
					got += link.Owner.Name + " waits at " + link.Key.Name + ", "
				}
				got += fmt.Sprintf("stuck %t; ", c.Stuck)
			}
			if err != nil || got != want {
				t.Errorf("cycles are %q, %v, want %q", got, err, want)
			}
		}
		must(t, g, semaphore("1"), owned("a1", "A"))
		must(t, g, semaphore("2"), owned("b2", "B"))
		must(t, g, semaphore("3"), owned("c3", "C"))
		submit(g, semaphore("2"), owned("a2", "A"), l.done(""))
		cycles("")
		submit(g, semaphore("3"), owned("b3", "B"), l.done(""))
		submit(g, semaphore("2"), owned("d2", "D"), l.done("")) // waits for them, and nobody for it
		cycles("")
		cancel := submit(g, semaphore("1"), owned("c1", "C"), l.done(""))
		cycles("C waits at 1, A waits at 2, B waits at 3, stuck true; ")
		cancel()
		cycles("")
		// One who holds besides them, and does not wait, may let them go on.
		for _, holder := range []string{"Q", "X"} {
			two := owned(holder, holder)
			two.Size = 2
			must(t, g, semaphore("q"), two)
		}
		must(t, g, semaphore("p"), owned("p", "P"))
		waits := owned("p2", "P")
		waits.Size = gatehouse.InForce
		submit(g, semaphore("q"), waits, l.done(""))
		submit(g, semaphore("p"), owned("q2", "Q"), l.done(""))
		cycles("Q waits at p, P waits at q, stuck false; ")
		g.Close()
		synctest.Wait()
	})
}

// TestManyWaiters: those who wait and those who hold are looked at once each, and not in pairs.
func TestManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		const holders, waiters = 900, 9000
		for i := range holders {
			c := owned(fmt.Sprint("holder", i), fmt.Sprint("H", i))
			c.Size = holders
			must(t, g, semaphore("many"), c)
			waiter := fmt.Sprint("W", i%10)
			must(t, g, semaphore(fmt.Sprint("own", i%10)), owned(waiter, waiter))
		}
		for i := range waiters {
			c := owned(fmt.Sprint("waiter", i), fmt.Sprint("W", i))
			c.Size = holders
			submit(g, semaphore("many"), c, l.done(""))
		}
		submit(g, semaphore("own7"), owned("H3", "H3"), l.done(""))
		synctest.Wait()
		all, err := g.Cycles(t.Context())
		if err != nil || len(all) != 1 || len(all[0].Links) != 2 {
			t.Errorf("%d cycles, %v, want one of two owners", len(all), err)
		}
		g.Close()
		synctest.Wait()
	})
}

func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		for _, name := range []string{"a", "b", "b/1", "b/2", "c"} {
			must(t, g, semaphore(name), acquire("first"))
			submit(g, semaphore(name), acquire("second"), l.done(""))
		}
		for prefix, want := range map[string]int{"": 5, "b": 3, "b/": 2, "b/2": 1, "d": 0, "a/": 0} {
			all, err := g.Describe(t.Context(), gate.Prefix{Kind: gatehouse.Semaphore, Prefix: prefix}, 10)
			if err != nil || len(all) != want {
				t.Errorf("with %q there are %d, %v, want %d", prefix, len(all), err, want)
			}
			for _, d := range all {
				if d.Limit != 1 || d.Used != 1 || d.Holders != 1 || d.Waiting != 1 || d.Granted != 1 {
					t.Errorf("%s: %+v", d.Name, d)
				}
			}
		}
		bucket := acquire("")
		bucket.Size, bucket.Cost = 10, 3
		must(t, g, gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "t"}, bucket)
		all, err := g.Describe(t.Context(), gate.Prefix{Kind: gatehouse.TokenBucket}, 10)
		if err != nil || len(all) != 1 || all[0].Limit != 10 || all[0].Used != 3 {
			t.Errorf("a bucket is %+v, %v, want 3 of 10", all, err)
		}
		g.Close()
		synctest.Wait()
	})
}

// TestFollow: who follows a request is told its place soon, when it changes, and now and then.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("follow"), newLog()
		must(t, g, key, acquire("first"))
		submit(g, key, acquire("a"), l.done("a"))
		r := newRequest(key, acquire("b"), l.done("b"))
		g.Submit(r)
		var places []string
		began := time.Now()
		stop := g.Follow(r, func(w gatehouse.WaiterEntry) {
			places = append(places, fmt.Sprintf("%d at %s", w.Position, time.Since(began)))
		})
		time.Sleep(19500 * time.Millisecond)
		must(t, g, key, release("first"))
		time.Sleep(2 * time.Second)
		stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := strings.Join(places, ", "), "2 at 0s, 2 at 15s, 1 at 20s"; got != want {
			t.Errorf("it was told %q, want %q", got, want)
		}
		g.Close()
		synctest.Wait()
	})
}
