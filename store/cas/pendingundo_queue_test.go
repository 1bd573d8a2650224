package cas

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A sentUndos notes what an undo queue sends, and fails for the names it is told.
type sentUndos struct {
	queue undoQueue
	mu    sync.Mutex
	fails map[string]bool
	sent  []string // the names, and how many of each
}

func newSentUndos() *sentUndos {
	s := &sentUndos{fails: map[string]bool{}}
	s.queue.send = func(key gatehouse.Key, together []pendingUndo) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, fmt.Sprint(key.Name, " ", len(together)))
		if s.fails[key.Name] {
			return errors.New("no answer")
		}
		return nil
	}
	return s
}

// add has n holds at a name taken back.
func (s *sentUndos) add(name string, n int) {
	queue := make([]control.Turn, n)
	for i := range queue {
		queue[i].Command = &gatehouse.Command{Op: gatehouse.OpUndo}
		queue[i].Granted = &gatehouse.Decision{Fence: 1}
	}
	s.queue.addFailed(gatehouse.Key{Kind: gatehouse.Lock, Name: name}, queue, newUndos(queue, 0))
}

// expect waits for some time and sees what was sent by then, and what is left.
func (s *sentUndos) expect(t *testing.T, after time.Duration, sent string, left int) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.sent, ", "); got != sent || s.queue.countPending() != left {
		t.Errorf("sent %q, and %d are left; want %q and %d", got, s.queue.countPending(), sent, left)
	}
	s.sent = nil
}

// Undos are sent within a second, those of one name that came together as one change.
func TestUndosAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSentUndos()
		s.add("a", 2)
		s.add("b", 1)
		s.add("a", 1)
		s.expect(t, undoInterval/2, "", 4)
		s.expect(t, undoInterval/2, "a 2, b 1, a 1", 0)
		s.expect(t, time.Hour, "", 0)
		s.add("c", 1)
		s.expect(t, undoInterval, "c 1", 0)
	})
}

// A name that fails is tried again after all others, which it holds up once.
func TestFailedUndosGoLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSentUndos()
		s.fails["a"] = true
		s.add("a", 2)
		s.add("b", 1)
		s.add("c", 1)
		s.expect(t, undoInterval, "a 2", 4)
		s.expect(t, undoInterval, "b 1, c 1, a 2", 2)
		s.mu.Lock()
		s.fails["a"] = false
		s.mu.Unlock()
		s.expect(t, undoInterval, "a 2", 0)
	})
}

// An undo keeps its identity from one try to the next.
func TestFailedUndosKeepTheirIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ids []uint64
		q := undoQueue{send: func(_ gatehouse.Key, together []pendingUndo) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, together[0].id)
			return errors.New("no answer")
		}}
		defer q.close()
		queue := []control.Turn{
			{Command: &gatehouse.Command{Op: gatehouse.OpUndo}, Granted: &gatehouse.Decision{}},
		}
		q.addFailed(gatehouse.Key{Name: "a"}, queue, []*undo{{id: 7}})
		time.Sleep(3 * undoInterval)
		mu.Lock()
		defer mu.Unlock()
		if len(ids) < 3 || slices.Max(ids) != 7 || slices.Min(ids) != 7 {
			t.Errorf("the undo was sent as %d, want it sent as 7 three times at least", ids)
		}
	})
}

// No more are kept than a limit, and none is sent after the end.
func TestUndosHaveALimitAndAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSentUndos()
		s.add("a", maxPendingUndos-1)
		s.add("b", 2)
		if n := s.queue.countPending(); n != maxPendingUndos {
			t.Errorf("%d undos are pending, want %d", n, maxPendingUndos)
		}
		s.queue.close()
		s.add("c", 1)
		s.expect(t, time.Hour, "", maxPendingUndos)
	})
}

// Of a change whose answer was lost those grants are taken back that have an identity, if it was made.
func TestUndosOfUnresolvedChanges(t *testing.T) {
	acquire := &gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "a", MaxWait: time.Second}
	reserve := &gatehouse.Command{Op: gatehouse.OpReserve}
	turns := []control.Turn{{Command: acquire}, {Command: acquire}, {Command: reserve}, {Command: reserve}}
	at := time.Unix(0, 1000)
	unresolved := []attempt{{nonce: 5, base: 4, decisions: []gatehouse.Decision{
		{Outcome: gatehouse.Granted, Fence: 9, At: at},
		{Outcome: gatehouse.Refused},
		{Outcome: gatehouse.Granted, Reservation: 1000, At: at},
		{Outcome: gatehouse.Granted, Reservation: 999, At: at},
	}}}
	q := undoQueue{delayedRun: delayedRun{closed: true}}
	q.addUnresolved(gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}, turns, unresolved)
	if len(q.pending) != 3 {
		t.Fatalf("%d undos are pending, want those of the hold and both places", len(q.pending))
	}
	for i, u := range q.pending {
		wantGrant := []*gatehouse.Decision{
			&unresolved[0].decisions[0], &unresolved[0].decisions[2], &unresolved[0].decisions[3],
		}[i]
		turn := &u.undoing
		if turn.Op != gatehouse.OpUndo || turn.MaxWait != 0 || u.onlyIf.nonce != 5 || u.onlyIf.base != 4 ||
			turn.Granted.Fence != wantGrant.Fence || turn.Granted.Reservation != wantGrant.Reservation {
			t.Errorf("undo %d is %+v of %+v, want one of %+v if 5 was made",
				i, turn.Command, turn.Granted, wantGrant)
		}
		if u.shared != (i == 2) {
			t.Errorf("undo %d is of a place that was there: %t", i, u.shared)
		}
	}
	if acquire.Op != gatehouse.OpAcquire || acquire.MaxWait == 0 {
		t.Errorf("the caller's command has become %+v", acquire)
	}
}

// Who waited at a barrier when its call failed still counts there, and is taken off.
func TestUndosOfWaitersAtABarrier(t *testing.T) {
	queue := []control.Turn{
		{Command: &gatehouse.Command{Op: gatehouse.OpWait, MaxWait: time.Second}, Ticket: 1},
		{Command: &gatehouse.Command{Op: gatehouse.OpWait}}, // who does not stay
		{Command: &gatehouse.Command{Op: gatehouse.OpUndo}, Ticket: 2},
		{Command: &gatehouse.Command{Op: gatehouse.OpStats}},
	}
	for kind, want := range map[gatehouse.Kind]int{gatehouse.Barrier: 2, gatehouse.Event: 0} {
		q := undoQueue{delayedRun: delayedRun{closed: true}}
		q.addFailed(gatehouse.Key{Kind: kind, Name: "a"}, queue, nil)
		if len(q.pending) != want {
			t.Errorf("%s: %d undos are pending, want %d", kind, len(q.pending), want)
		}
		for i, u := range q.pending {
			turn := &u.undoing
			if turn.Op != gatehouse.OpUndo || turn.Ticket != control.Ticket(i+1) || turn.MaxWait != 0 {
				t.Errorf("%s: undo %d is %+v, want one of ticket %d", kind, i, turn, i+1)
			}
		}
	}
}
