package gate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate() *gate.Gate { return gate.New(memory.New(memory.Config{}), gate.Config{}) }

func semaphore(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
}

func acquire(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Cost: 1, MaxWait: gatehouse.Forever,
		Rule: gatehouse.Rule{Size: 1, Interval: time.Second},
	}
}

func release(holder string) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder}
}

// must does a command that is to be granted at once.
func must(t *testing.T, g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	t.Helper()
	d, err := g.Do(t.Context(), key, cmd)
	if err != nil || d.Outcome != gatehouse.Granted {
		t.Fatalf("%s %s = %s, %v, want granted", key, cmd.Op, d.Outcome, err)
	}
	return d
}

// A result is how a submitted command ended, and when.
type result struct {
	outcome gatehouse.Outcome
	err     error
	after   time.Duration
	count   int
}

// A log notes results in the order in which they came.
type log struct {
	mu      sync.Mutex
	start   time.Time
	order   []string
	results map[string]result
}

func newLog() *log { return &log{start: time.Now(), results: map[string]result{}} }

// done is what to give to submit for a command of this name.
func (l *log) done(name string) func(gatehouse.Decision, error) {
	return func(d gatehouse.Decision, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.order = append(l.order, name)
		l.results[name] = result{d.Outcome, err, time.Since(l.start), l.results[name].count + 1}
	}
}

// get returns how the command of this name ended; its count is 0 while it has not.
func (l *log) get(name string) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.results[name]
}

func (l *log) wantOrder(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if fmt.Sprint(l.order) != fmt.Sprint(want) {
		t.Fatalf("answered %v, want %v", l.order, want)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("order"), newLog()
		must(t, g, key, acquire("first"))
		names := []string{"a", "b", "c", "d", "e"}
		for _, name := range names {
			submit(g, key, acquire(name), l.done(name))
		}
		l.wantOrder(t)
		must(t, g, key, release("first"))
		for i, name := range names {
			l.wantOrder(t, names[:i+1]...)
			must(t, g, key, release(name))
		}
		if n := g.Waiting(); n != 0 {
			t.Errorf("%d wait, want none", n)
		}
	})
}

// Many wait on a bucket of one token per second: exactly one leaves each second, in order.
func TestOnePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "bucket"}
		must(t, g, key, acquire(""))
		for i := range 1000 {
			submit(g, key, acquire(""), l.done(fmt.Sprint(i)))
		}
		time.Sleep(1000*time.Second + time.Millisecond)
		synctest.Wait()
		for i := range 1000 {
			want := time.Duration(i+1) * time.Second
			if got := l.get(fmt.Sprint(i)); got.outcome != gatehouse.Granted || got.after != want {
				t.Fatalf("waiter %d: %s after %s, want granted after %s", i, got.outcome, got.after, want)
			}
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("deadline"), newLog()
		must(t, g, key, acquire("holder"))
		short, long := acquire("short"), acquire("long")
		short.MaxWait, long.MaxWait = 3*time.Second, 5*time.Second
		submit(g, key, long, l.done("long"))
		submit(g, key, short, l.done("short"))
		time.Sleep(4 * time.Second)
		l.wantOrder(t, "short")
		if got := l.get("short"); got.outcome != gatehouse.Refused || got.after != 3*time.Second {
			t.Errorf("short: %s after %s, want refused after 3s", got.outcome, got.after)
		}
		must(t, g, key, release("holder"))
		l.wantOrder(t, "short", "long")
		if got := l.get("long"); got.outcome != gatehouse.Granted {
			t.Errorf("long: %s, want granted", got.outcome)
		}
		time.Sleep(10 * time.Second)
		l.wantOrder(t, "short", "long")
	})
}

// A token that appears at the very end of a wait is still granted.
func TestGrantAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "bucket"}
		must(t, g, key, acquire(""))
		for _, name := range []string{"a", "b"} {
			cmd := acquire("")
			cmd.MaxWait = time.Second
			submit(g, key, cmd, l.done(name))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if a, b := l.get("a"), l.get("b"); a.outcome != gatehouse.Granted ||
			b.outcome != gatehouse.Refused || b.after != time.Second {
			t.Errorf("a %+v, b %+v; want a granted, b refused after 1s", a, b)
		}
	})
}

func TestCancelledWaiterLetsOthersMoveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("moves"), newLog()
		hold := acquire("holder")
		hold.Size, hold.Cost = 5, 3
		must(t, g, key, hold)
		wide, narrow := acquire("wide"), acquire("narrow")
		wide.Size, wide.Cost, narrow.Size = 5, 4, 5
		cancel := submit(g, key, wide, l.done("wide"))
		submit(g, key, narrow, l.done("narrow"))
		l.wantOrder(t)
		cancel()
		cancel() // once more does nothing
		l.wantOrder(t, "narrow")
	})
}

func TestDoGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key := newGate(), semaphore("ctx")
		must(t, g, key, acquire("holder"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := g.Do(ctx, key, acquire("gone"))
		if gatehouse.CodeOf(err) != gatehouse.CodeTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("err = %v, want a timeout", err)
		}
		must(t, g, key, release("holder"))
		must(t, g, key, acquire("next"))
		_, err = g.Do(ctx, key, acquire("late"))
		if gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Fatalf("with an ended context: err = %v, want a timeout", err)
		}
	})
}

// What was granted and could not be delivered is taken back.
func TestCancelAfterTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("undo"), newLog()
		must(t, g, key, acquire("holder"))
		cancel := submit(g, key, acquire("a"), l.done("a"))
		submit(g, key, acquire("b"), l.done("b"))
		must(t, g, key, release("holder"))
		l.wantOrder(t, "a")
		cancel()
		l.wantOrder(t, "a", "b")
	})
}

func TestDeleteWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("deleted"), newLog()
		must(t, g, key, acquire("holder"))
		for i := range 3000 {
			submit(g, key, acquire(fmt.Sprint(i)), l.done(fmt.Sprint(i)))
		}
		must(t, g, key, gatehouse.Command{Op: gatehouse.OpDelete})
		synctest.Wait()
		for i := range 3000 {
			if got := l.get(fmt.Sprint(i)); got.outcome != gatehouse.Deleted || got.count != 1 {
				t.Fatalf("waiter %d: %s %d times, want deleted once", i, got.outcome, got.count)
			}
		}
		must(t, g, key, acquire("afresh"))
	})
}

func TestResizeWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("resized"), newLog()
		must(t, g, key, acquire("holder"))
		for _, name := range []string{"a", "b", "c"} {
			submit(g, key, acquire(name), l.done(name))
		}
		more := acquire("d")
		more.Size = 3
		submit(g, key, more, l.done("d"))
		l.wantOrder(t, "a", "b")
		must(t, g, key, release("a"))
		must(t, g, key, release("b"))
		l.wantOrder(t, "a", "b", "c", "d")
	})
}

// A resize that makes a cost impossible is told at once, wherever in line it stands.
func TestResizeBelowACost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("impossible"), newLog()
		hold := acquire("holder")
		hold.Size, hold.Cost = 5, 5
		must(t, g, key, hold)
		for _, name := range []string{"a", "b", "c"} {
			cmd := acquire(name)
			cmd.Size = 5
			submit(g, key, cmd, l.done(name))
		}
		wide := acquire("wide")
		wide.Size, wide.Cost = 5, 4
		submit(g, key, wide, l.done("wide"))
		smaller := acquire("smaller")
		smaller.Size, smaller.MaxWait = 2, 0
		if d, err := g.Do(t.Context(), key, smaller); err != nil || d.Outcome != gatehouse.Refused {
			t.Fatalf("smaller = %s, %v, want refused", d.Outcome, err)
		}
		l.wantOrder(t, "wide")
		if got := l.get("wide"); got.outcome != gatehouse.Conflict {
			t.Errorf("wide: %s, want conflict", got.outcome)
		}
	})
}

// Two waiters with one key share the hold, however many stand between them.
func TestSharedKeyFarBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("shared"), newLog()
		must(t, g, key, acquire("holder"))
		submit(g, key, acquire("k"), l.done("k1"))
		for i := range 100 {
			submit(g, key, acquire(fmt.Sprint(i)), l.done(fmt.Sprint(i)))
		}
		cancel := submit(g, key, acquire("k"), l.done("k2"))
		must(t, g, key, release("holder"))
		l.wantOrder(t, "k1", "k2")
		cancel() // k1 still has it
		l.wantOrder(t, "k1", "k2")
		must(t, g, key, release("k"))
		l.wantOrder(t, "k1", "k2", "0")
	})
}

func TestEventWakesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: gatehouse.Event, Name: "event"}
		for i := range 10_000 {
			wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
			submit(g, key, wait, l.done(fmt.Sprint(i)))
		}
		must(t, g, key, gatehouse.Command{Op: gatehouse.OpSend, Message: "go"})
		synctest.Wait()
		for i := range 10_000 {
			if got := l.get(fmt.Sprint(i)); got.outcome != gatehouse.Granted || got.count != 1 {
				t.Fatalf("waiter %d: %s %d times, want granted once", i, got.outcome, got.count)
			}
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("closing"), newLog()
		must(t, g, key, acquire("holder"))
		for _, name := range []string{"a", "b"} {
			submit(g, key, acquire(name), l.done(name))
		}
		g.Close()
		l.wantOrder(t, "a", "b")
		_, err := g.Do(t.Context(), key, acquire("late"))
		for _, err := range []error{l.get("a").err, l.get("b").err, err} {
			if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Errorf("err = %v, want unavailable", err)
			}
		}
		must(t, g, key, release("holder"))
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(memory.New(memory.Config{}), gate.Config{Waiters: 3, Line: 2})
		l := newLog()
		for i, name := range []string{"x", "x", "x", "y", "y"} {
			key := semaphore(name)
			hold := acquire("holder")
			hold.MaxWait = 0
			if _, err := g.Do(t.Context(), key, hold); err != nil {
				t.Fatal(err)
			}
			submit(g, key, acquire(fmt.Sprint(i)), l.done(fmt.Sprint(i)))
		}
		l.wantOrder(t, "2", "4") // one too many in line x, and one too many in all
		for _, name := range l.order {
			if err := l.get(name).err; gatehouse.CodeOf(err) != gatehouse.CodeExhausted {
				t.Errorf("waiter %s: %v, want exhausted", name, err)
			}
		}
		must(t, g, semaphore("x"), release("holder"))
		l.wantOrder(t, "2", "4", "0")
		g.Close()
	})
}

func TestBadCommands(t *testing.T) {
	g := newGate()
	noCost := acquire("a")
	noCost.Cost = 0
	wide := acquire("a")
	wide.Cost = 2
	for _, c := range []struct {
		key gatehouse.Key
		cmd gatehouse.Command
	}{
		{semaphore(""), acquire("a")},
		{semaphore("a\nb"), acquire("a")},
		{semaphore("a"), acquire("")},
		{semaphore("a"), noCost},
		{semaphore("a"), wide},
		{semaphore("a"), gatehouse.Command{Op: gatehouse.OpSend}},
		{gatehouse.Key{Kind: 99, Name: "a"}, acquire("a")},
	} {
		if _, err := g.Do(t.Context(), c.key, c.cmd); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("%s %+v: err = %v, want invalid", c.key, c.cmd, err)
		}
	}
}
