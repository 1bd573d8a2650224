package control

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// held is what others have taken before.
type held map[gatehouse.Key]gatehouse.Command

// TestJointAllOrNothing: a grant takes of all its members or of none, and says which of them binds.
func TestJointAllOrNothing(t *testing.T) {
	bucket, gcra := keyOf(gatehouse.TokenBucket, "b"), keyOf(gatehouse.GCRA, "g")
	slots, lock := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l")
	some := ofLimit(gatehouse.TokenBucket, "b", 10, 4)
	for _, c := range []struct {
		name    string
		before  held // what others have taken
		cmd     gatehouse.GrantCommand
		outcome gatehouse.Outcome
		binding int
		retry   time.Duration
		message string
	}{
		{name: "all fit", cmd: acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4),
			ofLimit(gatehouse.GCRA, "g", 5, 5), ofSlots("s", 2, 2), ofLock("l")), binding: -1,
			outcome: gatehouse.Granted},
		{name: "the order of the command counts", cmd: acquireOf("x", ofLock("l"), ofSlots("s", 2, 1)),
			before:  held{lock: {Expires: time.Second}, slots: {Expires: time.Second}},
			outcome: gatehouse.Refused, binding: 0, retry: time.Second},
		{name: "one is refused", cmd: acquireOf("x", some, ofLock("l")),
			before:  held{lock: {Expires: 5 * time.Second}},
			outcome: gatehouse.Refused, binding: 1, retry: 5 * time.Second},
		{name: "the longest binds", cmd: acquireOf("x", some, ofLock("l")),
			before: held{
				lock:   {Expires: 5 * time.Second},
				bucket: {Rule: gatehouse.Rule{Size: 10, Interval: time.Minute}, Cost: 7},
			},
			outcome: gatehouse.Refused, binding: 0, retry: time.Minute},
		{name: "no known end is longest", cmd: acquireOf("x", some, ofLock("l")),
			before: held{
				lock:   {},
				bucket: {Rule: gatehouse.Rule{Size: 10, Interval: time.Minute}, Cost: 7},
			},
			outcome: gatehouse.Refused, binding: 1, retry: gatehouse.Forever},
		{name: "a contradiction binds before a refusal",
			cmd: acquireOf("x", ofLock("l"), ofLimit(gatehouse.GCRA, "g", gatehouse.InForce, 4)),
			before: held{
				lock: {}, gcra: {Rule: gatehouse.Rule{Size: 3, Burst: 2, Interval: time.Minute}, Cost: 1},
			},
			outcome: gatehouse.Conflict, binding: 1,
			message: "gcra/g lets fewer through at once than this request wants"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse()
			for key, cmd := range c.before {
				cmd.Op, cmd.Holder, cmd.Cost = gatehouse.OpAcquire, "other", max(1, cmd.Cost)
				if key.Kind == gatehouse.Semaphore {
					cmd.Size, cmd.Cost = 2, 2
				}
				h.alone(key, cmd)
			}
			d := h.do(t, c.cmd)
			got := []any{d.Outcome, d.Binding, d.RetryAfter, d.Message}
			if !slices.Equal(got, []any{c.outcome, c.binding, c.retry, c.message}) {
				t.Fatalf("%+v, want %s by %d after %s: %q", d, c.outcome, c.binding, c.retry, c.message)
			}
			for _, m := range c.cmd.Want {
				if took := h.takenBy(m, c.before[m.Key]); took != (d.Outcome == gatehouse.Granted) {
					t.Errorf("%s: taken is %t of a grant that is %s", m.Key, took, d.Outcome)
				}
			}
			if _, there := h.states[keyOf(gatehouse.Grant, "x")]; there != (d.Outcome == gatehouse.Granted) {
				t.Errorf("a record is there: %t", there)
			}
		})
	}
}

// takenBy reports whether a member was taken besides what others took before.
func (h *house) takenBy(m gatehouse.Member, before gatehouse.Command) bool {
	if m.Key.Kind.Limiter() {
		limit := m.Size
		if m.Size == gatehouse.InForce {
			limit = before.Size
		}
		return h.left(m.Key) != limit-before.Cost
	}
	s := h.states[m.Key].(*Semaphore)
	return s.holds.find(GrantHolder("x")) != nil
}

