package fallback_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/gatehousehq/gatehouse/store/storetest"
	"pgregory.net/rapid"
)

// away makes a store that answers by one rule, in front of one that is away.
func away(answer fallback.Answer, servers int) *fallback.Store {
	r, s := open(answer, servers)
	r.Down.Store(true)
	return s
}

// hold is an acquire of what is held.
func hold(rule gatehouse.Rule) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 1, Holder: "k"}
}

// What is held is never granted without the store, whatever the rule.
func TestHoldsAreAlwaysRefused(t *testing.T) {
	for _, answer := range []fallback.Answer{fallback.Refuse, fallback.Allow, fallback.LocalShare} {
		synctest.Test(t, func(t *testing.T) {
			s := away(answer, 1)
			for kind, cmd := range map[gatehouse.Kind]gatehouse.Command{
				gatehouse.Semaphore: hold(gatehouse.Rule{Size: 5}),
				gatehouse.Lock:      hold(gatehouse.Rule{}),
				gatehouse.Event:     {Op: gatehouse.OpSend},
				gatehouse.Watchdog:  {Op: gatehouse.OpKick, Expires: time.Minute},
				gatehouse.Counter:   {Op: gatehouse.OpValue},
				gatehouse.Barrier:   {Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 1}},
			} {
				d, _, err := ask(s, gatehouse.Key{Kind: kind, Name: "a"}, cmd)
				if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Errorf("%s by the rule %s = %+v, %v, want unavailable", kind, answer, d, err)
				}
			}
		})
	}
}

var limiters = []gatehouse.Kind{
	gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.FixedWindow, gatehouse.SlidingWindow,
	gatehouse.SlidingLog, gatehouse.Pace,
}

// asking are the operations that can be answered without the store.
var asking = []gatehouse.Op{
	gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve,
}

func TestAllow(t *testing.T) {
	for _, kind := range limiters {
		synctest.Test(t, func(t *testing.T) {
			s := away(fallback.Allow, 3)
			key := gatehouse.Key{Kind: kind, Name: "a"}
			for i := range 20 * len(asking) {
				cmd := acquire(2, 1)
				cmd.Op, cmd.Burst = asking[i%len(asking)], 2
				d, took, err := askTurn(s, key, control.Turn{Command: &cmd, Ahead: 7, Again: true})
				if err != nil || d.Outcome != gatehouse.Granted || d.Delay != 0 || took != 0 {
					t.Fatalf("%s %s = %+v, %v after %s, want granted at once", kind, cmd.Op, d, err, took)
				}
				if !strings.Contains(d.Message, "without the store") || d.Limit == 0 {
					t.Errorf("%s %s says %q and a limit of %d, want that the store is away, and the limit",
						kind, cmd.Op, d.Message, d.Limit)
				}
			}
			if d, _, err := ask(s, key, acquire(0, 1)); err != nil || d.Outcome != gatehouse.Refused {
				t.Errorf("%s of size 0, which stops it = %+v, %v, want refused", kind, d, err)
			}
		})
	}
}

// What changes something, or tells about it, cannot be done by any rule.
func TestWhatNeedsTheStore(t *testing.T) {
	for _, answer := range []fallback.Answer{fallback.Allow, fallback.LocalShare} {
		synctest.Test(t, func(t *testing.T) {
			s := away(answer, 1)
			for _, op := range []gatehouse.Op{
				gatehouse.OpCancel, gatehouse.OpRefund, gatehouse.OpReset, gatehouse.OpStats,
				gatehouse.OpDelete, gatehouse.OpPeek, gatehouse.OpCharge,
			} {
				cmd := gatehouse.Command{
					Op: op, Cost: 1, Holder: "k", Rule: gatehouse.Rule{Size: gatehouse.InForce},
				}
				d, _, err := ask(s, bucket("a"), cmd)
				if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Errorf("%s by the rule %s = %+v, %v, want unavailable", op, answer, d, err)
				}
			}
		})
	}
}

