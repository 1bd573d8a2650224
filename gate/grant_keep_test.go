package gate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// single asks for one slot for a while.
func (l *log) single(g *gate.Gate, name, holder string, expires time.Duration) {
	cmd := acquire(holder)
	cmd.Expires = expires
	submit(g, semaphore(name), cmd, l.done(holder))
}

// untilLinesAreKept waits for the beginning of the next time in which lines are kept.
func untilLinesAreKept() {
	time.Sleep(gate.KeepPeriod - time.Duration(time.Now().UnixNano()%int64(gate.KeepPeriod)))
}

// A line is kept for a grant while all else it lacks comes free within a second, and not otherwise.
func TestLineIsKept(t *testing.T) {
	for _, c := range []struct {
		name  string
		other gatehouse.Command // has a, which the grant wants besides b
		after time.Duration     // when somebody gets b who comes behind the grant
	}{
		{"soon", held(800 * time.Millisecond), -1},
		{"later", held(3 * time.Second), 0},
		{"for ever", held(0), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				untilLinesAreKept()
				l := newLog()
				must(t, g, semaphore("a"), c.other)
				submitGrant(g, wants("grant", "a", "b"), l.done("grant"))
				l.single(g, "b", "behind", 0)
				synctest.Wait()
				if got := l.get("behind"); c.after == 0 && got.count == 0 || c.after < 0 && got.count > 0 {
					t.Errorf("behind: %+v", got)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if got := l.get("grant"); c.after < 0 && got.after != 800*time.Millisecond {
					t.Errorf("the grant: %+v, want it after 800 ms", got)
				}
				g.Close()
			})
		})
	}
}

func held(expires time.Duration) gatehouse.Command {
	cmd := acquire("other")
	cmd.Expires = expires
	return cmd
}

// A line is not kept for a name that is paused: its limit is 0.
func TestLineIsNotKeptForAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		untilLinesAreKept()
		l := newLog()
		cmd := wants("grant", "b")
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key: limiter("paused"), Rule: gatehouse.Rule{Size: 0, Interval: 100 * time.Millisecond}, Cost: 1,
		})
		submitGrant(g, cmd, l.done("grant"))
		l.single(g, "b", "behind", 0)
		l.wantOrder(t, "behind")
		g.Close()
		l.wantOrder(t, "behind", "grant")
	})
}

// However often what a grant lacks is about to come free, the line is kept for less than a second, and for
// half of the time.
func TestLineIsKeptForHalfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		must(t, g, semaphore("a"), held(900*time.Millisecond))
		submitGrant(g, wants("grant", "a", "b"), l.done("grant"))
		var kept []time.Duration // when b was free, and was kept from one who asked
		start := time.Now()
		for range 6000 {
			now := time.Since(start)
			if now%(300*time.Millisecond) == 0 {
				renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "other"}
				renew.Expires = 900 * time.Millisecond
				must(t, g, semaphore("a"), renew)
			}
			cmd := acquire("probe")
			cmd.MaxWait, cmd.Expires = 0, time.Minute
			d, err := g.Do(context.Background(), semaphore("b"), cmd)
			if time.Since(start) != now {
				t.Fatalf("a command that does not wait took %s", time.Since(start)-now)
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome == gatehouse.Granted {
				must(t, g, semaphore("b"), release("probe"))
			} else {
				kept = append(kept, now)
			}
			time.Sleep(10 * time.Millisecond)
		}
		longest, stretch := 0, 0
		most := 0
		for i := range kept {
			stretch++
			if i > 0 && kept[i]-kept[i-1] > 10*time.Millisecond {
				stretch = 1
			}
			longest = max(longest, stretch)
			n := 0
			for _, at := range kept[i:] {
				if at < kept[i]+10*time.Second {
					n++
				}
			}
			most = max(most, n)
		}
		if longest > 83 || most > 500 || most < 400 {
			t.Errorf("kept for %d ms at a stretch, and %d ms of 10 s, want at most 830 and 5000, and some",
				10*longest, 10*most)
		}
		if l.get("grant").count > 0 {
			t.Error("the grant was granted what another has")
		}
		g.Close()
	})
}

// Names that are wanted all the time, each for a short while that is known, do not starve a grant of all of
// them: nobody who comes behind it is let through for longer than it takes.
func TestGrantIsNotStarved(t *testing.T) {
	for _, expires := range []int{100, 300, 700} {
		synctest.Test(t, func(t *testing.T) {
			g, l := newGate(), newLog()
			names := []string{"a", "b", "c"}
			n := 0
			// Each name has several in line at any time, each for a while of its own.
			ask := func() {
				for i, name := range names {
					length := time.Duration(expires+37*i+n%5) * time.Millisecond
					for g.Waiting() < 8*(i+1) {
						n++
						l.single(g, name, fmt.Sprint(name, n), length)
					}
				}
			}
			ask()
			submitGrant(g, wants("grant", names...), l.done("grant"))
			for range 3000 {
				ask()
				time.Sleep(10 * time.Millisecond)
			}
			if got := l.get("grant"); got.count == 0 || got.after > 15*time.Second {
				t.Errorf("holds of %d ms: %+v, want it granted soon", expires, got)
			}
			g.Close()
		})
	}
}