// TestJointLife: a grant is seen, renewed and released; what it holds ends with it, and its id is remembered.
func TestJointLife(t *testing.T) {
	h := newHouse()
	slots, lock := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l")
	bucket := keyOf(gatehouse.TokenBucket, "b")
	want := []gatehouse.Member{ofLock("l"), ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofSlots("s", 3, 2)}
	first := h.do(t, acquireOf("x", want...))
	if first.Outcome != gatehouse.Granted || first.ExpiresAfter != time.Minute || first.Fence == 0 {
		t.Fatalf("acquire = %+v", first)
	}
	for i, m := range first.Want {
		if m.Key != want[i].Key || m.Cost != want[i].Cost {
			t.Errorf("member %d is %+v, want %+v", i, m, want[i])
		}
	}
	// The same again is the same grant, and takes nothing.
	again := h.do(t, acquireOf("x", want...))
	if again.Outcome != gatehouse.Granted || again.Fence != first.Fence || h.left(bucket) != 6 ||
		h.held(slots) != 2 || again.Want[1].Remaining != 6 {
		t.Errorf("the same again = %+v with %d left", again, h.left(bucket))
	}
	other := h.do(t, acquireOf("x", want[:2]...))
	why := "grant/x is there already, and wants something else"
	if other.Outcome != gatehouse.Conflict || other.Message != why {
		t.Errorf("another want = %+v", other)
	}
	h.now = h.now.Add(50 * time.Second)
	renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "x", Expires: gatehouse.AsAcquired}
	renew.Fence = first.Fence
	if d := h.do(t, renew); d.Outcome != gatehouse.Granted || d.ExpiresAfter != time.Minute {
		t.Errorf("renew = %+v", d)
	}
	h.now = h.now.Add(59 * time.Second)
	peek := gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "x"}
	if d := h.do(t, peek); d.ExpiresAfter != time.Second || h.held(lock) != 1 || d.Want[2].Remaining != 1 {
		t.Errorf("peek = %+v", d)
	}
	renew.Fence++
	if d := h.do(t, renew); d.Outcome != gatehouse.Conflict {
		t.Errorf("renew with another fence = %+v", d)
	}
	h.now = h.now.Add(time.Second)
	if d := h.do(t, peek); !d.Ended || d.Outcome != gatehouse.Granted || h.held(lock)+h.held(slots) != 0 {
		t.Errorf("peek after the end = %+v", d)
	}
	release := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "x"}
	if d := h.do(t, release); d.Outcome != gatehouse.Conflict {
		t.Errorf("release after the end = %+v", d)
	}
	h.now = h.now.Add(time.Minute)
	if d := h.do(t, peek); d.Outcome != gatehouse.Missing {
		t.Errorf("peek when it is forgotten = %+v", d)
	}
	second := h.do(t, acquireOf("x", want...))
	if second.Outcome != gatehouse.Granted || second.Fence <= first.Fence {
		t.Errorf("acquire anew = %+v after fence %d", second, first.Fence)
	}
	d := h.do(t, release)
	if d.Outcome != gatehouse.Granted || d.ExpiresAfter != 0 || h.held(lock)+h.held(slots) != 0 {
		t.Errorf("release = %+v", d)
	}
}

// TestJointUndoOfNothing: to take back a grant that waited takes nothing back, although some of its names
// would have granted it.
func TestJointUndoOfNothing(t *testing.T) {
	h, bucket := newHouse(), ofLimit(gatehouse.TokenBucket, "b", 10, 4)
	h.alone(bucket.Key, gatehouse.Command{Op: gatehouse.OpAcquire, Rule: bucket.Rule, Cost: 5})
	h.alone(keyOf(gatehouse.Lock, "l"), gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "k", Cost: 1})
	two := acquireOf("", bucket, ofLimit(gatehouse.GCRA, "g", 10, 1))
	h.alone(two.Want[1].Key, gatehouse.Command{Op: gatehouse.OpAcquire, Rule: two.Want[1].Rule, Cost: 10})
	for _, cmd := range []gatehouse.GrantCommand{acquireOf("x", bucket, ofLock("l")), two} {
		if d := h.do(t, cmd); d.Outcome != gatehouse.Refused {
			t.Fatalf("%+v, want refused", d)
		}
		h.parts.Undo()
		h.serve()
		if left := h.left(bucket.Key); left != 5 {
			t.Errorf("%d left, want 5", left)
		}
	}
}

