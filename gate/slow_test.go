package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// Neither what submits nor what cancels waits for the store, wherever the command is just then: on its way
// there, on its way back, in line, granted. Whenever it is cancelled, nothing is left of it.
func TestCancelAtEveryInstant(t *testing.T) {
	const step = 10 * time.Millisecond
	never := acquire("a")
	never.MaxWait = 0
	short := acquire("a")
	short.MaxWait = 3 * step
	reserve := gatehouse.Command{
		Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1, Holder: "a",
	}
	bucket := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "instant"}
	for name, c := range map[string]struct {
		key     gatehouse.Key
		cmd     gatehouse.Command
		contend bool // somebody holds it until the store has been asked twice
	}{
		"free":            {semaphore("instant"), acquire("a"), false},
		"held":            {semaphore("instant"), acquire("a"), true},
		"not to wait":     {semaphore("instant"), never, false},
		"held, short":     {semaphore("instant"), short, true},
		"bucket":          {bucket, acquire(""), false},
		"bucket, reserve": {bucket, reserve, false},
	} {
		for at := time.Duration(0); at < 16*step; at += step / 2 {
			t.Run(fmt.Sprint(name, " ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, g := newFar(step, step)
					l := newLog()
					if c.contend {
						must(t, g, c.key, acquire("holder"))
						time.AfterFunc(6*step, func() { must(t, g, c.key, release("holder")) })
					}
					done := l.done("a")
					r := &gate.Request{Key: c.key, Command: c.cmd, Decided: func(r *gate.Request) {
						done(*r.Decision, r.Err)
					}}
					quickly(t, "Submit", func() { g.Submit(r) })
					time.Sleep(at)
					synctest.Wait()
					quickly(t, "Cancel", func() { g.Cancel(r) })
					quickly(t, "Cancel", func() { g.Cancel(r) }) // does nothing
					if at == 0 && l.get("a").count > 0 {
						t.Error("it was answered at once, want it to take its time")
					}
					time.Sleep(20 * step)
					if got := l.get("a"); got.count != 1 {
						t.Errorf("it was answered %d times, want once", got.count)
					}
					next := acquire("next")
					next.MaxWait = 0
					must(t, g, c.key, next)
					if c.key.Kind == gatehouse.Semaphore {
						must(t, g, c.key, release("next"))
					}
					s.left(t, g, c.key)
				})
			})
		}
	}
}

// A call whose context ends while the store works returns then, and what it is granted is taken back.
func TestDoEndsWhileTheStoreWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newFar(50*time.Millisecond, 50*time.Millisecond)
		key := semaphore("patience")
		for patience := time.Millisecond; patience < 100*time.Millisecond; patience += 7 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			start := time.Now()
			_, err := g.Do(ctx, key, acquire(patience.String()))
			cancel()
			if took := time.Since(start); took != patience {
				t.Errorf("Do took %s, want %s", took, patience)
			}
			if gatehouse.CodeOf(err) != gatehouse.CodeTimeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Do = %v, want a timeout", err)
			}
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := g.Do(context.Background(), key, acquire("patient")); err != nil { // of no end
			t.Error(err)
		}
		must(t, g, key, release("patient"))
		s.left(t, g, key)
	})
}

