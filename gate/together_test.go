package gate_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// limited are commands for one bucket of five, as a pipeline brings them.
func limited() []gatehouse.Command {
	cmds := make([]gatehouse.Command, gate.MaxTogether)
	for i := range cmds {
		cmds[i] = gatehouse.Command{
			Op:   gatehouse.OpAcquire,
			Rule: gatehouse.Rule{Size: 5, Interval: time.Second}, Cost: int64(1 + i%3),
		}
		if i%5 == 4 {
			cmds[i].Op = gatehouse.OpPeek
		}
	}
	return cmds
}

// Commands that come together are answered as if they had come one after the other.
func TestTogetherIsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "pipeline"}
		asOne, apart := newGate(), newGate()
		for round := range 3 {
			cmds := limited()
			got, err := together(asOne, key, cmds...)
			if err != nil {
				t.Fatal(err)
			}
			for i, cmd := range cmds {
				want, err := apart.Do(t.Context(), key, cmd)
				if err != nil || fmt.Sprint(got[i]) != fmt.Sprint(want) {
					t.Errorf("round %d, command %d: %+v, want %+v, %v", round, i, got[i], want, err)
				}
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
}

// Nobody overtakes those in line by coming together.
func TestTogetherBehindALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key, l := newGate(), semaphore("pipeline"), newLog()
		must(t, g, key, acquire("holder"))
		submit(g, key, acquire("waiter"), l.done("waiter"))
		late := acquire("late")
		late.MaxWait = 0
		cmds := []gatehouse.Command{late, release("holder"), late, release("waiter"), late}
		got, err := together(g, key, cmds...)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := make([]gatehouse.Outcome, len(got))
		for i := range got {
			outcomes[i] = got[i].Outcome
		}
		want := []gatehouse.Outcome{
			gatehouse.Refused, gatehouse.Granted, gatehouse.Refused, gatehouse.Granted, gatehouse.Granted,
		}
		if !slices.Equal(outcomes, want) {
			t.Errorf("outcomes %s, want %s", outcomes, want)
		}
		l.wantOrder(t, "waiter")
	})
}

// Those that come together and may wait get in line behind one another, and an invalid one spoils no other.
func TestTogetherInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, far := range []time.Duration{0, 10 * time.Millisecond} {
			s, g := newFar(far, far)
			key, l := semaphore("near"), newLog()
			if far > 0 {
				key.Name = "far"
			}
			var requests []*gate.Request
			for _, name := range []string{"a", "b", "bad", "c"} {
				done := l.done(name)
				r := &gate.Request{Key: key, Command: acquire(name), Decided: func(r *gate.Request) {
					done(*r.Decision, r.Err)
				}}
				if name == "bad" {
					r.Command.Cost = 0
				}
				requests = append(requests, r)
			}
			g.Submit(requests...)
			time.Sleep(10 * far)
			l.wantOrder(t, "bad", "a")
			must(t, g, key, release("a"))
			time.Sleep(10 * far)
			l.wantOrder(t, "bad", "a", "b")
			g.Cancel(requests[1])
			time.Sleep(10 * far)
			l.wantOrder(t, "bad", "a", "b", "c")
			if got := l.get("bad"); gatehouse.CodeOf(got.err) != gatehouse.CodeInvalid {
				t.Errorf("a cost of 0 = %v, want invalid", got.err)
			}
			must(t, g, key, release("c"))
			s.left(t, g, key)
		}
	})
}
