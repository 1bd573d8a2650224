// Package oracle judges histories: what clients asked for, what they were answered, and whether that is what
// was promised. Each promise is judged here once, for all that put load on servers: the tests of stores,
// the simulation, chaos and soak. They record each [Call], and keep for themselves what only they can know.
//
//   - [Judge.Calls] judges what was asked under one name: that holds never exceed the size, last until their
//     end and have rising fencing tokens; that counters add up; that events stay sent.
//   - [Judge.Spans] judges that a limiter let no more through than it may, in any of its windows.
//   - [Linear] and [History] look for an order of all calls that explains every answer.
//
// The clock is that of the clients, one for all of them, from an instant of their choice: what was answered
// was so at some instant between the beginning and the end of the call. Only spans may be by the clock of
// the store, where that says when it decided. What a call without an answer may have done counts for neither
// side.
package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Call is a command that a client gave, and what came of it. One that surely had no effect, as it reached
// no server, does not belong in a history.
type Call struct {
	Client     string // as texts name it
	Key        gatehouse.Key
	Command    gatehouse.Command
	Begin, End time.Duration // End is when it was answered, or its client gave up
	Answered   bool          // otherwise it may take effect at any time from Begin on, or never
	Decision   gatehouse.Decision
}

// Granted reports whether the client was told that the call was granted.
func (c *Call) Granted() bool { return c.Answered && c.Decision.Outcome == gatehouse.Granted }

// A Promise is what a judge judges, in a sentence.
type Promise string

// The promises, but for linearizability.
const (
	HoldsStay    Promise = "what is held stays held until its end"
	ReleasesStay Promise = "what was released stays released"
	FencesRise   Promise = "fencing tokens rise"
	RoomIsKept   Promise = "a lock has one holder, a semaphore as many as its size"
	CountsStay   Promise = "counters count once what was acknowledged"
	EventsStay   Promise = "events once sent stay sent"
	RatesAreKept Promise = "limiters let through no more than they may"
)

// A Judge holds calls against what was promised.
type Judge struct {
	// Losses are when all that was kept may have been lost, in order of time. Fencing tokens rise even so.
	Losses []time.Duration
	// Margin is how much earlier than by the clock of its client a hold may end by itself.
	Margin time.Duration
	// Report is told of each breach: when it was seen, and what is wrong.
	Report func(p Promise, at time.Duration, text string)
	// Tested counts how often each promise was put to the test, unless it is nil.
	Tested map[Promise]int
}

// Calls judges the calls on one name, in any order: on a lock, a semaphore, a counter whose
// amounts are not below 0 and which is not reset, or an event that is not deleted.
func (j *Judge) Calls(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	// A copy, since the caller's list is in an order of its own.
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Begin, b.Begin) })
	switch calls[0].Key.Kind {
	case gatehouse.Lock, gatehouse.Semaphore:
		j.checkHolds(calls)
	case gatehouse.Counter:
		j.checkCounter(calls)
	case gatehouse.Event:
		j.checkEvent(calls)
	}
}

func (j *Judge) countTest(p Promise) {
	if j.Tested != nil {
		j.Tested[p]++
	}
}

func (j *Judge) report(p Promise, at time.Duration, format string, args ...any) {
	j.Report(p, at, fmt.Sprintf(format, args...))
}

// lostBetween reports whether everything may have been lost in that time.
func (j *Judge) lostBetween(from, to time.Duration) bool {
	return slices.ContainsFunc(j.Losses, func(at time.Duration) bool { return at >= from && at <= to })
}

// sortedByEnd is the calls in the order of their ends.
func sortedByEnd(calls []*Call) []*Call {
	return slices.SortedFunc(slices.Values(calls), func(a, b *Call) int { return cmp.Compare(a.End, b.End) })
}

// checkCounter checks that each value that was told has in it what was acknowledged before, and no more than
// may have been counted until then, and that no value is below one that was told before.
func (j *Judge) checkCounter(calls []*Call) {
	// begun[i] is all that the first i calls may have counted.
	begun := make([]int64, len(calls)+1)
	for i, c := range calls {
		begun[i+1] = begun[i]
		if c.Command.Op == gatehouse.OpCount && (c.Granted() || !c.Answered) {
			begun[i+1] += c.Command.Amount
		}
	}
	// Only what was answered before a call began is known to come before it: calls at the same time may take
	// effect in any order.
	byEnd, next := sortedByEnd(calls), 0
	known, highest := int64(0), int64(0)
	for _, c := range calls {
		for ; byEnd[next].End < c.Begin; next++ {
			if before := byEnd[next]; before.Granted() {
				known += counted(before)
				highest = max(highest, before.Decision.Value)
			}
		}
		if !c.Granted() {
			continue
		}
		j.countTest(CountsStay)
		least, told := max(known, highest)+counted(c), c.Decision.Value
		if j.lostBetween(0, c.End) {
			least = counted(c)
		}
		i, _ := slices.BinarySearchFunc(calls, c.End+1, func(c *Call, at time.Duration) int {
			return cmp.Compare(c.Begin, at)
		})
		if told < least || told > begun[i] {
			j.report(CountsStay, c.Begin,
				"it told %d, want %d to %d: before it %d were acknowledged, and %d told",
				told, least, begun[i], known, highest)
		}
	}
}

// counted is what a call adds to a counter; 0 for one that only reads.
func counted(c *Call) int64 {
	if c.Command.Op != gatehouse.OpCount {
		return 0
	}
	return c.Command.Amount
}

// checkEvent checks that an event is sent once, and that whoever still waits then, or comes later, gets what
// was sent, and nobody anything else.
func (j *Judge) checkEvent(calls []*Call) {
	var sends []*Call // that may have been carried out
	var sent *Call    // the one that was acknowledged first
	for _, c := range calls {
		if c.Command.Op != gatehouse.OpSend {
			continue
		}
		j.countTest(EventsStay)
		if c.Answered && !c.Granted() {
			continue
		}
		sends = append(sends, c)
		if !c.Granted() {
			continue
		}
		if sent != nil && !j.lostBetween(sent.Begin, c.End) {
			j.report(EventsStay, c.Begin, "it was sent twice")
		}
		if sent == nil || c.End < sent.End {
			sent = c
		}
	}
	for _, c := range calls {
		if c.Command.Op != gatehouse.OpWait || !c.Answered {
			continue
		}
		j.countTest(EventsStay)
		got := c.Decision.Message
		from := func(s *Call) bool { return s.Command.Message == got && s.Begin <= c.End }
		lost := sent != nil && j.lostBetween(min(sent.Begin, c.Begin), max(sent.End, c.End))
		switch {
		case c.Granted() && !slices.ContainsFunc(sends, from):
			j.report(EventsStay, c.Begin, "%s got %q, which nobody had sent", c.Client, got)
		case sent == nil || lost:
		case c.Granted() && got != sent.Command.Message:
			j.report(EventsStay, c.Begin, "%s got %q, want %q", c.Client, got, sent.Command.Message)
		case !c.Granted() && (c.Command.MaxWait < 0 || sent.End <= c.Begin+c.Command.MaxWait):
			j.report(EventsStay, c.Begin, "it was sent at %s; %s waited for %s, and was told %s at %s",
				sent.End, c.Client, c.Command.MaxWait, c.Decision.Outcome, c.End)
		}
	}
}
