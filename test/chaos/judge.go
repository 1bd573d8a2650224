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

var promises = []string{
	holdsStay, releasesStay, fencesRise, roomIsKept, countsStay, eventsStay, ratesAreKept, inTime,
	serversStay,
}

// margin is how much earlier than by the clock of its client a hold may end. Lengths are whole milliseconds.
const margin = 20 * time.Millisecond

// A place is where in a history something is.
type place struct {
	key string
	at  time.Duration
}

// A breach is a promise that was not kept.
type breach struct {
	place
	text    string
	history string
}

// A tally is how often a promise was put to the test, and what came of it.
type tally struct {
	checked, broken int
	first           []breach
}

// mostBreaches is how many breaches of a promise are shown.
const mostBreaches = 3

// A judge compares what clients were told with what was promised.
type judge struct {
	run    *run
	names  map[string][]*call // in the order in which they were asked
	losses []time.Duration    // when a store lost everything
	tally  map[string]*tally
}

// judged is what a run is worth.
func judged(r *run) *judge {
	j := &judge{run: r, names: make(map[string][]*call), tally: make(map[string]*tally)}
	for _, p := range promises {
		j.tally[p] = &tally{}
	}
	for _, f := range r.faults {
		if f.wiped {
			j.losses = append(j.losses, f.at)
		}
	}
	slices.Sort(j.losses)
	slices.SortFunc(r.calls, func(a, b *call) int { return cmp.Compare(a.start, b.start) })
	for _, c := range r.calls {
		j.names[c.key] = append(j.names[c.key], c)
	}
	for key, calls := range j.names {
		switch calls[0].kind() {
		case "lock", "semaphore":
			j.holds(key, calls)
		case "counter":
			j.counter(key, calls)
		case "event":
			j.event(key, calls)
		default:
			j.bucket(key, calls)
		}
	}
	j.times()
	for _, err := range r.broken {
		j.breach(serversStay, place{}, "%v", err)
	}
	j.tally[serversStay].checked = len(r.faults)
	return j
}

// broken is how many breaches there are in all.
func (j *judge) broken() (n int) {
	for _, t := range j.tally {
		n += t.broken
	}
	return n
}

// breach notes a breach.
func (j *judge) breach(promise string, at place, format string, args ...any) {
	t := j.tally[promise]
	t.broken++
	text := fmt.Sprintf(format, args...)
	if len(t.first) < mostBreaches {
		t.first = append(t.first, breach{at, text, j.history(at)})
	}
}

// before and after enclose what a history shows around a breach; what stays is asked for late.
const before, after = 6 * time.Second, time.Second

// history is what was asked under a name around some time, and what was done to processes.
func (j *judge) history(p place) string {
	calls, at := j.names[p.key], p.at
	rare := len(calls) < 100
	var lines []string
	for _, c := range calls {
		if rare || c.end > at-before && c.start < at+after {
			lines = append(lines, c.String())
		}
	}
	for _, f := range j.run.faults {
		if p.key != "" && (rare || f.back > at-before && f.at < at+after) {
			lines = append(lines, f.String())
		}
	}
	slices.Sort(lines) // they begin with the time, at a fixed width
	return strings.Join(lines, "\n")
}

// String is the fault as histories show it.
func (f *fault) String() string {
	what := "was killed"
	switch {
	case f.frozen:
		what = "stood still"
	case f.wiped:
		what = "was killed, and lost everything"
	}
	back := min(f.back, time.Hour)
	return fmt.Sprintf("%9.3f to %9.3f  %s %s", f.at.Seconds(), back.Seconds(), f.victim, what)
}

// lostBetween reports whether a store lost everything in that time, or so shortly before that it may have.
func (j *judge) lostBetween(from, to time.Duration) bool {
	return slices.ContainsFunc(j.losses, func(at time.Duration) bool { return at >= from && at <= to })
}

// firstLoss is when a store lost everything next.
func (j *judge) firstLoss(from time.Duration) time.Duration {
	for _, at := range j.losses {
		if at >= from {
			return at
		}
	}
	return forever
}

// counter holds the calls on a counter against what it came to.
func (j *judge) counter(key string, calls []*call) {
	var sure, perhaps int64
	var last *call
	for _, c := range calls {
		switch {
		case c.final && c.outcome == granted:
			last = c
		case c.op == "count" && c.outcome == granted:
			sure += c.amount
		case c.op == "count" && c.maybe():
			perhaps += c.amount
		}
	}
	if last == nil {
		j.breach(countsStay, place{key, calls[len(calls)-1].end}, "it tells no value in the last look")
		return
	}
	j.tally[countsStay].checked++
	low := sure
	if j.run.variant.loses {
		low = 0
	}
	if last.value < low || last.value > sure+perhaps {
		j.breach(countsStay, place{key, last.start},
			"its value is %d at last, want %d, and at most %d more of which nobody knows",
			last.value, sure, perhaps)
	}
	j.rise(key, calls)
}

// sortedByEnd is the calls in the order of their answers.
func sortedByEnd(calls []*call) []*call {
	return slices.SortedFunc(slices.Values(calls), func(a, b *call) int { return cmp.Compare(a.end, b.end) })
}

// rise looks whether what a counter tells never falls.
func (j *judge) rise(key string, calls []*call) {
	if len(j.losses) > 0 {
		return
	}
	told := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.outcome != granted })
	byEnd := sortedByEnd(told)
	highest, i := int64(0), 0
	for _, c := range told {
		for ; byEnd[i].end < c.start; i++ {
			highest = max(highest, byEnd[i].value)
		}
		j.tally[countsStay].checked++
		if c.value < highest+c.amount {
			j.breach(countsStay, place{key, c.start}, "it told %d, after %d had been told", c.value, highest)
		}
	}
}

// event holds what was told about an event against its sending.
func (j *judge) event(key string, calls []*call) {
	t := j.tally[eventsStay]
	var sent *call
	for _, c := range calls {
		if c.op == "send" && c.outcome == granted && sent == nil {
			sent = c
			continue
		}
		if sent == nil || c.start < sent.end || !c.decided() || j.lostBetween(sent.start, c.end) {
			continue
		}
		t.checked++
		if c.op == "send" && c.outcome == granted {
			j.breach(eventsStay, place{key, c.start}, "it was sent twice")
		}
		if c.op == "wait" && (c.outcome != granted || c.text != sent.message) {
			j.breach(eventsStay, place{key, c.start}, "a wait after it was sent: %s, message %q, want %q",
				c.outcome, c.text, sent.message)
		}
	}
}
