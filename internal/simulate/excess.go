package simulate

import "time"

// maxOvers are kept with time and size; all are counted.
const maxOvers = 1000

// An excess keeps the times in which more is used than there is.
type excess struct {
	count int
	time  time.Duration
	most  float64
	list  []Over
	open  bool
}

// advance counts an interval in which nothing changed.
func (e *excess) advance(from, to time.Duration, over bool, by float64) {
	if !over {
		e.open = false
		return
	}
	if !e.open {
		e.count++
		e.open = true
		if len(e.list) < maxOvers {
			e.list = append(e.list, Over{At: from})
		}
	}
	e.time += to - from
	e.most = max(e.most, by)
	if e.count == len(e.list) {
		last := &e.list[e.count-1]
		last.For += to - from
		last.Most = max(last.Most, by)
	}
}

// A shortage is a server whose clients hold more than its parent gives it: the parent took some back, and
// the clients have not heard of it yet.
type shortage struct {
	excess
	used  float64 // by clients anywhere below
	given float64 // by the parent
	until time.Duration
	last  time.Duration
}

// advance counts the time since the last change.
func (s *shortage) advance(now time.Duration) {
	if middle := min(max(s.until, s.last), now); middle > s.last {
		s.part(middle, s.given)
	}
	if now > s.last {
		s.part(now, 0)
	}
}

func (s *shortage) part(to time.Duration, given float64) {
	by := s.used - given
	s.excess.advance(s.last, to, by > tolerance*max(1, given, s.used), by)
	s.last = to
}

// supplied notes what a parent gave to the server.
func (n *node) supplied(now time.Duration, given float64, until time.Duration) {
	n.shortage.advance(now)
	n.shortage.given, n.shortage.until = given, until
}
