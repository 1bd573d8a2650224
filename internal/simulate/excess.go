package simulate

import "time"

// maxOvers is how many excesses are kept with time and size; all are counted.
const maxOvers = 1000

// An excess records the times in which more is used than there is.
type excess struct {
	count int
	time  time.Duration
	most  float64
	list  []Over
	open  bool
}

// addInterval counts an interval in which nothing changed. Intervals that follow each other make one excess.
func (e *excess) addInterval(from, to time.Duration, over bool, by float64) {
	if !over {
		e.open = false
		return
	}
	// Only the first excesses are kept with their times; all are counted.
	if !e.open {
		e.count++
		e.open = true
		if len(e.list) < maxOvers {
			e.list = append(e.list, Over{At: from})
		}
	}
	// The size at each instant counts for the extreme, the length for the sum.
	e.time += to - from
	e.most = max(e.most, by)
	// Only the excess that is still open can grow, and it is the last of the list if the list has not been
	// full.
	if e.count == len(e.list) {
		last := &e.list[e.count-1]
		last.For += to - from
		last.Most = max(last.Most, by)
	}
}

// A shortage is a server whose clients hold more than its parent gives it: the parent took some back, and the
// clients do not know yet.
type shortage struct {
	excess
	used  float64 // by clients anywhere below
	given float64 // by the parent
	until time.Duration
	last  time.Duration
}

// advanceTo counts the time since the last change.
func (s *shortage) advanceTo(now time.Duration) {
	// The parent's lease may run out within the interval. Up to then its amount counts, and nothing after it.
	if middle := min(max(s.until, s.last), now); middle > s.last {
		s.addPart(middle, s.given)
	}
	if now > s.last {
		s.addPart(now, 0)
	}
}

func (s *shortage) addPart(to time.Duration, given float64) {
	// Rounding must not count as an excess.
	by := s.used - given
	s.addInterval(s.last, to, by > tolerance*max(1, given, s.used), by)
	s.last = to
}

// noteSupply notes what a parent gave to the server.
func (n *serverNode) noteSupply(now time.Duration, given float64, until time.Duration) {
	n.shortage.advanceTo(now)
	n.shortage.given, n.shortage.until = given, until
}