// TestJointDecidedAgain: a store that decides a change again, since what it had decided on had changed,
// counts nothing of what it found first; and what is refused has no fencing token.
func TestJointDecidedAgain(t *testing.T) {
	h, bucket := newHouse(), ofLimit(gatehouse.TokenBucket, "b", 10, 4)
	x := acquireOf("x", bucket, ofSlots("s", 1, 1))
	h.do(t, x)
	h.do(t, x) // finds it there
	h.states = map[gatehouse.Key]State{}
	var d gatehouse.GrantDecision
	err := h.parts.Decide(h.serve(), &d)
	if err != nil || d.Outcome != gatehouse.Granted || d.Want[0].Cost != 4 || h.left(bucket.Key) != 6 {
		t.Errorf("%+v, %v with %d left, want 4 taken of 10", d, err, h.left(bucket.Key))
	}
	x.ID = "y"
	if d := h.do(t, x); d.Outcome != gatehouse.Refused || d.Fence != 0 || d.ExpiresAfter != 0 {
		t.Errorf("%+v, want it refused without a fencing token", d)
	}
}

// TestJointClockSetBack: a grant can be read and released although the store's clock was set back.
func TestJointClockSetBack(t *testing.T) {
	h, record := newHouse(), keyOf(gatehouse.Grant, "x")
	h.do(t, acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l")))
	for _, op := range []gatehouse.Op{gatehouse.OpRenew, gatehouse.OpRelease} {
		h.now = h.now.Add(-time.Hour)
		for key, s := range h.states {
			h.states[key] = decoded(t, key.Kind, s)
		}
		cmd := gatehouse.GrantCommand{Op: op, ID: "x", Expires: time.Minute}
		if d := h.do(t, cmd); d.Outcome != gatehouse.Granted {
			t.Errorf("%s = %+v", op, d)
		}
	}
	decoded(t, gatehouse.Grant, h.states[record])
}

// TestJointFence: the one fencing token of a grant is above every earlier one under each of its names.
func TestJointFence(t *testing.T) {
	h := newHouse()
	slots, lock := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l")
	h.fences = map[gatehouse.Key]uint64{slots: 7_000_000_000_000_000, lock: 12}
	first := h.do(t, acquireOf("a", ofLock("l"), ofSlots("s", 9, 1)))
	one, two := first.Want[0].Fence, first.Want[1].Fence
	if first.Fence != 7_000_000_000_000_000 || one != first.Fence || two != first.Fence {
		t.Fatalf("fence %d of %+v", first.Fence, first.Want)
	}
	h.do(t, gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: "a"})
	h.fences = nil
	alone := h.alone(lock, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "k"})
	if alone.Fence != first.Fence+1 {
		t.Errorf("fence %d of the lock after %d", alone.Fence, first.Fence)
	}
}

// TestJointUndo: what was granted is taken back from all, once, and not if somebody else relies on it.
func TestJointUndo(t *testing.T) {
	h := newHouse()
	slots, bucket := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.TokenBucket, "b")
	want := []gatehouse.Member{ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofSlots("s", 3, 2)}
	h.do(t, acquireOf("x", want...))
	h.parts.Undo()
	for range 2 {
		h.serve()
		if h.left(bucket) != 10 || h.held(slots) != 0 || h.states[keyOf(gatehouse.Grant, "x")] != nil {
			t.Fatalf("%d left and %d held after an undo", h.left(bucket), h.held(slots))
		}
	}
	h.do(t, acquireOf("x", want...))
	parts := GrantParts{Parts: slices.Clone(h.parts.Parts), commands: slices.Clone(h.parts.commands)}
	for i := range parts.Parts {
		parts.Parts[i].Turn.Command = &parts.commands[i]
	}
	h.do(t, acquireOf("x", want...))
	parts.Undo()
	h.parts = parts
	h.serve()
	if h.left(bucket) != 6 || h.held(slots) != 2 {
		t.Errorf("%d left and %d held after an undo of one of two answers", h.left(bucket), h.held(slots))
	}
	h.serve()
	if h.left(bucket) != 10 || h.held(slots) != 0 {
		t.Errorf("%d left and %d held after an undo of both", h.left(bucket), h.held(slots))
	}
}

