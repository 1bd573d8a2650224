package cas

import "sync/atomic"

// isOutdated reports whether what is known of the record is very likely to be old, so that a change of it
// would be refused. Within two round trips of the last reply it reports false: a change may still be
// first then, and the record may change again behind a reading, too.
func (t *transaction) isOutdated() bool {
	c := &t.entry.contention
	return t.store.outdated.isHigh() && t.store.clock.elapsedTime()-c.repliedAt > int64(2*c.roundTrip)
}

// An outdatedShare tells whether nearly all that this server knows of records is old when it is used, as
// where each request for a name goes to another server. A change that rests on it takes as many round trips
// as a reading and a change, and more work at both ends.
type outdatedShare struct{ count atomic.Int32 }

// The count rises by 1 with each record that was changed since it was known, and falls by more with each that
// was not. So it becomes high when more than 9 of 10 were changed, over some hundred, and is low again after
// few that were not.
const (
	outdatedStep = 9
	outdatedHigh = 200
	outdatedMost = 400
)

// note counts what the first reply of a transaction tells. Of two counts at the same time one may be lost,
// which changes little.
func (o *outdatedShare) note(changed bool) {
	count := o.count.Load()
	next := max(0, count-outdatedStep)
	if changed {
		next = min(count+1, outdatedMost)
	}
	// Most often it stays at one end, and is only read.
	if next != count {
		o.count.Store(next)
	}
}

func (o *outdatedShare) isHigh() bool { return o.count.Load() >= outdatedHigh }