// What cannot be answered takes nothing from those who can be.
func TestMixedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := away(fallback.Allow, 1)
		one, stats := acquire(5, 1), gatehouse.Command{Op: gatehouse.OpStats}
		turns := []control.Turn{{Command: &one}, {Command: &stats}}
		err := (&control.Change{Key: bucket("a"), Turns: turns}).ApplyTo(s)
		if err != nil || turns[0].Decision.Outcome != gatehouse.Granted ||
			turns[0].Err != nil || gatehouse.CodeOf(turns[1].Err) != gatehouse.CodeUnavailable {
			t.Errorf("acquire and stats = %+v, %v, want granted, and unavailable", turns, err)
		}
	})
}

// shares are limits, and how many of 100 requests pass at one of so many servers.
var shares = []struct {
	fact    string
	kind    gatehouse.Kind
	servers int
	rule    gatehouse.Rule
	cost    int64
	pass    int // -1 when the share is nothing
}{
	{"a third", gatehouse.TokenBucket, 3, gatehouse.Rule{Size: 10}, 1, 3},
	{"all of it", gatehouse.TokenBucket, 1, gatehouse.Rule{Size: 10}, 1, 10},
	{"one each", gatehouse.FixedWindow, 3, gatehouse.Rule{Size: 3}, 1, 1},
	{"less than one", gatehouse.FixedWindow, 3, gatehouse.Rule{Size: 2}, 1, -1},
	{"too much at once", gatehouse.SlidingLog, 3, gatehouse.Rule{Size: 10}, 4, -1},
	{"just so much at once", gatehouse.SlidingLog, 3, gatehouse.Rule{Size: 10}, 3, 1},
	{"a day", gatehouse.SlidingWindow, 2, gatehouse.Rule{Size: 10, Calendar: gatehouse.Day}, 1, 5},
	{"a burst", gatehouse.GCRA, 3, gatehouse.Rule{Size: 10, Burst: 11}, 1, 4},
	{"a burst of a low rate", gatehouse.GCRA, 3, gatehouse.Rule{Size: 1, Burst: 5}, 1, 2},
	{"no burst", gatehouse.GCRA, 2, gatehouse.Rule{Size: 10}, 1, -1},
	{"several", gatehouse.GCRA, 2, gatehouse.Rule{Limits: gatehouse.NewLimitList(
		gatehouse.Limit{Size: 10, Interval: time.Hour}, gatehouse.Limit{Size: 14, Interval: 24 * time.Hour},
	)}, 1, 5},
	{"several, one too small", gatehouse.FixedWindow, 4, gatehouse.Rule{Limits: gatehouse.NewLimitList(
		gatehouse.Limit{Size: 3, Interval: time.Hour}, gatehouse.Limit{Size: 90, Interval: 24 * time.Hour},
	)}, 1, -1},
	{"pace", gatehouse.Pace, 2, gatehouse.Rule{Size: 7, Mode: gatehouse.ModePaced}, 1, 3},
	{"stopped", gatehouse.TokenBucket, 3, gatehouse.Rule{Size: 0}, 1, 0},
}

func TestLocalShare(t *testing.T) {
	for _, c := range shares {
		synctest.Test(t, func(t *testing.T) {
			s := away(fallback.LocalShare, c.servers)
			key, pass := gatehouse.Key{Kind: c.kind, Name: "a"}, 0
			for range 100 {
				cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: c.rule, Cost: c.cost}
				if cmd.Calendar == gatehouse.NoCalendar && cmd.Limits.Len() == 0 {
					cmd.Interval = time.Hour
				}
				if err := cmd.Check(key); err != nil {
					t.Fatalf("%s: %v", c.fact, err)
				}
				d, _, err := ask(s, key, cmd)
				if (err != nil) != (c.pass < 0) {
					t.Fatalf("%s = %+v, %v, want an error %t", c.fact, d, err, c.pass < 0)
				}
				if d.Outcome == gatehouse.Granted {
					pass++
				}
			}
			if pass != max(c.pass, 0) {
				t.Errorf("%s: of 100 %d pass at one of %d servers, want %d", c.fact, pass, c.servers, c.pass)
			}
		})
	}
}