// TestJointRoom: where there is no room for one part nothing is taken of the others.
func TestJointRoom(t *testing.T) {
	bucket := keyOf(gatehouse.TokenBucket, "b")
	for _, room := range []Room{{Bytes: 100_000, Holders: 1}, {Bytes: 700, Holders: 9}} {
		h := newHouse()
		h.alone(bucket, gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10, Interval: time.Minute},
		})
		h.room = &room
		_, err := h.try(acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l"), ofLock("m")))
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted {
			t.Errorf("%+v: %v, want exhausted", room, err)
		}
		if left := h.left(bucket); left != 9 {
			t.Errorf("%+v: %d left, want 9", room, left)
		}
	}
}

// TestJointAllocates: a grant of limiters without a record allocates nothing.
func TestJointAllocates(t *testing.T) {
	h := newHouse()
	parts, cmd := benchGrant(h)
	var g GrantParts
	var d gatehouse.GrantDecision
	n := testing.AllocsPerRun(1000, func() {
		h.now = h.now.Add(time.Millisecond)
		if err := cmd.Check(); err != nil {
			t.Fatal(err)
		}
		g.Acquire(&cmd)
		for i := range parts {
			parts[i].Part = &g.Parts[i]
		}
		if err := g.Decide(ServeJoint(h.now, parts), &d); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("%+v, %v", d, err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations a grant, want none", n)
	}
}

// benchGrant is a grant of four limiters that fits again and again.
func benchGrant(h *house) ([]JointPart, gatehouse.GrantCommand) {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	for _, kind := range []gatehouse.Kind{
		gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.FixedWindow, gatehouse.SlidingWindow,
	} {
		m := ofLimit(kind, "n", 1_000_000, 1)
		m.Interval = time.Second
		cmd.Want = append(cmd.Want, m)
	}
	h.parts.Acquire(&cmd)
	h.serve()
	parts := make([]JointPart, len(cmd.Want))
	for i := range parts {
		parts[i].State = h.states[h.parts.Parts[i].Key]
	}
	return parts, cmd
}

// BenchmarkJoint is a grant over four limiters, and four decisions about one.
func BenchmarkJoint(b *testing.B) {
	b.Run("grant of 4", func(b *testing.B) {
		h := newHouse()
		parts, cmd := benchGrant(h)
		var g GrantParts
		b.ReportAllocs()
		for b.Loop() {
			h.now = h.now.Add(10 * time.Microsecond)
			g.Acquire(&cmd)
			for i := range parts {
				parts[i].Part = &g.Parts[i]
			}
			ServeJoint(h.now, parts)
		}
	})
	b.Run("grant of 4, checked and answered", func(b *testing.B) {
		h := newHouse()
		parts, cmd := benchGrant(h)
		var g GrantParts
		var d gatehouse.GrantDecision
		b.ReportAllocs()
		for b.Loop() {
			h.now = h.now.Add(10 * time.Microsecond)
			if err := cmd.Check(); err != nil {
				b.Fatal(err)
			}
			g.Acquire(&cmd)
			for i := range parts {
				parts[i].Part = &g.Parts[i]
			}
			if err := g.Decide(ServeJoint(h.now, parts), &d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("4 names", func(b *testing.B) {
		h := newHouse()
		parts, cmd := benchGrant(h)
		queue, cmds := make([]Turn, 1), make([]gatehouse.Command, len(parts))
		b.ReportAllocs()
		for b.Loop() {
			h.now = h.now.Add(10 * time.Microsecond)
			for i := range parts {
				m := &cmd.Want[i]
				cmds[i] = gatehouse.Command{Op: gatehouse.OpAcquire, Rule: m.Rule, Cost: m.Cost}
				queue[0] = Turn{Command: &cmds[i]}
				Serve(h.now, m.Key.Kind, parts[i].State, queue)
			}
		}
	})
}
