package control

import (
	"cmp"
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// A limiter keeps a share for each grant that has a record: what the grant took, and when, so that what it
// does not need can be given back into the windows that it was taken from. A share ends by itself when the
// grant does. What counts then follows from the rules that the grant was acquired with.
//
//	acquire ──► share ──► topup: one more take
//	              │  ├──► settle: less gives takes back, the newest first; more is a take, and a debt
//	              │  └──► renew: ends later
//	              ├─ release ──► gone; what counts stays
//	              └─ its time is up ──► estimate, zero or last: settled at that, gone
//
// A reset, a delete and an undo of the acquire end it too. A settle or a release after that gives nothing
// back.

// A grantShare is what one grant has taken of a limiter.
type grantShare struct {
	fence    uint64 // the grant's
	until    int64
	taken    int64 // by the estimate and by top-ups
	counted  int64 // of it so far: that, or what was settled last
	overrun  gatehouse.Overrun
	onExpiry gatehouse.OnExpiry
	ended    bool // it is to be dropped
	weight   int32
	takes    []shareTake // that may still count, the newest last
	debts    []debtSpan  // what lies ahead of it
}

// A shareTake is tokens that a grant took at one instant.
type shareTake struct {
	at, n      int64
	generation uint64        // of the limiter, as in a decision
	windows    []windowReset // of the limits that counted it
}

// A windowReset is until when tokens count under one limit.
type windowReset struct {
	window gatehouse.Limit // without its size
	reset  int64
}

// A debtSpan is a part of the limiter's debt. The debt is repaid in the order in which it was booked, for all
// grants together, so that a place in that order says which part has been repaid.
type debtSpan struct{ from, n int64 }

const (
	// maxTakes is how many takes of one grant can be given back. Of more, the oldest are most likely over.
	maxTakes = 32
	// maxSpans is how many parts of the debt one grant can have taken off again.
	maxSpans = 8
)

// A shareList are the shares of a limiter.
type shareList struct {
	list      []*grantShare // in the order of their fences, which rise
	nextEnd   int64         // no share ends before it; noTime when there is none
	lastFence uint64        // the greatest fence there was, as long as the next may not be greater by itself
	bytes     int           // the weight of the shares
}

// findShare is the share of a fence; nil when there is none.
func (m *limiterExtra) findShare(fence uint64) *grantShare {
	if m == nil || m.shares == nil {
		return nil
	}
	// Fencing tokens rise, so that the list is in their order.
	i, ok := slices.BinarySearchFunc(m.shares.list, fence, func(s *grantShare, fence uint64) int {
		return cmp.Compare(s.fence, fence)
	})
	if !ok {
		return nil
	}
	return m.shares.list[i]
}

// nextShareFence is the fencing token of the next share.
func (l *limiterStep) nextShareFence() uint64 {
	least := leastFence(l.d.At, l.turn)
	if l.extra == nil || l.extra.shares == nil {
		return least
	}
	return max(l.extra.shares.lastFence+1, least)
}

// addShare makes the share of a grant that begins.
func (l *limiterStep) addShare() *grantShare {
	l.ensureExtra()
	if l.extra.shares == nil {
		l.extra.shares = &shareList{nextEnd: noTime}
	}
	m := l.extra.shares
	s := &grantShare{
		fence: l.nextShareFence(), until: addSaturating(l.now, int64(l.turn.Expires)),
		overrun: l.turn.Grant.Overrun, onExpiry: l.turn.Grant.OnExpiry,
	}
	// At the end, as its token is the highest.
	m.list, m.lastFence, m.nextEnd = append(m.list, s), s.fence, min(m.nextEnd, s.until)
	return s
}

// dropEnded drops the shares that have ended, and what is not needed without them.
func (l *limiterStep) dropEnded() {
	m := l.extra.shares
	// It is computed again below, as the share that ends next may be among those that are dropped.
	m.nextEnd = noTime
	for _, s := range m.list {
		if s.ended {
			m.bytes -= int(s.weight)
		} else {
			m.nextEnd = min(m.nextEnd, s.until)
		}
	}
	m.list = slices.DeleteFunc(m.list, func(s *grantShare) bool { return s.ended })
	l.dropUnusedShares()
}

// dropUnusedShares drops the list if nothing in it is needed.
func (l *limiterStep) dropUnusedShares() {
	m := l.extra.shares
	// The next fence is made of the time, if the store has none of its own.
	if len(m.list) == 0 && m.lastFence < uint64(l.now/1000) { // the present is after 1970
		l.extra.shares = nil
		l.dropUnusedExtra(l.now)
	}
}

// dropShare drops one share.
func (l *limiterStep) dropShare(s *grantShare) {
	m := l.extra.shares
	m.list = slices.DeleteFunc(m.list, func(other *grantShare) bool { return other == s })
	m.bytes -= int(s.weight)
	// The earliest end is only found anew when it comes up.
	l.dropUnusedShares()
}

// endDueShares ends the shares whose time is up, each at its instant, so that what is charged or given back
// then counts from then on.
func (l *limiterStep) endDueShares() {
	m := l.extra.shares
	if m.nextEnd > l.now {
		if len(m.list) == 0 {
			l.dropUnusedShares()
		}
		return
	}
	var due []*grantShare // those of which something counts otherwise from now on
	for _, s := range m.list {
		s.ended = s.until <= l.now
		if s.ended && s.finalCount() != s.counted {
			due = append(due, s)
		}
	}
	// In the order of time, as if there had been a step at each end.
	slices.SortStableFunc(due, func(a, b *grantShare) int { return cmp.Compare(a.until, b.until) })
	now := l.now
	for _, s := range due {
		l.now = s.until
		l.startDueReservations()
		l.endCounted(s, s.finalCount())
	}
	l.now = now
	l.dropEnded()
}

// finalCount is how much counts when the share ends without a release.
func (s *grantShare) finalCount() int64 {
	switch s.onExpiry {
	case gatehouse.ExpiryZero:
		return 0
	case gatehouse.ExpiryLast:
		return s.counted
	}
	// What was settled beyond the estimate was spent for certain.
	return max(s.taken, s.counted)
}

// mayExtend reports whether what counts may count for longer once the shares have ended, and until when all
// have of which it then counts otherwise. One may be charged for; or one gives back tokens that the debt of
// others then takes earlier than was planned, which gives all that is still to be repaid other starts.
func (m *shareList) mayExtend(debt int64) (until int64, ok bool) {
	for _, s := range m.list {
		if n := s.finalCount(); n != s.counted {
			until, ok = max(until, s.until), ok || n > s.counted || debt > 0
		}
	}
	return until, ok
}

// takeForShare takes n at the instant of the step.
func (l *limiterStep) takeForShare(s *grantShare, n int64) {
	for _, m := range l.activeMeters() {
		m.takeTokens(l.now, l.now, n)
	}
	l.noteReportedTake(l.now, n)
	if s != nil {
		l.noteTake(s, shareTake{at: l.now, n: n}, 0)
	}
}

// noteTake notes what a share has taken, behind which others took some at the same instant.
func (l *limiterStep) noteTake(s *grantShare, t shareTake, behind int64) {
	meters := l.activeMeters()
	t.generation, t.windows = l.extra.generation, make([]windowReset, len(meters))
	for i, m := range meters {
		w := windowReset{window: m.currentLimit(), reset: m.readMeter(t.at).reset}
		w.window.Size = 0
		// Tokens of a GCRA come back one after the other.
		if g, ok := m.(*gcraMeter); ok {
			w.reset -= mulSaturating(g.step, behind)
		}
		t.windows[i] = w
	}
	// What counts no more cannot be given back, and need not be kept.
	s.takes = slices.DeleteFunc(s.takes, func(t shareTake) bool { return t.lastReset() <= l.now })
	if len(s.takes) >= maxTakes {
		s.takes = slices.Delete(s.takes, 0, 1)
	}
	s.takes = append(s.takes, t)
	l.extra.shares.weighShare(s)
}

// lastReset is from when on the take counts nowhere.
func (t *shareTake) lastReset() (at int64) {
	for _, w := range t.windows {
		at = max(at, w.reset)
	}
	return at
}

// resetUnder is until when the take counts under a limit. ok is false when that limit did not count it.
func (t *shareTake) resetUnder(limit gatehouse.Limit) (reset int64, ok bool) {
	for _, w := range t.windows {
		if sameWindow(w.window, limit) {
			return w.reset, true
		}
	}
	return 0, false
}

// endCounted makes so much count of a share that ends: what is too much is given back, and what is missing is
// charged, as far as it can be.
func (l *limiterStep) endCounted(s *grantShare, n int64) {
	if n <= s.counted {
		l.giveBackShare(s, s.counted-n)
		s.counted = n
		return
	}
	c, fault := l.planCharge(n-s.counted, s.overrun)
	// What cannot be charged is left out, since there is no client any more who could be told.
	if fault != "" {
		c, _ = l.planCharge(n-s.counted, gatehouse.OverrunCap)
	}
	l.carryOutCharge(s, c)
}

// giveBackShare gives back n of a share: first what lies ahead, then what was taken last, as far as it still
// counts.
func (l *limiterStep) giveBackShare(s *grantShare, n int64) {
	n = l.lowerShareDebt(s, n)
	for n > 0 && len(s.takes) > 0 {
		last := len(s.takes) - 1
		t := &s.takes[last]
		back := min(n, t.n)
		for i, m := range l.activeMeters() {
			// A limit that came into force later never counted it, and one that began anew has forgotten it.
			reset, ok := t.resetUnder(m.currentLimit())
			if ok && l.stillCounts(i, t.generation) {
				m.undoTake(l.now, t.at, reset, back)
			}
		}
		l.reports().giveBackAdopted(t.at, back)
		t.n, n = t.n-back, n-back
		if t.n == 0 {
			s.takes = slices.Delete(s.takes, last, last+1)
		}
	}
	l.countChunks()
	l.rebuildProjection()
	l.advanceDebt()
	l.extra.shares.weighShare(s)
}

// copyShares returns a copy to try something on.
func (m *shareList) copyShares() *shareList {
	c := *m
	c.list = slices.Clone(m.list)
	for i, s := range c.list {
		one := *s
		one.takes, one.debts = slices.Clone(s.takes), slices.Clone(s.debts)
		c.list[i] = &one
	}
	return &c
}

// weighShare brings the weight up to date after a share has changed.
func (m *shareList) weighShare(s *grantShare) {
	weight := shareWeight + cap(s.takes)*takeWeight + cap(s.debts)*debtSpanWeight
	for i := range s.takes {
		weight += cap(s.takes[i].windows) * windowResetWeight
	}
	m.bytes += weight - int(s.weight)
	s.weight = int32(weight) // some lists of a few
}