// Whatever the limit, the shares of all servers together let no more through than one store would.
func TestSharesAreNotMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		servers := rapid.IntRange(2, 5).Draw(r, "servers")
		key := gatehouse.Key{Kind: rapid.SampledFrom(limiters).Draw(r, "kind"), Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: rapid.Int64Range(1, 3).Draw(r, "cost"),
			Rule: gatehouse.Rule{
				Size:     rapid.Int64Range(0, 20).Draw(r, "size"),
				Interval: rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(r, "interval"),
				Burst:    rapid.Int64Range(0, 20).Draw(r, "burst"),
			},
		}
		if key.Kind == gatehouse.SlidingWindow {
			cmd.Mode = gatehouse.ModeStrict // without, it is an estimate, and small sizes make coarse ones
		}
		if cmd.Check(key) != nil {
			return
		}
		steps := rapid.SliceOfN(rapid.Int64Range(0, 3000), 1, 40).Draw(r, "steps in ms")
		together, alone := int64(0), int64(0)
		synctest.Test(t, func(*testing.T) {
			one := memory.New(memory.Config{})
			fleet := make([]*fallback.Store, servers)
			for i := range fleet {
				fleet[i] = away(fallback.LocalShare, servers)
			}
			for _, ms := range steps {
				time.Sleep(time.Duration(ms) * time.Millisecond)
				for _, s := range fleet {
					together += drain(s, key, cmd)
				}
				alone += drain(one, key, cmd)
			}
		})
		if together > alone {
			r.Fatalf("%d servers let %d through by their shares, one store %d", servers, together, alone)
		}
	})
}

// An applier is a store of any kind.
type applier interface {
	Apply(c *control.Change)
}

// drain takes all there is, at its cost and then one by one.
func drain(s applier, key gatehouse.Key, cmd gatehouse.Command) (taken int64) {
	for ; cmd.Cost > 0; cmd.Cost-- {
		for {
			one := cmd
			turns := []control.Turn{{Command: &one}}
			err := (&control.Change{Key: key, Turns: turns}).ApplyTo(s)
			if err != nil || turns[0].Decision.Outcome != gatehouse.Granted {
				break
			}
			taken += cmd.Cost
		}
	}
	return taken
}

// What was granted without the store is not given back to it.
func TestUndoOfWhatTheStoreHasNotGranted(t *testing.T) {
	for _, answer := range []fallback.Answer{fallback.Allow, fallback.LocalShare} {
		synctest.Test(t, func(t *testing.T) {
			k, s := open(answer, 1)
			if d, _, err := ask(s, bucket("a"), acquire(5, 5)); err != nil || d.Remaining != 0 {
				t.Fatal(d, err)
			}
			k.Down.Store(true)
			cmd := acquire(5, 4)
			granted, _, err := ask(s, bucket("a"), cmd)
			if err != nil || granted.Outcome != gatehouse.Granted {
				t.Fatal(granted, err)
			}
			k.Down.Store(false)
			time.Sleep(2 * time.Second)
			peek := acquire(5, 1)
			peek.Op = gatehouse.OpPeek
			undo := control.UndoOf(&control.Turn{Command: &cmd}, &granted)
			turns := []control.Turn{undo, {Command: &peek}}
			if err := (&control.Change{Key: bucket("a"), Turns: turns}).ApplyTo(s); err != nil {
				t.Fatal(err)
			}
			if d := turns[1].Decision; d.Outcome != gatehouse.Refused {
				t.Errorf("after the undo by the rule %s the store has %+v, want nothing", answer, d)
			}
			k.Down.Store(true)
			_, _, _ = ask(s, bucket("b"), acquire(5, 1))
			if d, _, _ := ask(s, bucket("a"), acquire(5, 5)); d.Outcome != gatehouse.Granted {
				t.Errorf("and this server has %+v, want all of it", d)
			}
		})
	}
}

