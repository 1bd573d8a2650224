//go:build linux || darwin

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The promises, in the order in which they are reported.
const (
	holdsStay    = "what is held stays held until its end"
	releasesStay = "what was released stays released"
	fencesRise   = "fencing tokens rise"
	roomIsKept   = "a lock has one holder, a semaphore as many as its size"
	countsStay   = "counters count once what was acknowledged"
	eventsStay   = "events once sent stay sent"
	ratesAreKept = "token buckets give no more than they may"
	inTime       = "each request is answered in time, or fails clearly"
	serversStay  = "servers end only when killed, and come back"
)

var guarantees = []string{
	holdsStay, releasesStay, fencesRise, roomIsKept, countsStay, eventsStay, ratesAreKept, inTime,
	serversStay,
}

// margin is how much earlier than by the clock of its client a hold may end. Lengths are whole milliseconds.
const margin = 20 * time.Millisecond

// A historyPoint is where in a history something is.
type historyPoint struct {
	key string
	at  time.Duration
}

// A breach is a promise that was not kept.
type breach struct {
	historyPoint
	text    string
	history string
}

// A checkCount is how often a promise was put to the test, and what came of it.
type checkCount struct {
	checked, broken int
	first           []breach
}

// maxBreaches is how many breaches of a promise are shown.
const maxBreaches = 3

// A historyJudge compares the answers that clients got with what was promised.
type historyJudge struct {
	run         *chaosRun
	callsByName map[string][]*recordedCall // in the order in which they were asked
	losses      []time.Duration            // when a store lost everything
	counts      map[string]*checkCount
}

// judgeRun is what a run is worth.
func judgeRun(r *chaosRun) *historyJudge {
	j := &historyJudge{run: r, callsByName: make(map[string][]*recordedCall),
		counts: make(map[string]*checkCount)}
	for _, p := range guarantees {
		j.counts[p] = &checkCount{}
	}
	for _, f := range r.faults {
		if f.wiped {
			j.losses = append(j.losses, f.at)
		}
	}
	// The calls of all clients in one order. Each check then goes through the calls on one name.
	slices.Sort(j.losses)
	slices.SortFunc(r.calls, func(a, b *recordedCall) int { return cmp.Compare(a.start, b.start) })
	for _, c := range r.calls {
		j.callsByName[c.key] = append(j.callsByName[c.key], c)
	}
	for key, calls := range j.callsByName {
		switch calls[0].keyKind() {
		case "lock", "semaphore":
			j.checkHolds(key, calls)
		case "counter":
			j.checkCounter(key, calls)
		case "event":
			j.checkEvent(key, calls)
		default:
			j.checkBucket(key, calls)
		}
	}
	j.checkTimes()
	// A failure has no name, and so no history.
	for _, err := range r.failures {
		j.recordBreach(serversStay, historyPoint{}, "%v", err)
	}
	// Each fault tests whether its victim comes back.
	j.counts[serversStay].checked = len(r.faults)
	return j
}

// countBreaches is how many breaches there are in all.
func (j *historyJudge) countBreaches() (n int) {
	for _, t := range j.counts {
		n += t.broken
	}
	return n
}

// recordBreach notes a breach.
func (j *historyJudge) recordBreach(promise string, at historyPoint, format string, args ...any) {
	t := j.counts[promise]
	t.broken++
	text := fmt.Sprintf(format, args...)
	// All are counted. Only the first have a history, which is slow to make and long to read.
	if len(t.first) < maxBreaches {
		t.first = append(t.first, breach{at, text, j.historyAround(at)})
	}
}

// historyBefore and after enclose what a history shows around a breach; what stays is asked for late.
const historyBefore, historyAfter = 6 * time.Second, time.Second

// historyAround is what was asked under a name around some time, and what was done to processes.
func (j *historyJudge) historyAround(p historyPoint) string {
	calls, at := j.callsByName[p.key], p.at
	// With few calls all are shown: the grant that matters may be long past.
	rare := len(calls) < 100
	var lines []string
	for _, c := range calls {
		if rare || c.end > at-historyBefore && c.start < at+historyAfter {
			lines = append(lines, c.String())
		}
	}
	for _, f := range j.run.faults {
		if p.key != "" && (rare || f.back > at-historyBefore && f.at < at+historyAfter) {
			lines = append(lines, f.String())
		}
	}
	slices.Sort(lines) // they begin with the time, at a fixed width
	return strings.Join(lines, "\n")
}

