package lazy_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key is a token bucket, and hourly asks for one of its ten tokens.
func key(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name} }

func hourly() gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10, Interval: time.Hour},
	}
}

// acquire takes one of a name's tokens, if there is one.
func acquire(t *testing.T, store gate.Store, name string) {
	t.Helper()
	cmd := hourly()
	change := control.Change{Key: key(name), Turns: []control.Turn{{Command: &cmd}}}
	if err := change.ApplyTo(store); err != nil {
		t.Error(err)
	}
}

// What a client that went away was granted comes back, whether the store was told of it or not.
func TestUndoComesBack(t *testing.T) {
	for _, wait := range []time.Duration{0, 2 * interval} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
			s := f.servers[0]
			f.must(s, key("a"), hourly())
			cmd := hourly()
			cmd.Cost, cmd.MaxWait = 9, time.Second
			r := &gate.Request{Key: key("a"), Command: cmd}
			s.gate.Submit(r)
			synctest.Wait()
			<-time.After(wait)
			s.gate.Cancel(r)
			synctest.Wait()
			if d := f.must(s, key("a"), cmd); d.Outcome != gatehouse.Granted {
				t.Errorf("after an undo = %s, want granted", d.Outcome)
			}
			f.close()
			if got := f.figure(key("a"), "available"); got != int64(0) {
				t.Errorf("available in the store = %v, want 0", got)
			}
			if got := f.figure(key("a"), "acquired"); got != int64(2) {
				t.Errorf("acquired = %v, want 2", got)
			}
		})
	}
}

// Who waits in line at one server is served in order, and the store is not told that anybody waits: so
// others, who cannot know when the line moves, are not kept back by it.
func TestALineIsServedFromMemoryInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 2)
		s := f.servers[0]
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10, Interval: time.Second},
		}
		for range 10 {
			f.must(s, key("a"), cmd)
		}
		var mu sync.Mutex
		var order []int
		cmd.MaxWait = gatehouse.Forever
		for i := range 30 {
			s.gate.Submit(&gate.Request{Key: key("a"), Command: cmd, Decided: func(r *gate.Request) {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, i); r.Err != nil || r.Decision.Outcome != gatehouse.Granted {
					t.Errorf("%d = %s, %v, want granted", i, r.Decision.Outcome, r.Err)
				}
			}})
			synctest.Wait()
		}
		before := s.swap.Stats()
		<-time.After(3*time.Second + interval)
		after := s.swap.Stats()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 30 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v, want all 30 in theirs", order)
		}
		if asked := after.Swaps + after.Reads - before.Swaps - before.Reads; asked > 31 {
			t.Errorf("the store was asked %d times in 3 s, want once an interval at most", asked)
		}
		cmd.MaxWait, cmd.Cost = 0, 1
		if d := f.must(f.servers[1], key("a"), cmd); d.Outcome != gatehouse.Granted && d.Remaining > 0 {
			t.Errorf("at the other server = %+v, want it not kept back", d)
		}
		f.close()
	})
}

// What is let through by the limit in force, which its callers do not name, is told as well.
func TestUseOfTheLimitInForceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 2)
		f.must(f.servers[0], key("a"), hourly())
		<-time.After(2 * interval)
		cmd := hourly()
		cmd.Rule = gatehouse.Rule{Size: gatehouse.InForce}
		for range 5 {
			f.must(f.servers[1], key("a"), cmd)
		}
		f.close()
		if got := f.figure(key("a"), "acquired"); got != int64(6) {
			t.Errorf("acquired = %v, want 6", got)
		}
	})
}

// Within one queue all are served in their order, also when only the store can serve one of them.
func TestAQueueOfManyKindsIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		for range 5 {
			f.must(f.servers[0], key("a"), hourly())
		}
		reset, stats := gatehouse.Command{Op: gatehouse.OpReset}, gatehouse.Command{Op: gatehouse.OpStats}
		five, ten := hourly(), hourly()
		five.Cost, ten.Cost = 5, 10
		queue := []control.Turn{
			{Command: &five}, {Command: &ten}, {Command: &reset}, {Command: &ten}, {Command: &stats},
		}
		if err := (&control.Change{Key: key("a"), Turns: queue}).ApplyTo(f.servers[0].lazy); err != nil {
			t.Fatal(err)
		}
		got := make([]gatehouse.Outcome, len(queue))
		for i := range queue {
			got[i] = queue[i].Decision.Outcome
		}
		want := []gatehouse.Outcome{
			gatehouse.Granted, gatehouse.Refused, gatehouse.Granted, gatehouse.Granted, gatehouse.Granted,
		}
		if !slices.Equal(got, want) {
			t.Errorf("outcomes are %v, want %v", got, want)
		}
		if d := f.must(f.servers[0], key("a"), hourly()); d.Outcome != gatehouse.Refused {
			t.Errorf("then = %s, want refused", d.Outcome)
		}
		f.close()
	})
}

