package cas

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// tombstoneLife is how long the record of a controller that was deleted stays. Those of other servers who
// wait hear of it by that; and a change that has been under way since before the delete finds it in its
// way.
const tombstoneLife = time.Minute

// A retention says for how long records are kept.
type retention struct {
	linger      time.Duration // of a controller that is worth nothing
	limitLinger time.Duration // of one that has a limit
	keep        time.Duration // since it was made, at least

	expiresHolds bool // the backend ends holds
}

// keepFor is for how long a record that was made at an instant is worth something.
func (r *retention) keepFor(now int64, state control.State, heads []lineHead) time.Duration {
	worth := int64(tombstoneLife)
	if state != nil {
		expiry := state.Expiry()
		if semaphore, ok := state.(*control.Semaphore); ok && r.expiresHolds && !control.Closed(state) {
			// Here the state has no ends of holds by the clock; the lengths of the leases bound them.
			expiry = lastHoldEnd(now, semaphore)
		}
		if expiry.Sub(time.Unix(0, now)) >= gatehouse.MaxDuration {
			return gatehouse.Forever
		}
		linger := int64(r.linger)
		switch {
		case control.Absent(state):
			// An absent controller leaves a tombstone. It must outlast any change that was under way before
			// the delete.
			linger = max(linger, int64(tombstoneLife))
		case control.HasLimit(state):
			linger = int64(r.limitLinger)
		}
		worth = max(expiry.UnixNano()-now, 0) + linger
		if created := control.Created(state); !created.IsZero() {
			worth = max(worth, created.UnixNano()-now+int64(r.keep))
		}
	}
	for _, h := range heads {
		// A head must stay as long as it bars others, even if the controller itself is worth nothing.
		worth = max(worth, h.until-now)
	}
	return time.Duration(worth)
}

// A record is kept for longer than it is worth something, by a part of that time and at most by maxLonger, so
// that not every change has to move its end.
const (
	longerPart = 8
	maxLonger  = time.Minute
)

// setKeep sets for how long the record of an update is kept.
func (r *retention) setKeep(c *RecordChange, k *knownRecord, u *recordUpdate) {
	c.Keep = r.keepFor(u.now, u.state, u.next.heads)
	u.keptUntil = 0
	if c.Keep == gatehouse.Forever {
		return
	}
	now := u.now - u.ahead
	worth, longer := now+int64(c.Keep), int64(min(c.Keep/longerPart, maxLonger))
	if k.keptUntil >= worth && k.keptUntil <= worth+longer {
		// A backend that does not leave it at that keeps the record no shorter than is noted.
		c.Kept, c.Keep, u.keptUntil = true, time.Duration(k.keptUntil-now), k.keptUntil
		return
	}
	c.Keep += time.Duration(longer)
	u.keptUntil = worth + longer
}

// lastHoldEnd is when the last of the holds that the backend ends will have ended if none is renewed.
func lastHoldEnd(now int64, s *control.Semaphore) time.Time {
	longest := time.Duration(0)
	for _, h := range s.Holds() {
		if h.Expires == 0 {
			return time.Unix(0, math.MaxInt64)
		}
		longest = max(longest, h.Expires)
	}
	return time.Unix(0, now).Add(longest)
}

// What follows is how a store that forgets is seen. A record that is not there may have gone as it should:
// its time was over, or that of another one that took its place. But none stays for less than the linger, or
// than a deleted one does. So one that was seen more recently than that, and was to stay, was lost.

// hasVanished reports whether an answer without a record shows that the known one was lost. It leaves as much
// room as clocks may differ.
func (k *knownRecord) hasVanished(reply *Reply, r *retention) bool {
	if reply.Record != nil || k.version == 0 || k.seen == 0 {
		return false
	}
	now := reply.Now.UnixNano() + int64(maxBackwards)
	if now-k.seen >= int64(min(tombstoneLife, r.linger)) {
		return false
	}
	var state control.State
	if k.record.encodedState != nil {
		var err error
		state, err = control.Decode(k.kind, k.record.encodedState)
		if err != nil {
			return false
		}
	}
	// What this server would have asked for when it was written: a record that was to go by now has not
	// vanished.
	keep := r.keepFor(k.record.asOf, state, k.record.heads)
	return keep == gatehouse.Forever || now < k.record.asOf+int64(keep)
}