// Commands that need not wait are under way together, the line of those who wait does one thing at a time.
func TestCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 16
		s, g := newFar(5*time.Millisecond, 5*time.Millisecond)
		key, l := semaphore("together"), newLog()
		hold := acquire("")
		hold.Size, hold.MaxWait = callers, 0
		for i := range callers {
			hold.Holder = fmt.Sprint(i)
			submit(g, key, hold, l.done(hold.Holder))
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		for i := range callers {
			if got := l.get(fmt.Sprint(i)); got.outcome != gatehouse.Granted {
				t.Errorf("caller %d: %s, %v after one round trip, want granted", i, got.outcome, got.err)
			}
		}
		if s.most != callers {
			t.Errorf("%d calls were under way together, want %d", s.most, callers)
		}
		for i := range 4 * callers {
			wait := acquire(fmt.Sprint("waiter", i))
			wait.Size = callers
			submit(g, key, wait, l.done(wait.Holder))
			time.Sleep(time.Millisecond)
		}
		if _, err := together(g, key, release("0"), release("1")); err != nil {
			t.Error(err)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if s.crowded != 1 {
			t.Errorf("%d calls for one line were under way together, want 1", s.crowded)
		}
		for _, name := range []string{"waiter0", "waiter1"} {
			if got := l.get(name); got.outcome != gatehouse.Granted || got.count != 1 {
				t.Errorf("%s: %s, want granted", name, got.outcome)
			}
		}
		g.Close()
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// However many lines there are, the gate closes in the time of one.
func TestCloseTakesOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines, trip = 300, 500 * time.Millisecond
		s, g := newFar(0, 0)
		l := newLog()
		for i := range lines {
			key := semaphore(fmt.Sprint(i))
			must(t, g, key, acquire("holder"))
			submit(g, key, acquire("waiter"), l.done(fmt.Sprint(i)))
		}
		synctest.Wait()
		s.back = after(trip)
		submit(g, semaphore("0"), acquire("late"), l.done("late"))
		submit(g, semaphore("fresh"), acquire("fresh"), l.done("fresh"))
		start := time.Now()
		quickly(t, "Close", g.Close)
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 4*trip { // three looks, and some
			t.Errorf("closing took %s, want at most %s", took, 4*trip)
		}
		for i := range lines {
			got := l.get(fmt.Sprint(i))
			if gatehouse.CodeOf(got.err) != gatehouse.CodeUnavailable || got.count != 1 {
				t.Errorf("waiter %d: %s, %v, want unavailable", i, got.outcome, got.err)
			}
		}
		if got := l.get("late"); gatehouse.CodeOf(got.err) != gatehouse.CodeUnavailable {
			t.Errorf("late: %s, %v, want unavailable", got.outcome, got.err)
		}
		if got := l.get("fresh"); got.err != nil || got.outcome != gatehouse.Granted {
			t.Errorf("fresh: %s, %v, want granted, for it need not wait", got.outcome, got.err)
		}
		if s.watches != 0 {
			t.Errorf("%d watches are left, want none", s.watches)
		}
		_, err := g.Do(t.Context(), semaphore("0"), acquire("afterwards"))
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("afterwards: %v, want unavailable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), trip/2)
		defer cancel()
		submit(g, semaphore("hurried"), acquire("hurried"), l.done("hurried"))
		if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v while the store works, want its context's end", err)
		}
		time.Sleep(trip)
	})
}

// A store that has nothing in hand is no failure, although the listeners before it took all of the time.
func TestDrainOfIdleStoreWithoutTime(t *testing.T) {
	g := newGate()
	g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // of two that are ready select takes either
		if err := g.Drain(ctx); err != nil {
			t.Fatalf("Drain of an idle store = %v, want nil", err)
		}
	}
}

func TestFirstTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for first, want := range map[control.Ticket][]control.Ticket{
			0: {1, 2, 3}, 1: {1, 2, 3}, 7 << 32: {7 << 32, 7<<32 + 1, 7<<32 + 2},
		} {
			s := &farStore{Store: memory.New(memory.Config{}), there: after(0), back: after(0)}
			g, l := gate.New(s, gate.Config{FirstTicket: first}), newLog()
			must(t, g, semaphore("s"), acquire("holder"))
			for _, name := range []string{"a", "b"} {
				submit(g, semaphore("s"), acquire(name), l.done(name))
				synctest.Wait()
			}
			g.Close()
			synctest.Wait()
			if !slices.Equal(s.tickets, want) {
				t.Errorf("from %d the tickets are %d, want %d", first, s.tickets, want)
			}
		}
	})
}

// A store whose clock and the timers do not agree, or that says at once, is not asked without a pause.
func TestRefusedForNoTime(t *testing.T) {
	for _, name := range []string{"far", "near"} {
		for _, retry := range []time.Duration{0, 1, -2, -time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				s, g := newFar(0, 0)
				l := newLog()
				must(t, g, semaphore(name), acquire("holder"))
				s.answers = func(queue []control.Turn) {
					for i := range queue {
						if queue[i].Decision.Outcome == gatehouse.Refused {
							queue[i].Decision.RetryAfter = retry
						}
					}
				}
				if retry == 1 && name == "near" {
					return // the clocks are one
				}
				submit(g, semaphore(name), acquire("waiter"), l.done("waiter"))
				time.Sleep(time.Second)
				s.mu.Lock()
				// Some more than 1000: an answer that is there before Apply returns is not late, and the
				// time it names is kept.
				if s.asked > 1100 || s.asked < 900 {
					t.Errorf("%s, retry after %d ns: asked %d times in a second, want one each millisecond",
						name, retry, s.asked)
				}
				s.mu.Unlock()
				must(t, g, semaphore(name), release("holder"))
				l.wantOrder(t, "waiter")
			})
		}
	}
}

