package cas

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// atStart is when the records of these tests were made; their times are relative to it.
func atStart() time.Time { return time.Unix(1_000_000, 0) }

// fromStart is an instant in Unix ns.
func fromStart(d time.Duration) int64 { return atStart().Add(d).UnixNano() }

// A decideCase is what is known, who asks and when, and what must come out.
type decideCase struct {
	name   string
	kind   gatehouse.Kind
	before []control.Turn // that made the state, at the start; none when there is no record
	record storedRecord   // what else is in the record
	leased bool           // the backend ends holds
	change func(in *decideInput)
	now    time.Duration
	queue  []control.Turn
	want   string // as tellUpdate says it
}

// input is what the decision rests on. The server is number 1, and its fencing tokens begin with 100.
func (c *decideCase) input(t *testing.T) *decideInput {
	t.Helper()
	k := knownRecord{kind: c.kind, record: c.record}
	k.record.doneUndos, k.record.heads = slices.Clone(k.record.doneUndos), slices.Clone(k.record.heads)
	if c.before != nil {
		before := slices.Clone(c.before)
		for i := range before {
			before[i].MinFence, before[i].Leased = 50, c.leased
		}
		k.record.encodedState = control.Encode(nil, control.Serve(atStart(), c.kind, nil, before))
		for i := range before {
			k.record.fence = max(k.record.fence, before[i].Decision.Fence)
		}
		if k.record.asOf == 0 {
			k.record.asOf = fromStart(0)
		}
	}
	if err := k.decodeState(); err != nil {
		t.Fatal(err)
	}
	in := &decideInput{
		server: serverTraits{number: 1, maxHolders: 1000, expiresHolds: c.leased},
		kind:   c.kind, record: &k.record, state: k.state,
		turns: slices.Clone(c.queue), now: fromStart(c.now), nonce: 77, minFence: 100,
	}
	if c.change != nil {
		c.change(in)
	}
	return in
}

func runDecideCases(t *testing.T, cases []decideCase) {
	t.Helper()
	buffers := &decideBuffers{}
	for _, c := range cases {
		in := c.input(t)
		// The buffers of one decision must not show in the next.
		u := decided(in, buffers)
		if got := tellUpdate(in, &u); got != c.want {
			t.Errorf("%s:\n got  %s\n want %s", c.name, got, c.want)
		}
	}
}

