package control

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A house is some controllers by their names, as a store keeps them.
type house struct {
	states map[gatehouse.Key]State
	now    time.Time
	parts  GrantParts
	room   *Room
	fences map[gatehouse.Key]uint64 // the least of each name, as a store may tell it
}

func newHouse() *house { return &house{states: map[gatehouse.Key]State{}, now: epoch()} }

// serve serves the parts as one change.
func (h *house) serve() (granted bool) {
	parts := make([]JointPart, len(h.parts.Parts))
	for i := range parts {
		p := &h.parts.Parts[i]
		p.Turn.MinFence = h.fences[p.Key]
		parts[i] = JointPart{Part: p, State: h.states[p.Key], Room: h.room}
	}
	granted = ServeJoint(h.now, parts)
	for i := range parts {
		h.states[parts[i].Key] = parts[i].State
		if parts[i].State == nil {
			delete(h.states, parts[i].Key)
		}
	}
	return granted
}

// do carries out a command about a grant as a gate would.
func (h *house) do(t testing.TB, cmd gatehouse.GrantCommand) (d gatehouse.GrantDecision) {
	t.Helper()
	d, err := h.try(cmd)
	if err != nil {
		t.Fatalf("%s %s: %v", cmd.Op, cmd.ID, err)
	}
	return d
}

// try is do, but returns what could not be served.
func (h *house) try(cmd gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	err = cmd.Check()
	if err != nil {
		return d, err
	}
	if cmd.Op == gatehouse.OpAcquire {
		h.parts.Acquire(&cmd)
		granted := h.serve()
		err = h.parts.Decide(granted, &d)
		return d, err
	}
	h.parts.Peek(&cmd)
	granted := h.serve()
	record := h.parts.Parts[0].Turn.Decision.Grant
	if cmd.Op != gatehouse.OpPeek && record != nil {
		err = h.parts.Follow(&cmd, record)
		if err != nil {
			return d, err
		}
		granted = h.serve()
	}
	err = h.parts.Decide(granted, &d)
	return d, err
}

// alone applies a command to one name.
func (h *house) alone(key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	queue := []Turn{{Command: &cmd}}
	h.states[key] = Serve(h.now, key.Kind, h.states[key], queue)
	return queue[0].Decision
}

// held is how many slots of a semaphore or a lock are held.
func (h *house) held(key gatehouse.Key) int64 {
	s, ok := h.states[key].(*Semaphore)
	if !ok {
		return 0
	}
	Expire(h.now, s)
	return s.heldCost
}

// left is what is left of a limiter.
func (h *house) left(key gatehouse.Key) int64 {
	return h.alone(key, gatehouse.Command{Op: gatehouse.OpPeek}).Remaining
}

// Names of a few controllers, and what a grant wants of them.
func keyOf(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

func ofLimit(kind gatehouse.Kind, name string, size, cost int64) gatehouse.Member {
	return gatehouse.Member{Key: keyOf(kind, name), Cost: cost, Rule: gatehouse.Rule{
		Size: size, Burst: size - 1, Interval: time.Minute,
	}}
}

func ofSlots(name string, size, cost int64) gatehouse.Member {
	return gatehouse.Member{
		Key: keyOf(gatehouse.Semaphore, name), Cost: cost, Rule: gatehouse.Rule{Size: size},
	}
}

func ofLock(name string) gatehouse.Member {
	return gatehouse.Member{Key: keyOf(gatehouse.Lock, name), Cost: 1}
}

func acquireOf(id string, want ...gatehouse.Member) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Want: want}
	if id != "" {
		cmd.Expires = time.Minute
	}
	return cmd
}

