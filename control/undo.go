package control

import "time"

// undoGrant takes back what an acquire or a reserve was granted.
//
// A place goes by its number alone. If that is not there, the place was cancelled, undone or reset, or its
// time has come: then nothing is given back, as nobody can tell any more what of the meter was this place's.
// What was taken at once goes by its instant, as long as the meters count what was taken in its generation.
func (l *limiterStep) undoGrant() {
	if l.turn.Chunk != nil {
		l.returnChunk()
		return
	}
	granted := l.turn.Granted
	if granted == nil || l.created == 0 {
		return // nothing was taken, or not from this one
	}
	// What was taken counts from its start, which a delay puts after the decision.
	start := granted.At.Add(granted.Delay).UnixNano()
	// As in applyCommand: a reservation that is due by now has become a take, and is not found below.
	if l.extra != nil {
		l.passTime()
	}
	if l.turn.Grant != nil && granted.Fence != 0 {
		l.undoShare()
		return
	}
	if granted.Reservation != 0 {
		if i := l.findByNumber(granted.Reservation); i >= 0 {
			l.undoReservation(i)
		}
		return
	}
	if granted.At.UnixNano() < l.created || l.extra != nil && granted.Generation < l.extra.validFrom {
		return // by another of this name, or it was reset since
	}
	l.uncountPassed(l.turn)
	n := l.turn.Cost
	if l.turn.Grant != nil {
		n = granted.Value // which may have been clipped
	}
	for i, m := range l.activeMeters() {
		// A limit that came into force later never counted the grant, and one that began anew has forgotten
		// it: neither gives anything back.
		reset, ok := l.resetThen(m)
		if ok && l.stillCounts(i, granted.Generation) {
			m.undoTake(l.now, start, granted.At.Add(reset).UnixNano(), n)
		}
	}
	l.undoReportedTake(start, n)
	l.countChunks()
	l.rebuildProjection()
}

// resetThen is what the decision to take back said about the limit of a meter. ok is false when that limit
// did not count it, because it is in force only since.
func (l *limiterStep) resetThen(m limitMeter) (reset time.Duration, ok bool) {
	granted, own := l.turn.Granted, l.extra != nil && l.extra.meters != nil
	// There is one limit, now and then. The same interval means that it is the same window.
	if !own || len(granted.Windows) == 0 && !l.turn.HasLimit() {
		return granted.ResetAfter, granted.Interval == time.Duration(m.readMeter(l.now).interval)
	}
	limit := m.currentLimit()
	// There was one limit then, and there are several now: the command says which of them it was.
	if len(granted.Windows) == 0 {
		return granted.ResetAfter, sameWindow(limitAt(&l.turn.Rule, 0), limit)
	}
	// There were several limits then. The one with the same window is the one meant.
	for _, w := range granted.Windows {
		if sameWindow(w.Limit, limit) {
			return w.ResetAfter, true
		}
	}
	return 0, false
}