// Commands are counted by the rule that answers them. What a server does by itself is not: undos, and looks
// at the statistics, holders and waiters of names, which go on all the time.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := make(map[fallback.Answer]int)
		r := storetest.NewFlakyStore()
		s := fallback.New(r, fallback.Config{
			Count: func(rule fallback.Answer, commands int) { counts[rule] += commands },
			Rule: func(key gatehouse.Key) fallback.Answer {
				if key.Name == "a" {
					return fallback.Allow
				}
				return fallback.Refuse
			},
		})
		_, _, _ = ask(s, bucket("a"), acquire(5, 1))
		if len(counts) != 0 {
			t.Errorf("with the store there %v were counted, want none", counts)
		}
		r.Down.Store(true)
		for range 3 {
			_, _, _ = ask(s, bucket("a"), acquire(5, 1))
			_, _, _ = ask(s, bucket("b"), acquire(5, 1))
		}
		_, _, _ = askTurn(s, bucket("a"), control.Turn{
			Command: &gatehouse.Command{Op: gatehouse.OpUndo}, Granted: &gatehouse.Decision{},
		})
		for _, op := range []gatehouse.Op{gatehouse.OpStats, gatehouse.OpHolders, gatehouse.OpWaiters} {
			for _, name := range []string{"a", "b"} {
				_, _, err := ask(s, bucket(name), gatehouse.Command{Op: op})
				if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
					t.Errorf("%s of %s with the store away = %v, want unavailable", op, name, err)
				}
			}
		}
		want := map[fallback.Answer]int{fallback.Refuse: 3, fallback.Allow: 3, fallback.LocalShare: 0}
		for rule, n := range want {
			if counts[rule] != n {
				t.Errorf("counted by the rule %s were %d, want %d", rule, counts[rule], n)
			}
		}
	})
}

// A command that waits while the store is away is counted once, when it gets its response, whether it is
// granted by then or its time is up.
func TestCountOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted atomic.Int64
		r := storetest.NewFlakyStore()
		s := fallback.New(r, fallback.Config{
			Servers: 3, Rule: func(gatehouse.Key) fallback.Answer { return fallback.LocalShare },
			Count: func(_ fallback.Answer, commands int) { counted.Add(int64(commands)) },
		})
		g := gate.New(s, gate.Config{})
		w := fill(t, g)
		time.Sleep(10 * time.Second)
		r.Down.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if counted.Load() != 2 || w.granted.Load() != 2 || g.Waiting() != 2 {
			t.Errorf("while %d of 4 are granted and %d wait, %d are counted, want the granted alone",
				w.granted.Load(), g.Waiting(), counted.Load())
		}
		w.all.Wait()
		if counted.Load() != 4 || w.refused.Load() != 2 {
			t.Errorf("with %d of 4 refused at the end of their time, %d are counted, want each once",
				w.refused.Load(), counted.Load())
		}
		g.Close()
	})
}

func TestAnswerNames(t *testing.T) {
	for _, a := range []fallback.Answer{fallback.Refuse, fallback.Allow, fallback.LocalShare} {
		if got, ok := fallback.ParseAnswer(a.String()); !ok || got != a {
			t.Errorf("ParseAnswer(%q) = %v, %t, want itself", a.String(), got, ok)
		}
	}
	if a, ok := fallback.ParseAnswer("open"); ok {
		t.Errorf("ParseAnswer(open) = %v, want none", a)
	}
}

// The limit in force is only known to the store. Allow grants without it; a share of it is counted by a
// server that was told the limit since the store went away.
func TestLimitInForce(t *testing.T) {
	inForce := func(op gatehouse.Op) gatehouse.Command {
		return gatehouse.Command{Op: op, Cost: 3, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
	}
	for _, op := range []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpReserve} {
		synctest.Test(t, func(t *testing.T) {
			s := away(fallback.Allow, 1)
			if d, _, err := ask(s, bucket("a"), inForce(op)); err != nil || d.Outcome != gatehouse.Granted {
				t.Errorf("%s by the rule allow = %+v, %v, want granted", op, d, err)
			}
			s = away(fallback.LocalShare, 2)
			d, _, err := ask(s, bucket("a"), inForce(op))
			if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Errorf("%s of a share = %+v, %v, want unavailable", op, d, err)
			}
			if _, _, err := ask(s, bucket("a"), acquire(12, 1)); err != nil {
				t.Fatal(err)
			}
			d, _, err = ask(s, bucket("a"), inForce(op))
			if err != nil || d.Outcome != gatehouse.Granted || d.Limit != 6 || d.Remaining != 2 {
				t.Errorf("%s of a share of 6 after one = %+v, %v, want 2 left", op, d, err)
			}
		})
	}
}