// TestJointAllOrNothing: a grant takes of all its members or of none, and says which of them binds.
func TestJointAllOrNothing(t *testing.T) {
	bucket, gcra := keyOf(gatehouse.TokenBucket, "b"), keyOf(gatehouse.GCRA, "g")
	slots, lock := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l")
	for _, c := range []struct {
		name    string
		before  map[gatehouse.Key]gatehouse.Command // what others have taken
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
			before:  map[gatehouse.Key]gatehouse.Command{lock: {Expires: time.Second}, slots: {Expires: time.Second}},
			outcome: gatehouse.Refused, binding: 0, retry: time.Second},
		{name: "one is refused", cmd: acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l")),
			before:  map[gatehouse.Key]gatehouse.Command{lock: {Expires: 5 * time.Second}},
			outcome: gatehouse.Refused, binding: 1, retry: 5 * time.Second},
		{name: "the longest binds", cmd: acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l")),
			before: map[gatehouse.Key]gatehouse.Command{
				lock:   {Expires: 5 * time.Second},
				bucket: {Rule: gatehouse.Rule{Size: 10, Interval: time.Minute}, Cost: 7},
			},
			outcome: gatehouse.Refused, binding: 0, retry: time.Minute},
		{name: "no known end is longest", cmd: acquireOf("x", ofLimit(gatehouse.TokenBucket, "b", 10, 4), ofLock("l")),
			before: map[gatehouse.Key]gatehouse.Command{
				lock:   {},
				bucket: {Rule: gatehouse.Rule{Size: 10, Interval: time.Minute}, Cost: 7},
			},
			outcome: gatehouse.Refused, binding: 1, retry: gatehouse.Forever},
		{name: "a contradiction binds before a refusal",
			cmd: acquireOf("x", ofLock("l"), ofLimit(gatehouse.GCRA, "g", gatehouse.InForce, 4)),
			before: map[gatehouse.Key]gatehouse.Command{
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
			if d.Outcome != c.outcome || d.Binding != c.binding || d.RetryAfter != c.retry || d.Message != c.message {
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
	return s.holds[GrantHolder("x")] != nil
}

// TestJointLife: a grant is seen, renewed and released; what it holds ends with it, and its id is remembered.
func TestJointLife(t *testing.T) {
	h := newHouse()
	slots, lock, bucket := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l"), keyOf(gatehouse.TokenBucket, "b")
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
	if again.Outcome != gatehouse.Granted || again.Fence != first.Fence || h.left(bucket) != 6 || h.held(slots) != 2 {
		t.Errorf("the same again = %+v with %d left", again, h.left(bucket))
	}
	other := h.do(t, acquireOf("x", want[:2]...))
	if other.Outcome != gatehouse.Conflict || other.Message != "grant/x is there already" {
		t.Errorf("another want = %+v", other)
	}
	h.now = h.now.Add(50 * time.Second)
	renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "x", Expires: gatehouse.AsAcquired, Fence: first.Fence}
	if d := h.do(t, renew); d.Outcome != gatehouse.Granted || d.ExpiresAfter != time.Minute {
		t.Errorf("renew = %+v", d)
	}
	h.now = h.now.Add(59 * time.Second)
	peek := gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "x"}
	if d := h.do(t, peek); d.Outcome != gatehouse.Granted || d.ExpiresAfter != time.Second || h.held(lock) != 1 {
		t.Errorf("peek = %+v", d)
	}
	renew.Fence++
	if d := h.do(t, renew); d.Outcome != gatehouse.Conflict {
		t.Errorf("renew with another fence = %+v", d)
	}
	h.now = h.now.Add(time.Second)
	if d := h.do(t, peek); !d.Ended || d.Outcome != gatehouse.Granted || h.held(lock) != 0 || h.held(slots) != 0 {
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
	if d := h.do(t, release); d.Outcome != gatehouse.Granted || h.held(lock) != 0 || h.held(slots) != 0 {
		t.Errorf("release = %+v", d)
	}
}

// TestJointFence: the one fencing token of a grant is above every earlier one under each of its names.
func TestJointFence(t *testing.T) {
	h := newHouse()
	slots, lock := keyOf(gatehouse.Semaphore, "s"), keyOf(gatehouse.Lock, "l")
	h.fences = map[gatehouse.Key]uint64{slots: 7_000_000_000_000_000, lock: 12}
	first := h.do(t, acquireOf("a", ofLock("l"), ofSlots("s", 9, 1)))
	if first.Fence != 7_000_000_000_000_000 || first.Want[0].Fence != first.Fence || first.Want[1].Fence != first.Fence {
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
