//go:build linux || darwin

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/test/oracle"
)

// The promises that are judged here and not by the oracle.
const (
	inTime      oracle.Promise = "each request is answered in time, or fails clearly"
	serversStay oracle.Promise = "servers end only when killed, and come back"
)

// guarantees are all promises, in the order in which they are reported.
var guarantees = []oracle.Promise{
	oracle.HoldsStay, oracle.ReleasesStay, oracle.FencesRise, oracle.RoomIsKept, oracle.CountsStay,
	oracle.EventsStay, oracle.RatesAreKept, inTime, serversStay,
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
	counts      map[oracle.Promise]*checkCount
}

// judgeRun is what a run is worth.
func judgeRun(r *chaosRun) *historyJudge {
	j := &historyJudge{run: r, callsByName: make(map[string][]*recordedCall),
		counts: make(map[oracle.Promise]*checkCount)}
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
		j.checkName(key, calls)
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

// checkName has the oracle judge the calls on one name. What a store that lost everything had forgotten, and
// what nobody told in the last look, is known here alone.
func (j *historyJudge) checkName(key string, calls []*recordedCall) {
	judge := &oracle.Judge{
		Losses: j.losses, Margin: margin, Tested: make(map[oracle.Promise]int),
		Report: func(p oracle.Promise, at time.Duration, text string) {
			j.recordBreach(p, historyPoint{key, at}, "%s", text)
		},
	}
	var told []*oracle.Call
	for _, c := range calls {
		if c.mayHaveEffect() {
			told = append(told, c.toOracle())
		}
	}
	judge.Calls(told)
	switch calls[0].keyKind() {
	case "lock", "semaphore", "event":
	case "counter":
		answered := func(c *recordedCall) bool { return c.final && c.outcome == granted }
		if !slices.ContainsFunc(calls, answered) {
			j.recordBreach(oracle.CountsStay, historyPoint{key, calls[len(calls)-1].end},
				"it tells no value in the last look")
		}
	default:
		j.checkBucket(judge, calls)
	}
	for p, n := range judge.Tested {
		j.counts[p].checked += n
	}
}

// checkBucket has the oracle judge what a token bucket gave.
func (j *historyJudge) checkBucket(judge *oracle.Judge, calls []*recordedCall) {
	var given []oracle.Span
	for _, c := range calls {
		if c.outcome == granted {
			given = append(given, oracle.Span{From: c.start, To: c.end, N: c.cost})
		}
	}
	size, interval := calls[0].size, calls[0].interval
	judge.Spans(given, oracle.Bound{
		// An interval that has begun counts whole, and one more for the tokens that were there before.
		Most:  func(length time.Duration) int64 { return size * (int64((length+interval-1)/interval) + 1) },
		Slack: func(from, to time.Duration) int64 { return j.lossAllowance(given, size, from, to) },
	})
}

// countBreaches is how many breaches there are in all.
func (j *historyJudge) countBreaches() (n int) {
	for _, t := range j.counts {
		n += t.broken
	}
	return n
}

// recordBreach notes a breach.
func (j *historyJudge) recordBreach(promise oracle.Promise, at historyPoint, format string, args ...any) {
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

// lossAllowance is what more a bucket may give because of what was lost: all of it at most each time when a
// store was emptied, and when a server was killed that writes down its counts now and then, what it gave
// since.
func (j *historyJudge) lossAllowance(given []oracle.Span, size int64, from, to time.Duration) (sum int64) {
	v := j.run.variant
	for _, f := range j.run.faults {
		if f.at < from-v.flush || f.at > to || f.frozen {
			continue
		}
		if f.wiped {
			sum += size
		}
		// What was answered since the last time that the counts were written down, which is not known
		// exactly.
		var lost int64
		for _, g := range given {
			if g.To > f.at-v.flush && g.From < f.at {
				lost += g.N
			}
		}
		// A bucket cannot forget more than it holds.
		if v.flush > 0 {
			sum += min(lost, size)
		}
	}
	return sum
}
