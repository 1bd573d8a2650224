package capacity

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// longestDelay is how long a question may be on its way before others that were asked later.
const longestDelay = 2 * time.Minute

// learning reports whether a server that asks does not know all of its clients yet.
func learning(q *Request) bool { return q.Has.Refresh == 0 && !q.Has.Expiry.IsZero() }

// late reports whether a question was asked before one that is answered already, or is that one once more.
// Its connection may have broken on the way, and what was sent still arrives; or somebody in between
// repeats it.
func (n *row) late(q *Request) bool {
	behind := time.Duration(n.knew)*time.Second - q.Has.Refresh
	if behind == 0 {
		return n.counts
	}
	return behind > 0 && behind < longestDelay // a server that began anew is further behind
}

// keeps is how much of the capacity the clients of a server keep, whatever it is granted: what it says
// they hold. It is no less than before where they may hold more than that.
func (s *Server) keeps(now time.Time, r *resource, i int32, q *Request) float64 {
	if q.Has.Expiry.IsZero() {
		return 0
	}
	n := r.rows.at(i)
	before, holds := n.taken, 0.0
	if c := q.Has.Capacity; c > 0 { // not if it is no number
		holds = c
	}
	if r.unsupplied() || s.learning(s.at(now), r) { // nobody here knows yet who has what
		holds = min(claimedBy(q, now), r.believed(i, r.capacity(now)))
	} else {
		holds = min(holds, before)
	}
	if learning(q) || n.late(q) {
		return max(holds, before)
	}
	knows := uint32(min(q.Has.Refresh/time.Second, math.MaxUint32))
	n.counts = n.counts || n.knew > 0 && knows > n.knew
	n.knew = knows
	return holds
}

// passed is the algorithm for servers below. To that of STATIC belongs what one client may have.
func (r *resource) passed() *Algorithm {
	a := &r.template.Algorithm
	if a.Kind != Static {
		return a
	}
	with := *a
	with.Parameters = slices.DeleteFunc(slices.Clone(a.Parameters), func(p Parameter) bool {
		return p.Name == perClientParameter
	})
	each := strconv.FormatFloat(r.template.Capacity, 'g', -1, 64)
	with.Parameters = append(with.Parameters, Parameter{perClientParameter, each})
	return &with
}
