package gate

import "time"

// This file has when a line is kept for a grant that could be served there and waits for something else.

// A line is kept while all else that the grant lacks is known to come free within keepWithin, and only in the
// first keepSpan of each keepPeriod of the store's time. These times are the same for all names, so that a
// grant can have all of them at once, and for all servers of a store. So a line stands still for less than a
// second at a stretch and half of any 10 s, which are 6 such spans at most, whichever grants keep it, and no
// count is needed.
//
// Hardly anything comes free every 1.75 s or 7 s, and always outside of these times.
const (
	keepWithin = time.Second
	keepSpan   = 825 * time.Millisecond
	keepPeriod = 1750 * time.Millisecond
)

// mayKeep reports whether lines are kept at an instant of the store, and in how long that changes.
func mayKeep(at time.Time) (may bool, changes time.Duration) {
	into := time.Duration(at.UnixNano() % int64(keepPeriod))
	if into < keepSpan {
		return true, keepSpan - into
	}
	return false, keepPeriod - into
}

// shouldKeep reports whether those behind a grant must not pass at a place, and in how long that changes by
// itself, 0 if it does not. at is when it was refused. The locks of the line and of the grantOrder are held.
func (p *grantPlace) shouldKeep(at time.Time) (keeps bool, changes time.Duration) {
	lacksOthers := false
	for i := range p.grant.places {
		q := &p.grant.places[i]
		if q == p || !q.refused {
			continue
		}
		lacksOthers = true
		// This line would stand still for as long as the other name is taken, and that is not known.
		if !q.freeSoon {
			return false, 0
		}
	}
	switch {
	// It lacks nothing but this: first come, first served.
	case !lacksOthers:
		return true, 0
	case !p.eldest || p.blockedByEarlier:
		return false, 0
	// No request could be served here now; and when that ends, a later request must not be served at that
	// instant.
	case p.refused:
		return p.nothingLeft, 0
	}
	return mayKeep(at)
}
