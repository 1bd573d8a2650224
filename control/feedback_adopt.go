package control

import (
	"github.com/gatehousehq/gatehouse"
)

// This file is about how many calls a third party still lets through by its own count.

// adoptRemaining puts in force how many a third party still lets through, if that is fewer than what is known
// here, for the limit whose window ends nearest to its reset.
func (l *limiterStep) adoptRemaining(f *gatehouse.Feedback) (adopted bool) {
	until := addSaturating(l.now, int64(f.Reset))
	var nearest limitMeter
	distance := uint64(0)
	for _, m := range l.activeMeters() {
		away := uint64(max(until, windowEnd(m, l.now)) - min(until, windowEnd(m, l.now))) // from 0
		if nearest == nil || away < distance {
			nearest, distance = m, away
		}
	}
	// Of places that lie ahead the third party knows nothing yet, so they do not count on either side.
	left := nearest.readMeter(l.now).left
	a := l.adoptedOf(nearest)
	if a != nil {
		left = min(left, a.remaining)
	}
	if f.Remaining >= left {
		return false
	}
	if a == nil {
		t := l.ensureReports()
		t.adopted = append(t.adopted, adoptedRemaining{})
		a = &t.adopted[len(t.adopted)-1]
	}
	// What was taken since an earlier figure is part of the new one.
	*a = adoptedRemaining{
		limit: nearest.currentLimit(), since: l.now, until: until, remaining: f.Remaining,
	}
	// It counts for the window, whatever size that is given meanwhile.
	a.limit.Size = 0
	return true
}

// windowEnd is when the present window of a limit ends; of a limit that counts in no fixed windows, when one
// ends that begins now.
func windowEnd(m limitMeter, now int64) int64 {
	switch m := m.(type) {
	case *fixedWindowMeter:
		// A copy, as only a step may change the meter.
		at := *m
		at.rollTo(now)
		return addSaturating(at.start, at.interval)
	case *tokenBucketMeter:
		at := *m
		at.rollTo(now)
		return addSaturating(at.start, at.interval)
	}
	return addSaturating(now, m.windowLength())
}

// adoptedOf is what was adopted for the limit of a meter and counts still, nil when nothing was.
func (l *limiterStep) adoptedOf(m limitMeter) *adoptedRemaining {
	t := l.reports()
	if t == nil || t.adopted == nil {
		return nil
	}
	limit := m.currentLimit()
	for i := range t.adopted {
		// Limits may have changed since: one of another window has nothing to do with it.
		if a := &t.adopted[i]; a.until > l.now && sameWindow(a.limit, limit) {
			return a
		}
	}
	return nil
}

// adoptedFit is when a limit lets n through, with what was adopted for it.
func (l *limiterStep) adoptedFit(m limitMeter, from, n int64) int64 {
	at := m.earliestFit(from, n)
	if a := l.adoptedOf(m); a != nil && n > a.remaining && at < a.until {
		return m.earliestFit(a.until, n)
	}
	return at
}

// giveBackAdopted gives back n that were taken at an instant to what was adopted before that, no more than
// was taken of it since. What was taken at the very instant of a report may be a part of its figure already.
func (t *thirdParty) giveBackAdopted(at, n int64) {
	if t == nil {
		return
	}
	for i := range t.adopted {
		if a := &t.adopted[i]; at > a.since {
			back := min(n, a.taken)
			a.remaining, a.taken = a.remaining+back, a.taken-back
		}
	}
}
