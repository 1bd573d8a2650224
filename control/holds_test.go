package control

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A shelf keeps a semaphore as a file does: its head, and each hold by itself.
type shelf struct {
	head  []byte
	holds map[string][]byte
}

// put keeps what has changed.
func (s *shelf) put(semaphore *Semaphore) {
	s.head = semaphore.EncodeHead(nil)
	semaphore.EachChanged(func(holder string, form []byte) {
		if form == nil {
			delete(s.holds, holder)
			return
		}
		s.holds[holder] = slices.Clone(form)
	})
}

// take reads the semaphore back, its holds in any order.
func (s *shelf) take(t interface{ Fatalf(string, ...any) }, kind gatehouse.Kind) *Semaphore {
	read, err := Decode(kind, s.head)
	if err != nil {
		t.Fatalf("Decode(%s, %x) = %v", kind, s.head, err)
	}
	semaphore := read.(*Semaphore)
	semaphore.Track()
	for holder, form := range s.holds {
		if err := semaphore.DecodeHold(holder, form); err != nil {
			t.Fatalf("DecodeHold(%q, %x) = %v", holder, form, err)
		}
	}
	if n := len(semaphore.changed); n > 0 {
		t.Fatalf("%d of %d holds that were read have changed, want none", n, len(s.holds))
	}
	return semaphore
}

// TestHoldsByThemselves: what is put together from its head and the holds that changed, step by step, is
// what it was, and decides the same.
func TestHoldsByThemselves(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.Lock} {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkShelf(t, kind) })
		})
	}
}

func checkShelf(t *rapid.T, kind gatehouse.Kind) {
	now, s, kept := epoch(), subject{kind: kind, state: New(kind)}, shelf{holds: map[string][]byte{}}
	s.state.(*Semaphore).Track()
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(time.Duration(rapid.Int64Range(0, 30).Draw(t, "later")) * time.Second)
		turn, ok := drawHeld(t, kind)
		if !ok {
			continue
		}
		d := s.stepTurn(now, turn)
		switch rapid.IntRange(0, 5).Draw(t, "then") {
		case 0:
			undo := UndoOf(turn, &d)
			s.stepTurn(now, &undo)
		case 1:
			s.state.(*Semaphore).End(turn.Holder, d.Fence)
		case 2:
			kept.put(s.state.(*Semaphore))
			s.state = kept.take(t, kind) // as after a restart
		}
		kept.put(s.state.(*Semaphore))
		want, got := Encode(nil, s.state), Encode(nil, kept.take(t, kind))
		if !bytes.Equal(got, want) {
			t.Fatalf("at %s: after %+v what was put together is\n%x, want\n%x", now, turn.Command, got, want)
		}
	}
}

// TestEachChanged: a hold that changed is visited once, in the order of names, and nothing else is.
func TestEachChanged(t *testing.T) {
	semaphore := subject{kind: gatehouse.Semaphore, state: New(gatehouse.Semaphore)}
	s := semaphore.state.(*Semaphore)
	visited := func() (names []string) {
		s.EachChanged(func(holder string, form []byte) {
			if form == nil {
				holder += " gone"
			}
			names = append(names, holder)
		})
		return names
	}
	at := epoch()
	step := func(op gatehouse.Op, holder string) {
		semaphore.step(at, gatehouse.Command{
			Op: op, Holder: holder, Rule: gatehouse.Rule{Size: 3}, Cost: 1, Expires: time.Minute,
		})
	}
	step(gatehouse.OpAcquire, "before")
	if got := visited(); got != nil || s.changed != nil {
		t.Errorf("visited %q without Track, want none", got)
	}
	s.Track() // which takes what is held for changed
	step(gatehouse.OpAcquire, "b")
	step(gatehouse.OpAcquire, "a")
	step(gatehouse.OpRelease, "b")
	step(gatehouse.OpRenew, "nobody")
	if got, want := visited(), []string{"a", "b gone", "before"}; !slices.Equal(got, want) {
		t.Errorf("visited %q, want %q", got, want)
	}
	if got := visited(); got != nil {
		t.Errorf("visited %q again, want none", got)
	}
	at = at.Add(time.Minute)
	step(gatehouse.OpStats, "")
	if got, want := visited(), []string{"a gone", "before gone"}; !slices.Equal(got, want) {
		t.Errorf("visited %q, want %q", got, want)
	}
}

