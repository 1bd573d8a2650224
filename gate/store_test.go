package gate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A slowStore is a memory store whose answers take time, as those of a shared store do, and which
// counts what it is asked.
type slowStore struct {
	*memory.Store
	there func(queue []control.Turn) time.Duration // until the store decides
	back  time.Duration                            // until its decisions are known
	turns atomic.Int64
}

func (s *slowStore) Apply(c *control.Change) {
	s.turns.Add(int64(len(c.Turns)))
	if s.there == nil && s.back == 0 {
		s.Store.Apply(c)
		return
	}
	go func() { // ends with its answer
		if s.there != nil {
			time.Sleep(s.there(c.Turns))
		}
		done, back := c.Done, s.back
		c.Done = func(err error) {
			if back > 0 {
				time.Sleep(back)
			}
			done(err)
		}
		s.Store.Apply(c)
	}()
}

func newSlow(there func([]control.Turn) time.Duration) (*slowStore, *gate.Gate) {
	s := &slowStore{Store: memory.New(memory.Config{}), there: there}
	return s, gate.New(s, gate.Config{Waiters: 100_000, Line: 100_000})
}

// Those whose time is up while the store is busy get their last look, but not the tokens of those in
// front of them.
func TestDueDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow(nil)
		l := newLog()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "bucket"}
		wait := acquire("")
		wait.Size = 2
		wait.Cost = 2
		must(t, g, key, wait)
		wait.Cost = 1
		for i := range 6 {
			if i == 4 {
				wait.MaxWait = 1005 * time.Millisecond
			}
			submit(g, key, wait, l.done(fmt.Sprint(i)))
		}
		// A look that begins before the boundary is answered after their time is up.
		time.Sleep(999 * time.Millisecond)
		s.back = 10 * time.Millisecond
		wait.MaxWait = 0
		go func() { _, _ = g.Do(t.Context(), key, wait) }()
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		for i, want := range []gatehouse.Outcome{1, 1, 0, 0, 0, 0} {
			if got := l.get(fmt.Sprint(i)); got.outcome != want {
				t.Errorf("waiter %d: %s after %s, want %s", i, got.outcome, got.after, want)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
}

// A delete tells those too who begin to wait while it is on its way.
func TestDeleteMeetsANewLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := newSlow(func(queue []control.Turn) time.Duration {
			if queue[0].Op == gatehouse.OpDelete {
				return time.Second
			}
			return 0
		})
		key, l := gatehouse.Key{Kind: gatehouse.Barrier, Name: "barrier"}, newLog()
		wait := gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}, MaxWait: gatehouse.Forever,
		}
		first := wait
		first.MaxWait = 100 * time.Millisecond
		submit(g, key, first, l.done("first"))
		time.Sleep(time.Second) // its line is gone, the barrier is not forgotten yet
		go func() { _, _ = g.Do(t.Context(), key, gatehouse.Command{Op: gatehouse.OpDelete}) }()
		time.Sleep(500 * time.Millisecond)
		go submit(g, key, wait, l.done("a"))
		go submit(g, key, wait, l.done("b"))
		time.Sleep(3 * time.Second)
		if a, b := l.get("a").outcome, l.get("b").outcome; a != b {
			t.Errorf("a %s, b %s, want the same of both", a, b)
		}
		if l.get("a").count == 0 { // they came after the delete: one more opens it for all
			wait.MaxWait = time.Second
			must(t, g, key, wait)
			synctest.Wait()
			if a, b := l.get("a").outcome, l.get("b").outcome; a != gatehouse.Granted || b != a {
				t.Errorf("a %s, b %s, want both granted", a, b)
			}
		}
	})
}

// Who finds a line idle serves the others too, but is not kept at it for ever by those who come.
func TestServingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := newSlow(func([]control.Turn) time.Duration { return 5 * time.Millisecond })
		key := semaphore("busy")
		must(t, g, key, acquire("holder"))
		longest := time.Duration(0)
		done := make(chan time.Duration, 20)
		for i := range 20 {
			go func() {
				most, patience := time.Duration(0), time.Duration(20+3*i)*time.Millisecond
				for range 200 {
					start := time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					_, _ = g.Do(ctx, key, acquire(fmt.Sprint(i)))
					cancel()
					most = max(most, time.Since(start))
				}
				done <- most
			}()
		}
		for range 20 {
			longest = max(longest, <-done)
		}
		if longest > 200*time.Millisecond {
			t.Errorf("a call with less than 80 ms took %s", longest)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What many waiters cost the store grows with their number and no faster.
func TestTurns(t *testing.T) {
	n := int64(sampled(5000))
	event := gatehouse.Key{Kind: gatehouse.Event, Name: "event"}
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	resize := acquire("resize")
	resize.Size, resize.MaxWait = 2*n, 0
	send := gatehouse.Command{Op: gatehouse.OpSend}
	own := func(i int) gatehouse.Command { return acquire(fmt.Sprint(i)) }
	for name, c := range map[string]struct {
		key     gatehouse.Key
		waiter  func(i int) gatehouse.Command
		release gatehouse.Command
	}{
		"event":   {event, func(int) gatehouse.Command { return wait }, send},
		"one key": {semaphore("s"), func(int) gatehouse.Command { return acquire("k") }, release("holder")},
		"resize":  {semaphore("s"), own, resize},
		"pairs":   {semaphore("s"), func(i int) gatehouse.Command { return own(i / 2) }, resize},
		"delete":  {semaphore("s"), own, gatehouse.Command{Op: gatehouse.OpDelete}},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := newSlow(nil)
			if c.key != event {
				must(t, g, c.key, acquire("holder"))
			}
			var told atomic.Int64
			for i := range n {
				r := gate.Request{Key: c.key, Command: c.waiter(int(i))}
				submit(g, r.Key, r.Command, func(gatehouse.Decision, error) { told.Add(1) })
			}
			before := s.turns.Load()
			if _, err := g.Do(t.Context(), c.key, c.release); err != nil {
				t.Fatal(err)
			}
			await.True(t, "all were told", func() bool { return told.Load() >= n })
			if got := s.turns.Load() - before; got > 4*n {
				t.Errorf("%d turns for %d waiters, want at most four each", got, n)
			}
			if got := before; got > 4*n {
				t.Errorf("%d turns for %d to get in line, want at most four each", got, n)
			}
		})
	}
}