// tellUpdate says what is decided, and what there is beside that: only what differs from before.
func tellUpdate(in *decideInput, u *recordUpdate) string {
	var decisions []string
	for i := range u.decisions {
		decisions = append(decisions, tellDecision(in.turns[i].Op, &u.decisions[i]))
	}
	parts := []string{strings.Join(decisions, ", ")}
	tell := func(differs bool, format string, args ...any) {
		if differs {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	tell(u.write, "write")
	tell(u.now != in.now, "at %s", time.Duration(u.now-fromStart(0)))
	tell(u.state == nil || control.Absent(u.state), "no state")
	tell(u.next.fence != in.record.fence, "fence %d", u.next.fence)
	tell(u.next.deletedAt != in.record.deletedAt, "deleted %s", tellDelete(u.next.deletedAt))
	tell(!slices.Equal(u.next.heads, in.record.heads), "heads %s", tellHeads(u.next.heads))
	tell(!slices.Equal(u.next.doneUndos, in.record.doneUndos), "done %d", u.next.doneUndos)
	tell(len(u.wake) > 0, "wake %d", u.wake)
	tell(len(u.newHolds) > 0, "begin %s", tellHolds(u.newHolds))
	tell(len(u.endedHolds) > 0, "end %s", tellHolds(u.endedHolds))
	tell(u.unstored > 0, "unstored %d", u.unstored)
	tell(u.refusals.count > 0, "refusals %d", u.refusals.count)
	return strings.Join(parts, "; ")
}

func tellDelete(at int64) string {
	if at == 0 {
		return "never"
	}
	return fmt.Sprint("at ", time.Duration(at-fromStart(0)))
}

func tellDecision(op gatehouse.Op, d *gatehouse.Decision) string {
	text := d.Outcome.String()
	switch {
	case d.Outcome == gatehouse.Refused && d.RetryAfter == gatehouse.Forever:
		text += " for now"
	case d.Outcome == gatehouse.Refused:
		text += " for " + d.RetryAfter.String()
	case d.Fence != 0:
		text += fmt.Sprint(" ", d.Fence)
	case op == gatehouse.OpPeek:
		text += fmt.Sprintf(" %d left", d.Remaining)
	case op == gatehouse.OpValue:
		text += fmt.Sprint(" ", d.Value)
	}
	return text
}

// tellHeads names the server of each head, its ticket, and for how long it bars others.
func tellHeads(heads []lineHead) string {
	text := []string{}
	for _, h := range heads {
		until := time.Duration(h.until - fromStart(0))
		text = append(text, fmt.Sprintf("%d:%d until %s", h.server, h.ticket&0xffffffff, until))
	}
	return fmt.Sprint(text)
}

func tellHolds(holds []control.Hold) string {
	text := []string{}
	for _, h := range holds {
		text = append(text, fmt.Sprint(h.Holder, " ", h.Fence))
	}
	return fmt.Sprint(text)
}

// one is the turn of somebody who does not wait.
func one(cmd gatehouse.Command) control.Turn { return control.Turn{Command: &cmd} }

// arriving is that of somebody who is looked at first, and may wait.
func arriving(ticket control.Ticket, cmd gatehouse.Command) control.Turn {
	cmd.MaxWait = gatehouse.Forever
	return control.Turn{Command: &cmd, Ticket: FirstTicket(1) + ticket}
}

// waiting is that of somebody who has waited since then.
func waiting(ticket control.Ticket, since time.Duration, cmd gatehouse.Command) control.Turn {
	turn := arriving(ticket, cmd)
	turn.Again, turn.Since = true, atStart().Add(since)
	return turn
}

// headOf is the head of a server: its first came at an instant, and bars others until another.
func headOf(server uint32, since, until time.Duration) lineHead {
	return lineHead{
		server: server, ticket: FirstTicket(server) + 7, since: fromStart(since), until: fromStart(until),
	}
}

func acquireBy(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder,
		Rule: gatehouse.Rule{Size: 2}, Cost: 1, Expires: 10 * time.Second,
	}
}

func commandBy(op gatehouse.Op, holder string) gatehouse.Command {
	cmd := acquireBy(holder)
	cmd.Op = op
	return cmd
}

// ofWindow is a command of a limiter of 3 in 10 s.
func ofWindow(op gatehouse.Op, cost int64) gatehouse.Command {
	return gatehouse.Command{Op: op, Rule: gatehouse.Rule{Size: 3, Interval: 10 * time.Second}, Cost: cost}
}

func only(op gatehouse.Op) gatehouse.Command {
	return gatehouse.Command{Op: op, Rule: gatehouse.Rule{Size: 2}}
}

// undoOfTake is an undo of a grant that was made then.
func undoOfTake(at time.Duration, generation uint64) control.Turn {
	cmd := ofWindow(gatehouse.OpUndo, 1)
	return control.Turn{Command: &cmd, Granted: &gatehouse.Decision{
		Outcome: gatehouse.Granted, At: atStart().Add(at), ResetAfter: 10 * time.Second,
		Interval: cmd.Interval, Generation: generation,
	}}
}

// What is granted is written; a refusal that leaves no trace but a count is not.
func TestDecideGrantsAndRefusals(t *testing.T) {
	taken := []control.Turn{one(ofWindow(gatehouse.OpAcquire, 3))}
	resized := ofWindow(gatehouse.OpAcquire, 1)
	resized.Size = 2
	stopped := ofWindow(gatehouse.OpAcquire, 1)
	stopped.Size = 0
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 5}
	runDecideCases(t, []decideCase{{
		name: "the first of a lock", kind: gatehouse.Lock, queue: []control.Turn{one(acquireBy("a"))},
		want: "granted 100; write; fence 100",
	}, {
		name: "a held lock", kind: gatehouse.Lock, before: []control.Turn{one(acquireBy("a"))},
		now: time.Second, queue: []control.Turn{one(acquireBy("b"))},
		want: "refused for 9s; refusals 1",
	}, {
		name: "two of a semaphore, and one too many", kind: gatehouse.Semaphore,
		queue: []control.Turn{one(acquireBy("a")), one(acquireBy("b")), one(acquireBy("c"))},
		want:  "granted 100, granted 101, refused for 10s; write; fence 101; refusals 1",
	}, {
		name: "the first of a name, refused", kind: gatehouse.FixedWindow,
		queue: []control.Turn{one(stopped)},
		want:  "refused for now; write; refusals 1",
	}, {
		name: "a limiter that is exhausted", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		queue: []control.Turn{one(ofWindow(gatehouse.OpAcquire, 1)), one(ofWindow(gatehouse.OpAcquire, 1))},
		want:  "refused for 9s, refused for 9s; refusals 2",
	}, {
		name: "a refusal with another limit", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		queue: []control.Turn{one(resized)},
		want:  "refused for 9s; write; refusals 1",
	}, {
		name: "a reservation", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		queue: []control.Turn{one(ofWindow(gatehouse.OpReserve, 1))},
		want:  "granted; write",
	}, {
		name: "a look", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		queue: []control.Turn{one(ofWindow(gatehouse.OpPeek, 0))},
		want:  "granted 0 left",
	}, {
		name: "counts and values", kind: gatehouse.Counter,
		queue: []control.Turn{
			one(count), one(only(gatehouse.OpValue)), one(count), one(only(gatehouse.OpValue)),
		},
		want: "granted, granted 5, granted, granted 10; write",
	}, {
		name: "the value of none", kind: gatehouse.Counter,
		queue: []control.Turn{one(only(gatehouse.OpValue))},
		want:  "granted 0",
	}, {
		name: "the statistics of none", kind: gatehouse.Lock,
		queue: []control.Turn{one(only(gatehouse.OpStats))},
		want:  "missing; no state",
	}, {
		name: "the release of what is not held", kind: gatehouse.Lock,
		before: []control.Turn{one(acquireBy("a"))}, now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRelease, "b"))},
		want:  "conflict",
	}, {
		name: "a hold that has ended", kind: gatehouse.Lock, before: []control.Turn{one(acquireBy("a"))},
		now: 11 * time.Second, queue: []control.Turn{one(acquireBy("b"))},
		want: "granted 100; write; fence 100",
	}})
}