func TestHoldsAndEnd(t *testing.T) {
	semaphore := subject{kind: gatehouse.Semaphore}
	for i, holder := range []string{"c", "a", "b"} {
		semaphore.stepTurn(epoch(), &Turn{Leased: i == 1, Command: &gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: 10}, Cost: int64(i + 1),
			Expires: time.Duration(i) * time.Second,
		}})
	}
	s, first := semaphore.state.(*Semaphore), uint64(epoch().UnixMicro()) //nolint:gosec // after 1970
	want := []Hold{
		{Holder: "c", Fence: first, Cost: 1},
		{Holder: "a", Fence: first + 1, Cost: 2, Expires: time.Second},
		{Holder: "b", Fence: first + 2, Cost: 3, Expires: 2 * time.Second,
			Until: epoch().Add(2 * time.Second)},
	}
	if got := s.Holds(); !reflect.DeepEqual(got, want) {
		t.Errorf("Holds() = %v, want %v", got, want)
	}
	for _, c := range []struct {
		holder string
		fence  uint64
		want   bool
	}{{"a", first, false}, {"x", first, false}, {"a", first + 1, true}, {"a", first + 1, false}} {
		if got := s.End(c.holder, c.fence); got != c.want {
			t.Errorf("End(%q, %d) = %t, want %t", c.holder, c.fence, got, c.want)
		}
	}
	if s.heldCost != 4 || s.expired != 1 || len(s.Holds()) != 2 {
		t.Errorf("after End %d are held by %v, %d expired, want 4 by two, 1",
			s.heldCost, s.Holds(), s.expired)
	}
}

// TestDecodeHoldRefuses: a hold that does not fit what is there is refused, and changes nothing.
func TestDecodeHoldRefuses(t *testing.T) {
	form := func(h hold) []byte {
		var c stateCodec
		c.codeVersion(1)
		h.codeFields(&c)
		return c.data
	}
	good := hold{cost: 1, fence: 5, grants: 1}
	for name, bad := range map[string][]byte{
		"again": form(good), "empty": nil, "version": {2}, "cut": form(good)[:4],
		"more": append(form(good), 0),
		"free": form(hold{fence: 4, grants: 1}), "late": form(hold{cost: 1, fence: 6, grants: 1}),
		"large": form(hold{cost: gatehouse.MaxSize, fence: 4, grants: 1}),
	} {
		s := &Semaphore{fence: 5}
		if err := s.DecodeHold("again", form(good)); err != nil {
			t.Fatal(err)
		}
		if err := s.DecodeHold(name, bad); err == nil || s.heldCost != 1 || len(s.holds.heap) != 1 {
			t.Errorf("DecodeHold(%s) = %v with %d held, want an error and 1", name, err, s.heldCost)
		}
	}
}

// TestLeft: at a barrier those who are gone do not count any more, whether it has opened or not.
func TestLeft(t *testing.T) {
	barrier := subject{kind: gatehouse.Barrier}
	wait := func(ticket Ticket) gatehouse.Decision {
		return barrier.stepTurn(epoch(), &Turn{Ticket: ticket, Command: &gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}, MaxWait: gatehouse.Forever,
		}})
	}
	wait(1)
	wait(2)
	even := func(ticket Ticket) bool { return ticket%2 == 0 }
	if !ForgetWaiters(barrier.state, even) || ForgetWaiters(barrier.state, even) {
		t.Error("Left = false, then true, want true, then false")
	}
	if d := wait(4); d.Outcome != gatehouse.Refused || d.Remaining != 1 {
		t.Errorf("wait = %s with %d remaining, want refused, 1", d.Outcome, d.Remaining)
	}
	if d := wait(3); d.Outcome != gatehouse.Granted {
		t.Errorf("wait = %s, want granted", d.Outcome)
	}
	if !ForgetWaiters(barrier.state, even) {
		t.Error("Left at an open barrier = false, want true")
	}
	got := slices.Sorted(maps.Keys(barrier.state.(*Barrier).arrivals))
	if want := []Ticket{1}; !slices.Equal(got, want) {
		t.Errorf("not told yet: %v, want %v", got, want)
	}
	if ForgetWaiters(New(gatehouse.Semaphore), even) {
		t.Error("Left of a semaphore = true, want false")
	}
}

// TestManyHolds: a hundred thousand holds are put together again.
func TestManyHolds(t *testing.T) {
	semaphore := subject{kind: gatehouse.Semaphore, state: New(gatehouse.Semaphore)}
	semaphore.state.(*Semaphore).Track()
	kept := shelf{holds: map[string][]byte{}}
	for i := range maxHolders {
		semaphore.step(epoch(), gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: fmt.Sprint(i),
			Rule: gatehouse.Rule{Size: gatehouse.MaxSize}, Cost: 1,
			Expires: time.Hour - time.Duration(i),
		})
	}
	kept.put(semaphore.state.(*Semaphore))
	read := kept.take(t, gatehouse.Semaphore)
	if !bytes.Equal(Encode(nil, read), Encode(nil, semaphore.state)) {
		t.Error("what was put together has another form")
	}
	d := stepTurn(read, epoch().Add(time.Hour), &Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}})
	if d.Limit-d.Remaining != 0 {
		t.Errorf("an hour later %d are held, want none", d.Limit-d.Remaining)
	}
}
