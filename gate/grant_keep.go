package gate

import "time"

// This file has for how long a line is kept for a grant that could be served there and waits for something
// else.

// A line is kept while all else that the grant lacks is known to come free within keepWithin, at most
// keepStretch without a break, and at most keepShare of any keepWindow. After a stretch those behind may pass
// for as long as it was.
const (
	keepWithin  = time.Second
	keepStretch = time.Second
	keepWindow  = 10 * time.Second
	keepShare   = keepWindow / 2
)

// A keptTime is when a line was kept. Its instants are the store's.
type keptTime struct {
	by      *grantPlace // for which the line is kept at present; nil for none
	since   time.Time
	length  time.Duration // the longest that this stretch may be
	rest    time.Time     // until when no other stretch begins
	past    []keptStretch // those of the last keepWindow
	lingers bool          // the line is dropped later
}

// A keptStretch is a time without a break.
type keptStretch struct{ from, to time.Time }

// keepFor reports whether the line may be kept for a grant from an instant on, and notes that it is.
func (k *keptTime) keepFor(p *grantPlace, at time.Time) bool {
	if k.by == p {
		return at.Before(k.since.Add(k.length))
	}
	if k.by != nil {
		k.stop(at)
	}
	if at.Before(k.rest) {
		return false
	}
	// Any window in which this stretch ends has, of those before, at most what the last one has.
	k.forgetPast(at)
	free := keepShare
	for _, s := range k.past {
		free -= s.to.Sub(s.from)
	}
	if free <= 0 {
		return false
	}
	k.by, k.since, k.length = p, at, min(keepStretch, free)
	return true
}

// stop ends the stretch. at may be zero if the instant is not known.
func (k *keptTime) stop(at time.Time) {
	if k.by == nil {
		return
	}
	to := k.since.Add(k.length)
	if !at.IsZero() && at.Before(to) && at.After(k.since) {
		to = at
	}
	k.by = nil
	k.forgetPast(to)
	k.past = append(k.past, keptStretch{k.since, to})
	k.rest = to.Add(to.Sub(k.since))
}

// forgetPast drops the stretches that ended before the window that ends at an instant.
func (k *keptTime) forgetPast(at time.Time) {
	n := 0
	for n < len(k.past) && !k.past[n].to.After(at.Add(-keepWindow)) {
		n++
	}
	k.past = append(k.past[:0], k.past[n:]...)
}

// left is how long the stretch may go on for a grant, when it is kept for that; ok is false otherwise.
func (k *keptTime) left(p *grantPlace, at time.Time) (left time.Duration, ok bool) {
	if k.by != p {
		return 0, false
	}
	return k.since.Add(k.length).Sub(at), true
}

// lingersAfterKeeping keeps a line that nobody waits in any more for as long as it has been kept lately, so
// that the bounds hold for those who come next. It is called with the line's lock held.
func (l *line) lingersAfterKeeping() bool {
	if len(l.kept.past) == 0 || l.gate.closed.Load() {
		return false
	}
	if !l.kept.lingers {
		l.kept.lingers = true
		time.AfterFunc(keepWindow, l.endLinger)
	}
	return true
}

// endLinger drops the line if it was not kept since.
func (l *line) endLinger() {
	l.mu.Lock()
	l.kept.lingers = false
	if l.isEmpty() {
		l.kept.past = nil
	}
	l.mu.Unlock()
	l.gate.dropLine(l)
}

// shouldKeep reports whether those behind a grant must not pass at a place. at is when it was refused. The
// locks of the line and of the grantOrder are held.
func (p *grantPlace) shouldKeep(at time.Time) bool {
	lacksOthers := false
	for i := range p.grant.places {
		q := &p.grant.places[i]
		if q == p || !q.refused {
			continue
		}
		lacksOthers = true
		if !q.near {
			return false
		}
	}
	switch {
	// It lacks nothing but this: first come, first served.
	case !lacksOthers:
		return true
	case !p.eldest || p.barred:
		return false
	// Nobody could be served here now; and when that ends it must not go to somebody behind at that instant.
	case p.refused:
		return p.full
	}
	return p.line.kept.keepFor(p, at)
}
