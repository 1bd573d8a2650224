//go:build linux || darwin

package main

import (
	"slices"
	"time"
)

// bucket looks at what a token bucket gave, in every stretch of time that begins with a request and ends
// with an answer: what was asked for and answered within it was given within it.
func (j *judge) bucket(key string, calls []*call) {
	given := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.outcome != granted })
	byEnd := sortedByEnd(given)
	for i, from := range given {
		if i > 0 && given[i-1].start == from.start {
			continue
		}
		var sum int64
		for _, c := range byEnd {
			if c.start < from.start {
				continue
			}
			sum += c.cost
			j.tally[ratesAreKept].checked++
			most := bound(c, c.end-from.start)
			if sum <= most {
				continue
			}
			if most += j.allowance(byEnd, from.start, c.end); sum > most {
				j.breach(ratesAreKept, place{key, c.end}, "it gave %d in %.3f s, want at most %d",
					sum, (c.end - from.start).Seconds(), most)
				return
			}
		}
	}
}

// bound is what a bucket may give in any stretch of so long.
func bound(c *call, length time.Duration) int64 {
	intervals := (length + c.interval - 1) / c.interval
	return c.size * (int64(intervals) + 1)
}

// allowance is what more a bucket may give because of what was lost: all of it at most each time when a store
// was emptied, and when a server was killed that writes down its counts now and then, what it gave since.
func (j *judge) allowance(given []*call, from, to time.Duration) (sum int64) {
	v := j.run.variant
	for _, f := range j.run.faults {
		if f.at < from-v.flush || f.at > to || f.frozen {
			continue
		}
		if f.wiped {
			sum += given[0].size
		}
		var lost int64
		for _, c := range given {
			if c.end > f.at-v.flush && c.start < f.at {
				lost += c.cost
			}
		}
		if v.flush > 0 {
			sum += min(lost, given[0].size)
		}
	}
	return sum
}

// tail is how long a server may still be late after it was frozen or killed.
const tail = 500 * time.Millisecond

// times looks whether all calls were answered in time, or failed clearly.
func (j *judge) times() {
	t := j.tally[inTime]
	for _, c := range j.run.calls {
		t.checked++
		took := c.end - c.start - j.run.stalled(c.start, c.end)
		switch {
		case c.outcome == faulty:
			j.breach(inTime, place{c.key, c.start}, "%s at %s got %s", c.op, c.server, c.text)
		case c.outcome == cut && c.hasty > 0:
		case c.outcome == cut || c.outcome == unsent:
			since := c.start
			if c.outcome == cut {
				since = c.linked
			}
			if !j.run.harmed(c.server, since, c.end) {
				j.breach(inTime, place{c.key, c.start},
					"%s at %s, which was well, ended with %s after %.3f s",
					c.op, c.server, c.text, (c.end - c.start).Seconds())
			}
		case took > j.run.config.inTime(c) && !j.run.harmed(c.server, c.start, c.end):
			j.breach(inTime, place{c.key, c.start},
				"%s at %s, which was well, was answered after %.3f s, want %.3f s",
				c.op, c.server, took.Seconds(), j.run.config.inTime(c).Seconds())
		}
	}
}

// stalled is how long this program did not get on meanwhile.
func (r *run) stalled(from, to time.Duration) (sum time.Duration) {
	for _, s := range r.stalls {
		sum += max(0, min(to, s.to)-max(from, s.from))
	}
	return sum
}

// harmed reports whether something was done to a server meanwhile, or shortly before.
func (r *run) harmed(server string, from, to time.Duration) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool {
		return f.victim == server && f.at <= to && f.back >= from-tail
	})
}
