package gate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A meddledStore is a memory store that serves at once, but does something else before.
type meddledStore struct {
	*memory.Store
	before func()
}

func (s *meddledStore) ServesAtOnce(any) bool { return true }

func (s *meddledStore) ServeAtOnce(key gatehouse.Key, turns []control.Turn) bool {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.ServeAtOnce(key, turns)
}

// A request that joins the line while a release is decided at once gets what is released.
func TestLineThatBeginsMeanwhileIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &meddledStore{Store: memory.New(memory.Config{})}
		g := gate.New(s, gate.Config{})
		key := gatehouse.Key{Kind: gatehouse.Lock, Name: "lock"}
		hold := hourOf("a")
		wantOutcome(t, gatehouse.Granted, outcomeOf(t, g, key, hold))
		waiting := hold
		waiting.Holder, waiting.MaxWait = "b", gatehouse.Forever
		decided := make(chan struct{})
		r := &gate.Request{Key: key, Command: waiting, Decided: func(*gate.Request) { close(decided) }}
		s.before = func() { g.Submit(r) }
		wantOutcome(t, gatehouse.Granted, outcomeOf(t, g, key, release("a")))
		synctest.Wait()
		select {
		case <-decided:
			if r.Err != nil || r.Decision.Outcome != gatehouse.Granted {
				t.Errorf("the request in line got %v, %v, want the lock", r.Decision, r.Err)
			}
		default:
			t.Error("the request in line is not told that the lock is free")
			g.Cancel(r)
		}
	})
}

// A command that is decided at once does not overtake a request in line.
func TestAtOnceOvertakesNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		key := gatehouse.Key{Kind: gatehouse.Semaphore, Name: "sem"}
		hold := hourOf("a")
		hold.Size = 2
		wantOutcome(t, gatehouse.Granted, outcomeOf(t, g, key, hold))
		waiting := hold
		waiting.Holder, waiting.Cost, waiting.MaxWait = "b", 2, gatehouse.Forever
		r := &gate.Request{Key: key, Command: waiting}
		g.Submit(r)
		hold.Holder = "c"
		wantOutcome(t, gatehouse.Refused, outcomeOf(t, g, key, hold))
		g.Cancel(r)
		wantOutcome(t, gatehouse.Granted, outcomeOf(t, g, key, hold))
	})
}

// A store that embeds a memory store is asked by its own Apply.
func TestAtOncePassesNoStoreBy(t *testing.T) {
	s, g := newSlow(nil)
	key := gatehouse.Key{Kind: gatehouse.Lock, Name: "lock"}
	hold := hourOf("a")
	for range 3 {
		wantOutcome(t, gatehouse.Granted, outcomeOf(t, g, key, hold))
	}
	if got := s.turns.Load(); got != 3 {
		t.Errorf("the store was asked for %d turns, want 3", got)
	}
}

// hourOf is an acquire for an hour that does not wait.
func hourOf(holder string) gatehouse.Command {
	cmd := acquire(holder)
	cmd.MaxWait, cmd.Expires = 0, time.Hour
	return cmd
}

func outcomeOf(t *testing.T, g *gate.Gate, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Outcome {
	t.Helper()
	d, err := g.Do(context.Background(), key, cmd)
	if err != nil {
		t.Fatalf("%s by %s: %v", cmd.Op, cmd.Holder, err)
	}
	return d.Outcome
}

func wantOutcome(t *testing.T, want, got gatehouse.Outcome) {
	t.Helper()
	if got != want {
		t.Errorf("the outcome is %v, want %v", got, want)
	}
}