// String is the fault as histories show it.
func (f *injectedFault) String() string {
	what := "was killed"
	switch {
	case f.frozen:
		what = "stood still"
	case f.wiped:
		what = "was killed, and lost everything"
	}
	// forever has too many digits for the column.
	back := min(f.back, time.Hour)
	return fmt.Sprintf("%9.3f to %9.3f  %s %s", f.at.Seconds(), back.Seconds(), f.victim, what)
}

// lostBetween reports whether a store lost everything in that time.
func (j *historyJudge) lostBetween(from, to time.Duration) bool {
	return slices.ContainsFunc(j.losses, func(at time.Duration) bool { return at >= from && at <= to })
}

// firstLoss is when a store lost everything next.
func (j *historyJudge) firstLoss(from time.Duration) time.Duration {
	for _, at := range j.losses {
		if at >= from {
			return at
		}
	}
	return forever
}

// checkCounter holds the calls on a counter against what it came to.
func (j *historyJudge) checkCounter(key string, calls []*recordedCall) {
	var sure, perhaps int64
	var last *recordedCall
	for _, c := range calls {
		switch {
		case c.final && c.outcome == granted:
			last = c
		case c.op == "count" && c.outcome == granted:
			sure += c.amount
		case c.op == "count" && c.isUncertain():
			perhaps += c.amount
		}
	}
	if last == nil {
		j.recordBreach(countsStay, historyPoint{key, calls[len(calls)-1].end},
			"it tells no value in the last look")
		return
	}
	j.counts[countsStay].checked++
	// Counts without an answer may or may not be in it. A store that loses everything may have lost all.
	low := sure
	if j.run.variant.loses {
		low = 0
	}
	if last.value < low || last.value > sure+perhaps {
		j.recordBreach(countsStay, historyPoint{key, last.start},
			"its value is %d at last, want %d, and at most %d more of which nobody knows",
			last.value, sure, perhaps)
	}
	j.checkMonotonic(key, calls)
}

// sortedByEnd is the calls in the order of their answers.
func sortedByEnd(calls []*recordedCall) []*recordedCall {
	return slices.SortedFunc(slices.Values(calls),
		func(a, b *recordedCall) int { return cmp.Compare(a.end, b.end) })
}

// checkMonotonic checks that the value of a counter never falls.
func (j *historyJudge) checkMonotonic(key string, calls []*recordedCall) {
	// A store that lost everything counts from 0 again.
	if len(j.losses) > 0 {
		return
	}
	told := slices.DeleteFunc(slices.Clone(calls), func(c *recordedCall) bool { return c.outcome != granted })
	byEnd := sortedByEnd(told)
	// Only what was answered before a call began is known to come before it: calls at the same time may take
	// effect in any order.
	highest, i := int64(0), 0
	for _, c := range told {
		// It stops at c itself at the latest, which does not end before it starts.
		for ; byEnd[i].end < c.start; i++ {
			highest = max(highest, byEnd[i].value)
		}
		j.counts[countsStay].checked++
		// The amount is 0 for a call that only reads.
		if c.value < highest+c.amount {
			j.recordBreach(countsStay, historyPoint{key, c.start}, "it told %d, after %d had been told",
				c.value, highest)
		}
	}
}

// checkEvent compares what was answered about an event with its sending.
func (j *historyJudge) checkEvent(key string, calls []*recordedCall) {
	t := j.counts[eventsStay]
	var sent *recordedCall
	for _, c := range calls {
		if c.op == "send" && c.outcome == granted && sent == nil {
			sent = c
			continue
		}
		// Calls that began before the sending was answered prove nothing, nor do those over a loss.
		if sent == nil || c.start < sent.end || !c.isDecided() || j.lostBetween(sent.start, c.end) {
			continue
		}
		t.checked++
		if c.op == "send" && c.outcome == granted {
			j.recordBreach(eventsStay, historyPoint{key, c.start}, "it was sent twice")
		}
		if c.op == "wait" && (c.outcome != granted || c.text != sent.message) {
			j.recordBreach(eventsStay, historyPoint{key, c.start},
				"a wait after it was sent: %s, message %q, want %q",
				c.outcome, c.text, sent.message)
		}
	}
}
