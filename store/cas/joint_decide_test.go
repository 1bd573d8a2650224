package cas

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A jointCase is what is known of the names of a grant, who asks for it and when, and what must come out.
type jointCase struct {
	name   string
	want   []gatehouse.Member
	before map[string][]control.Turn // by name: what made its state, at the start
	record map[string]storedRecord   // by name: what else is in its record
	leased bool
	change func(parts []jointPart)
	now    time.Duration
	wait   time.Duration
	result string // as tellJoint says it
}

// slotOf is a member that wants one of a number of slots.
func slotOf(name string, size int64) gatehouse.Member {
	return gatehouse.Member{
		Key:  gatehouse.Key{Kind: gatehouse.Semaphore, Name: name},
		Rule: gatehouse.Rule{Size: size}, Cost: 1,
	}
}

// tokensOf is a member that wants so many of ten tokens a minute.
func tokensOf(name string, cost int64) gatehouse.Member {
	return gatehouse.Member{
		Key:  gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name},
		Rule: gatehouse.Rule{Size: 10, Interval: time.Minute}, Cost: cost,
	}
}

// holdBy is a turn that holds a slot.
func holdBy(holder string, size int64, expires time.Duration) control.Turn {
	return control.Turn{Command: &gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: size}, Cost: 1, Expires: expires,
	}}
}

// parts are those of the grant "g", on what is known.
func (c *jointCase) parts(t *testing.T) []jointPart {
	t.Helper()
	var p control.GrantParts
	p.Acquire(&gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Minute, MaxWait: c.wait, Want: c.want,
	})
	parts := make([]jointPart, len(p.Parts))
	for i := range parts {
		one := decideCase{
			kind: p.Parts[i].Key.Kind, before: c.before[p.Parts[i].Key.Name],
			record: c.record[p.Parts[i].Key.Name], leased: c.leased, now: c.now,
		}
		if c.wait != 0 {
			p.Parts[i].Turn.Ticket = FirstTicket(1) + 5
		}
		parts[i].Part, parts[i].turns = &p.Parts[i], []control.Turn{p.Parts[i].Turn}
		parts[i].in = *one.input(t)
		parts[i].in.turns = parts[i].turns
	}
	if c.change != nil {
		c.change(parts)
	}
	return parts
}

// changeOf is the change that has these parts.
func (c *jointCase) changeOf(parts []jointPart) *control.JointChange {
	change := new(control.JointChange)
	for i := range parts {
		change.Parts = append(change.Parts, *parts[i].Part)
	}
	return change
}

// tellJoint says what is decided, and what becomes of each record: only what differs from before.
func tellJoint(granted bool, parts []jointPart) string {
	told := []string{fmt.Sprintf("granted %t", granted)}
	for i := range parts {
		p := &parts[i]
		text := tellUpdate(&p.in, &p.update)
		for _, h := range p.update.next.heads {
			if h.nonBlocking {
				text += fmt.Sprintf("; %d blocks nobody", h.server)
			}
		}
		told = append(told, p.Key.Name+" "+text)
	}
	return strings.Join(told, " | ")
}

// What a joint change makes of its records depends on what is known alone, and it can be decided again.
func TestDecideJoint(t *testing.T) {
	for _, c := range slices.Concat(plainJointCases(), jointLineCases()) {
		// Twice, as after a conflict: the first time leaves no trace.
		for range 2 {
			parts := c.parts(t)
			calls := []servedChange{{change: c.changeOf(parts), record: len(parts) - 1}}
			decideJoint(parts, calls, make([]control.JointPart, len(parts)))
			if got := tellJoint(calls[0].granted, parts); got != c.result {
				t.Errorf("%s:\n got  %s\n want %s", c.name, got, c.result)
			}
		}
	}
}

// heldByAnother is that the only slot of "b" is held.
func heldByAnother() map[string][]control.Turn {
	return map[string][]control.Turn{"b": {holdBy("x", 1, time.Hour)}}
}