// A store that fails all the time gives all in line their error, and leaves nothing behind.
func TestErrorsAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 3000
		s, g := newFar(time.Millisecond, time.Millisecond)
		key, l := semaphore("cut"), newLog()
		for round := range sampled(5) {
			must(t, g, key, acquire("holder"))
			for i := range waiters {
				submit(g, key, acquire(fmt.Sprint(i)), l.done(fmt.Sprint(i)))
			}
			time.Sleep(time.Second)
			before := s.fail(func() (before, after bool) { return true, true })
			s.wake()
			time.Sleep(time.Second)
			for i := range waiters {
				if got := l.get(fmt.Sprint(i)); !errors.Is(got.err, errFar) || got.count != round+1 {
					t.Fatalf("waiter %d: %s, %v, %d times, want the store's error, %d times",
						i, got.outcome, got.err, got.count, round+1)
				}
			}
			if asked := s.fail(nil) - before; asked > 50 {
				t.Errorf("the store was asked %d times for %d waiters, want at most 50", asked, waiters)
			}
			must(t, g, key, release("holder"))
			s.left(t, g, key)
		}
	})
}

// Whoever comes first is first, however long the store takes to say that there is no room, and whichever
// way the commands come.
func TestFirstComeFirstServedAtASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := newFar(10*time.Millisecond, 10*time.Millisecond)
		key, l := semaphore("order"), newLog()
		must(t, g, key, acquire("holder"))
		var want []string
		for i := range 30 {
			name := fmt.Sprint(i)
			want = append(want, name)
			r := gate.Request{Key: key, Command: acquire(name)}
			switch i % 3 {
			case 0:
				go func() {
					d, err := g.Do(t.Context(), key, r.Command)
					l.done(name)(d, err)
				}()
			case 1: // together with one that need not wait
				looks := &gate.Request{Key: key, Command: gatehouse.Command{Op: gatehouse.OpStats}}
				g.Submit(looks, newRequest(key, r.Command, l.done(name)))
			default:
				submit(g, key, r.Command, l.done(name))
			}
			time.Sleep(time.Millisecond)
		}
		must(t, g, key, release("holder"))
		for _, name := range want {
			time.Sleep(100 * time.Millisecond)
			must(t, g, key, release(name))
		}
		time.Sleep(time.Second)
		l.wantOrder(t, want...)
	})
}

// Commands that are submitted together are one change, and cancelling them takes back what all were granted.
func TestCancelTogether(t *testing.T) {
	const step = 10 * time.Millisecond
	for at := time.Duration(0); at < 5*step; at += step / 2 {
		synctest.Test(t, func(t *testing.T) {
			s, g := newFar(step, step)
			key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "together"}
			take := gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 10, Interval: time.Hour}, Cost: 3,
			}
			var requests []*gate.Request
			told := 0
			for range 4 {
				requests = append(requests, newRequest(key, take, func(gatehouse.Decision, error) { told++ }))
			}
			quickly(t, "Submit", func() { g.Submit(requests...) })
			time.Sleep(at)
			synctest.Wait()
			if told > 0 && (requests[2].Decision.Remaining != 1 || requests[3].Decision.Outcome != 0) {
				t.Errorf("%+v, want all but the last granted", requests)
			}
			for _, r := range slices.Concat(requests, requests) { // the second time does nothing
				quickly(t, "Cancel", func() { g.Cancel(r) })
			}
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if want := 4 * int(min(at/(2*step), 1)); told != want {
				t.Errorf("canceled after %s %d were answered before, want %d", at, told, want)
			}
			take.Cost = 10
			must(t, g, key, take)
			s.left(t, g, key)
		})
	}
}