// Many who come at once for a name that is not known share a few round trips.
func TestTheFirstToComeShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		var work sync.WaitGroup
		for range 500 {
			work.Go(func() { _, _ = f.do(f.servers[0], key("a"), hourly()) })
		}
		work.Wait()
		figures := f.servers[0].swap.Stats()
		// How many come while a round trip is under way is for the scheduler to say.
		if asked := figures.Swaps + figures.Reads; asked > 50 || f.total() != 10 {
			t.Errorf("%d of 500 were let through in %d round trips, want 10 in few", f.total(), asked)
		}
		f.close()
	})
}

// Names that nobody uses are forgotten, and what is above the limit of names is left to the store.
func TestNamesAreBoundedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		s := f.servers[0]
		store := lazy.New(s.swap, lazy.Config{
			Rule: func(gatehouse.Key) lazy.SyncRule { return lazy.SyncRule{Interval: interval} }, Names: 3,
		})
		for range 12 { // two at each of six names
			for i := range 6 {
				acquire(t, store, strconv.Itoa(i))
			}
		}
		if n := store.Len(); n != 3 {
			t.Errorf("%d names are kept, want 3", n)
		}
		<-time.After(3 * interval)
		if n := store.Len(); n != 0 {
			t.Errorf("%d names are kept after two idle intervals, want none", n)
		}
		for i := range 6 {
			if got := f.figure(key(strconv.Itoa(i)), "available"); got != int64(0) {
				t.Errorf("%d has %v left, want none", i, got)
			}
		}
		store.Close()
		f.close()
	})
}

// Names come and go while they are asked for from everywhere, and while the store is closed: nothing is
// counted twice or not at all.
func TestNothingIsLostWhileNamesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: time.Millisecond}, 1)
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1,
			Rule: gatehouse.Rule{Size: 1_000_000, Calendar: gatehouse.Month},
		}
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				for j := range 200 {
					f.must(f.servers[0], key("a"), cmd)
					<-time.After(time.Duration((i*j)%7) * time.Millisecond / 2)
				}
			})
		}
		work.Wait()
		f.close()
		if got := f.figure(key("a"), "acquired"); got != int64(4000) {
			t.Errorf("the store was told of %v, want 4000", got)
		}
	})
}

// What memory can answer is done before Apply returns, and nothing else is.
func TestWhatIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		s := f.servers[0]
		want := func(when string, key gatehouse.Key, cmd gatehouse.Command, atOnce bool) {
			t.Helper()
			var done atomic.Bool
			c := control.Change{Key: key, Turns: []control.Turn{{Command: &cmd}}, Done: func(err error) {
				done.Store(err == nil)
			}}
			s.lazy.Apply(&c)
			if got := done.Load(); got != atOnce {
				t.Errorf("%s it is answered at once: %t, want %t", when, got, atOnce)
			}
			<-time.After(interval / 4)
			synctest.Wait()
			if !done.Load() {
				t.Errorf("%s it is not answered", when)
			}
		}
		want("at first", key("a"), hourly(), false)
		want("once known", key("a"), hourly(), true)
		want("a reset", key("a"), gatehouse.Command{Op: gatehouse.OpReset}, false)
		want("after a reset", key("a"), hourly(), true)
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}
		want("a lock", lock, gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "a", Cost: 1}, false)
		f.close()
	})
}

// A round of 10,000 names, in real time at a real Redis, is a few hundred batches of requests at most, and
// whoever asks meanwhile is not kept waiting behind all of it.
func TestARoundIsFewRequestsToRedis(t *testing.T) {
	const names = 10_000
	server := redistest.Start(t)
	shared := openRedis(t, server)
	store := lazy.New(shared, lazy.Config{Rule: func(gatehouse.Key) lazy.SyncRule {
		return lazy.SyncRule{Interval: time.Hour}
	}})
	ask := func(i int) { acquire(t, store, strconv.Itoa(i)) }
	var work sync.WaitGroup
	for i := range 100 {
		work.Go(func() {
			for j := i; j < names; j += 100 {
				ask(j)
			}
		})
	}
	work.Wait()
	for i := range names {
		ask(i)
	}
	const reads = "return tonumber(redis.call('INFO','stats'):match('total_reads_processed:(%d+)'))"
	before := server.Int(t, "EVAL", reads, "0")
	began := time.Now()
	store.Close()
	took := time.Since(began)
	after := server.Int(t, "EVAL", reads, "0")
	t.Logf("a round of %d names took %s and Redis %d reads", names, took, after-before)
	if after-before > names/5 {
		t.Errorf("Redis read %d times, want few for %d names", after-before, names)
	}
}
