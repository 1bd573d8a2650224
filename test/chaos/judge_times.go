//go:build linux || darwin

package main

import (
	"slices"
	"time"
)

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