// Refusals that this server has counted and not stored belong to the controller at which they were counted.
func TestDecideCountsUnstoredRefusals(t *testing.T) {
	taken := []control.Turn{one(ofWindow(gatehouse.OpAcquire, 3))}
	counted := func(since time.Duration) func(*decideInput) {
		return func(in *decideInput) { in.refusals = refusalCount{4, atStart().Add(since)} }
	}
	refused := []control.Turn{one(ofWindow(gatehouse.OpAcquire, 1))}
	runDecideCases(t, []decideCase{{
		name: "of this one", kind: gatehouse.FixedWindow, before: taken, change: counted(0),
		now: time.Second, queue: refused,
		want: "refused for 9s; unstored 4; refusals 1",
	}, {
		name: "of one that was deleted since", kind: gatehouse.FixedWindow, before: taken,
		change: counted(-time.Hour), now: time.Second, queue: refused,
		want: "refused for 9s; refusals 1",
	}, {
		name: "of one that is gone", kind: gatehouse.FixedWindow, change: counted(0),
		now: time.Second, queue: []control.Turn{one(ofWindow(gatehouse.OpPeek, 0))},
		want: "granted 3 left; no state",
	}, {
		name: "with a grant", kind: gatehouse.FixedWindow, before: taken, change: counted(0),
		now: 11 * time.Second, queue: refused,
		want: "granted; write; unstored 4",
	}})
}

// Every decision can be made again: what goes in stays as it is, and the same comes out.
func TestDecideChangesNothingThatGoesIn(t *testing.T) {
	c := decideCase{
		kind: gatehouse.Semaphore, before: []control.Turn{one(acquireBy("a")), one(acquireBy("b"))},
		leased: true, record: storedRecord{
			doneUndos: []uint64{1, 2, 3}, heads: []lineHead{headOf(2, 0, 3*time.Second)}, deletedAt: 5,
		},
		change: func(in *decideInput) {
			in.undos = []*undo{{id: 9, turn: 1}}
			in.endedHolds = []control.Hold{{Holder: "a", Fence: 1}}
		},
		now: time.Second,
		queue: []control.Turn{
			arriving(1, acquireBy("c")), one(commandBy(gatehouse.OpUndo, "b")),
			one(commandBy(gatehouse.OpRelease, "b")), one(only(gatehouse.OpDelete)),
		},
	}
	in, again := c.input(t), c.input(t)
	commands := []gatehouse.Command{}
	for i := range in.turns {
		commands = append(commands, *in.turns[i].Command)
	}
	buffers := &decideBuffers{}
	u := decided(in, buffers)
	first := tellUpdate(in, &u)
	in.state, again.state = nil, nil   // the one thing that is the update's
	if !reflect.DeepEqual(in, again) { //nolint:govet // no turn has an error yet
		t.Errorf("the input has become\n%+v, want\n%+v", in, again)
	}
	for i := range in.turns {
		if !reflect.DeepEqual(*in.turns[i].Command, commands[i]) {
			t.Errorf("command %d has become\n%+v, want\n%+v", i, *in.turns[i].Command, commands[i])
		}
	}
	for range 3 {
		in = c.input(t)
		u = decided(in, buffers)
		if got := tellUpdate(in, &u); got != first {
			t.Errorf("decided again\n%s, want\n%s", got, first)
		}
	}
}

// Room is waited for by who is refused for lack of it, and not by who is behind another server's line.
func TestRoomAfter(t *testing.T) {
	taken := []control.Turn{one(ofWindow(gatehouse.OpAcquire, 3))}
	acquire := one(ofWindow(gatehouse.OpAcquire, 1))
	for _, c := range []struct {
		decideCase
		after time.Duration
		is    bool
	}{
		{decideCase{name: "refused", before: taken, queue: []control.Turn{acquire}}, 9 * time.Second, true},
		{decideCase{name: "granted", queue: []control.Turn{acquire}}, 0, false},
		{decideCase{
			name: "a look", before: taken, queue: []control.Turn{one(ofWindow(gatehouse.OpPeek, 1))},
		}, 0, false},
		{decideCase{
			name: "behind another line", before: taken, queue: []control.Turn{acquire},
			record: storedRecord{heads: []lineHead{headOf(2, 0, 2*time.Second)}},
		}, 0, false},
	} {
		c.kind, c.now = gatehouse.FixedWindow, time.Second
		in := c.input(t)
		u := decided(in, &decideBuffers{})
		if after, is := u.roomAfter(in.turns); after != c.after || is != c.is {
			t.Errorf("%s: room after %s, %t, want %s, %t", c.name, after, is, c.after, c.is)
		}
	}
}

// decided is what becomes of a record.
func decided(in *decideInput, buffers *decideBuffers) (u recordUpdate) {
	decide(in, buffers, &u)
	return u
}