// plainJointCases are grants of which nobody waits in front.
func plainJointCases() []jointCase {
	held, twoSlots := heldByAnother(), []gatehouse.Member{slotOf("a", 2), slotOf("b", 1)}
	late := storedRecord{asOf: fromStart(5 * time.Second)}
	return []jointCase{
		{
			name: "all are free", want: twoSlots,
			result: "granted true | a granted 100; write; fence 100 | b granted 100; write; fence 100 | " +
				"g granted 100; write; fence 100",
		},
		{
			name: "one fence for all, above each name's last", want: twoSlots,
			record: map[string]storedRecord{"b": {fence: 500}},
			result: "granted true | a granted 501; write; fence 501 | b granted 501; write; fence 501 | " +
				"g granted 501; write; fence 501",
		},
		{
			name: "one time for all, after each record's last", want: twoSlots, now: time.Second,
			record: map[string]storedRecord{"a": late},
			result: "granted true | a granted 100; write; at 5.000000001s; fence 100 | " +
				"b granted 100; write; at 5.000000001s; fence 100 | " +
				"g granted 100; write; at 5.000000001s; fence 100",
		},
		{
			name: "one is held", want: twoSlots, before: held, now: time.Second,
			result: "granted false | a granted 100; write | b refused for 59m59s; refusals 1 | " +
				"g granted 100; no state",
		},
		{
			name: "the name was deleted while it waited", want: twoSlots, now: time.Second, wait: time.Minute,
			record: map[string]storedRecord{"b": {deletedAt: fromStart(500 * time.Millisecond)}},
			change: func(parts []jointPart) {
				for i := range parts {
					turn := &parts[i].turns[0]
					turn.Again, turn.Since = true, atStart()
				}
			},
			result: "granted false | a granted 100 | b deleted; no state | g granted 100; no state",
		},
		{
			name: "a record is full", want: twoSlots,
			change: func(parts []jointPart) { parts[1].in.recordFull = true },
			result: "granted false | a granted 100; write | b exhausted; no state | g granted 100; " +
				"no state",
		},
		{
			name: "tokens are taken of none if one can never give as many",
			want: []gatehouse.Member{tokensOf("a", 5), tokensOf("b", 11)},
			result: "granted false | a granted 100; write | b conflict; write | g granted 100; no " +
				"state",
		},
		{
			name: "the backend has ended the hold that was in the way", want: twoSlots, before: held,
			leased: true, now: time.Second, change: func(parts []jointPart) {
				parts[1].in.endedHolds = parts[1].in.state.(*control.Semaphore).Holds()
			},
			result: "granted true | a granted 100; write; fence 100; begin [\x00grant/g 100] | b " +
				"granted 100; write; fence 100; begin [\x00grant/g 100] | g granted 100; write; " +
				"fence 100",
		},
	}
}

// jointLineCases are grants that wait, or before which others do.
func jointLineCases() []jointCase {
	held, twoSlots := heldByAnother(), []gatehouse.Member{slotOf("a", 2), slotOf("b", 1)}
	head := func(nonBlocking bool) map[string]storedRecord {
		return map[string]storedRecord{"b": {asOf: fromStart(0), heads: []lineHead{{
			server: 2, ticket: FirstTicket(2) + 1, since: fromStart(1),
			until: fromStart(2 * time.Second), nonBlocking: nonBlocking,
		}}}}
	}
	return []jointCase{
		{
			name: "it waits for one that is held, in whose record it has a head",
			want: twoSlots, before: held,
			now: time.Second, wait: gatehouse.Forever, change: func(parts []jointPart) {
				parts[0].NonBlocking, parts[1].NonBlocking = true, true
			},
			result: "granted false | a granted 100; write | b refused for 59m59s; write; heads [1:5 " +
				"until 4s]; 1 blocks nobody | g granted 100; no state",
		},
		{
			name: "it keeps a line that it could take", want: twoSlots, before: held, now: time.Second,
			wait: gatehouse.Forever, change: func(parts []jointPart) { parts[1].NonBlocking = true },
			result: "granted false | a granted 100; write; heads [1:5 until 4s] | b refused for " +
				"59m59s; write; heads [1:5 until 4s]; 1 blocks nobody | g granted 100; no state",
		},
		{
			name: "another server's head is before it", want: twoSlots, record: head(false),
			now: time.Second,
			result: "granted false | a granted 100; write | b refused for now; write; refusals 1 | g " +
				"granted 100; no state",
		},
		{
			name: "another server's head keeps nobody back, and is told", want: twoSlots, record: head(true),
			now: time.Second,
			result: "granted true | a granted 100; write; fence 100 | b granted 100; write; fence " +
				"100; 2 blocks nobody | g granted 100; write; fence 100",
		},
	}
}
