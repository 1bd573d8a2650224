package cas

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/control"
)

// callsOf returns a call for each number, with that many commands.
func callsOf(turns ...int) (calls []queuedCall) {
	for _, n := range turns {
		calls = append(calls, queuedCall{change: &control.Change{Turns: make([]control.Turn, n)}})
	}
	return calls
}

// queueOf is a queue with a transaction under way, in which these calls wait.
func queueOf(t *testing.T, calls []queuedCall) *callQueue {
	t.Helper()
	q := &callQueue{}
	if leads, _ := q.beginOrJoin(queuedCall{}); !leads {
		t.Fatal("the first call does not lead")
	}
	for i, r := range calls {
		if leads, waits := q.beginOrJoin(r); leads || !waits {
			t.Fatalf("call %d leads, or does not wait, while a transaction is under way", i)
		}
	}
	return q
}

// Calls go together, in the order in which they came, until a limit of commands is reached.
func TestBatches(t *testing.T) {
	q := queueOf(t, callsOf(1, 2, maxTurns-3, 1, maxTurns+1, 5))
	for _, want := range []int{3, 2, 1, 0} {
		if got := q.takeBatch(nil); len(got) != want || q.busy != (want > 0) {
			t.Fatalf("a batch of %d calls, busy %t, want %d", len(got), q.busy, want)
		}
	}
	if leads, _ := q.beginOrJoin(queuedCall{}); !leads {
		t.Error("the queue is idle, and a call does not lead")
	}
}

// A transaction that ends leaves its queue to the next one, with those who come until that begins, or idle.
func TestEndIfIdle(t *testing.T) {
	q := queueOf(t, callsOf(1))
	if n := q.endIfIdle(); n != 1 || !q.busy {
		t.Errorf("%d wait, busy %t, want 1 for the next transaction", n, q.busy)
	}
	q.beginOrJoin(callsOf(1)[0])
	if got := q.takeBatch(nil); len(got) != 2 {
		t.Errorf("the next transaction takes %d calls, want that which came since as well", len(got))
	}
	if n := q.endIfIdle(); n != 0 || q.busy {
		t.Errorf("%d wait, busy %t, want an idle queue", n, q.busy)
	}
}

// When the store is away all who wait are answered, and the next call leads.
func TestTakeAll(t *testing.T) {
	q := queueOf(t, callsOf(maxTurns, maxTurns, 1))
	if all := q.takeAll(); len(all) != 3 || len(q.takeAll()) != 0 {
		t.Errorf("%d calls are taken, want all 3, once", len(all))
	}
	if leads, _ := q.beginOrJoin(queuedCall{}); !leads {
		t.Error("the queue is idle, and a call does not lead")
	}
}

// A transaction takes over those at the front that match, and no others.
func TestTakeMatching(t *testing.T) {
	small := func(c *queuedCall) bool { return len(c.change.Turns) < 3 }
	q := queueOf(t, callsOf(1, 2, 3, 1))
	if front := q.takeMatching(small); len(front) != 2 || len(q.waiting) != 2 || !q.busy {
		t.Errorf("%d calls are taken and %d left, want 2 and 2", len(front), len(q.waiting))
	}
	if front := q.takeMatching(small); len(front) != 0 {
		t.Errorf("%d calls are taken from behind one that does not match", len(front))
	}
}

// A call of several names whose time to wait is over does not join a queue, in which nothing would end its
// waiting any more; it leads one that is idle.
func TestLateJointCall(t *testing.T) {
	late := new(jointTransaction)
	late.timer = new(time.Timer) // it has waited elsewhere
	late.late.Store(true)
	r := queuedCall{joint: late}
	q := queueOf(t, callsOf(1))
	if leads, waits := q.beginOrJoin(r); leads || waits || len(q.waiting) != 1 {
		t.Errorf("leads %t, waits %t, %d in the queue; want neither, and 1", leads, waits, len(q.waiting))
	}
	q.takeAll()
	if leads, _ := q.beginOrJoin(r); !leads {
		t.Error("the queue is idle, and the call does not lead")
	}
}
