//go:build linux || darwin

package main

import (
	"slices"
	"time"
)

// checkBucket looks at what a token bucket gave, in every stretch of time that begins with a request and ends
// with an answer: what was asked for and answered within it was given within it.
func (j *historyJudge) checkBucket(key string, calls []*recordedCall) {
	given := slices.DeleteFunc(slices.Clone(calls),
		func(c *recordedCall) bool { return c.outcome != granted })
	// Each start with each end makes a stretch. A call counts in it if it was asked and answered within,
	// since its tokens were taken somewhere in between. So the sum is never more than the bucket gave.
	byEnd := sortedByEnd(given)
	for i, from := range given {
		// The same start gives the same stretches.
		if i > 0 && given[i-1].start == from.start {
			continue
		}
		var sum int64
		for _, c := range byEnd {
			if c.start < from.start {
				continue
			}
			sum += c.cost
			j.counts[ratesAreKept].checked++
			most := bucketBound(c, c.end-from.start)
			if sum <= most {
				continue
			}
			// Only now, as it is costly: what a lost store or server may have made a bucket forget.
			most += j.lossAllowance(byEnd, from.start, c.end)
			if sum > most {
				j.recordBreach(ratesAreKept, historyPoint{key, c.end},
					"it gave %d in %.3f s, want at most %d",
					sum, (c.end - from.start).Seconds(), most)
				// Longer stretches would only show the same excess again.
				return
			}
		}
	}
}

// bucketBound is what a bucket may give in any stretch of this length.
func bucketBound(c *recordedCall, length time.Duration) int64 {
	// An interval that has begun counts whole, and one more for the tokens that were there before.
	intervals := (length + c.interval - 1) / c.interval
	return c.size * (int64(intervals) + 1)
}

// lossAllowance is what more a bucket may give because of what was lost: all of it at most each time when a
// store was emptied, and when a server was killed that writes down its counts now and then, what it gave
// since.
func (j *historyJudge) lossAllowance(given []*recordedCall, from, to time.Duration) (sum int64) {
	v := j.run.variant
	for _, f := range j.run.faults {
		if f.at < from-v.flush || f.at > to || f.frozen {
			continue
		}
		if f.wiped {
			sum += given[0].size
		}
		// What was answered since the last time that the counts were written down, which is not known
		// exactly.
		var lost int64
		for _, c := range given {
			if c.end > f.at-v.flush && c.start < f.at {
				lost += c.cost
			}
		}
		// A bucket cannot forget more than it holds.
		if v.flush > 0 {
			sum += min(lost, given[0].size)
		}
	}
	return sum
}

// recoveryDelay is how long a server may still be late after it was frozen or killed.
const recoveryDelay = 500 * time.Millisecond

// checkTimes checks that all calls were answered in time, or failed clearly.
func (j *historyJudge) checkTimes() {
	t := j.counts[inTime]
	for _, c := range j.run.calls {
		t.checked++
		// While this program stood still it could read no answer. That is no delay of the server.
		took := c.end - c.start - j.run.stalledFor(c.start, c.end)
		switch {
		case c.outcome == faulty:
			j.recordBreach(inTime, historyPoint{c.key, c.start}, "%s at %s got %s", c.op, c.server, c.text)
		// The client hung up by itself.
		case c.outcome == cut && c.hangsUpAfter > 0:
		case c.outcome == cut || c.outcome == unsent:
			// A connection that was opened before a fault may be found cut only now.
			since := c.start
			if c.outcome == cut {
				since = c.connOpened
			}
			if !j.run.wasFaulty(c.server, since, c.end) {
				j.recordBreach(inTime, historyPoint{c.key, c.start},
					"%s at %s, which was well, ended with %s after %.3f s",
					c.op, c.server, c.text, (c.end - c.start).Seconds())
			}
		case took > j.run.config.answerLimit(c) && !j.run.wasFaulty(c.server, c.start, c.end):
			j.recordBreach(inTime, historyPoint{c.key, c.start},
				"%s at %s, which was well, was answered after %.3f s, want %.3f s",
				c.op, c.server, took.Seconds(), j.run.config.answerLimit(c).Seconds())
		}
	}
}

// stalledFor is how long this program stood still meanwhile.
func (r *chaosRun) stalledFor(from, to time.Duration) (sum time.Duration) {
	for _, s := range r.stalls {
		sum += max(0, min(to, s.to)-max(from, s.from))
	}
	return sum
}

// wasFaulty reports whether something was done to a server meanwhile, or shortly before.
func (r *chaosRun) wasFaulty(server string, from, to time.Duration) bool {
	return slices.ContainsFunc(r.faults, func(f *injectedFault) bool {
		return f.victim == server && f.at <= to && f.back >= from-recoveryDelay
	})
}
