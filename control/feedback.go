package control

import (
	"math/bits"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what a limiter does with what third parties answer to the calls that it has let through. Their
// word counts besides the limits, as another limit that changes with each report:
//
//	report of 429          pause over             ramp over
//	─────────────▶ paused ─────────────▶ ramping ───────────▶ as without
//	                 ▲ │ another: longer    │ another: paused again
//	                 └─┘◀───────────────────┘
//
// In the pause nothing is let through. On the ramp the sum of what is let through since the pause is never
// more than that of a rate which rises in a straight line, from a tenth of the limiter's to the whole. Both
// only ever hold back: the meters count as ever, so that afterwards the limiter decides as one that was never
// paused and has let through the same. A remaining that was adopted is the most that is let through until it
// ends.

// A thirdParty is what was reported to a limiter.
type thirdParty struct {
	status      int64  // that the last pause was reported with; 0 when there was none
	by          string // whose owner reported that, if it said so
	from, until int64  // of the pause
	used        int64  // of the ramp, in ns of the whole rate
	strikes     int64  // reports that paused and named no time, since the last success
	forgetAt    int64  // when the strikes count no more
	adopted     []adoptedRemaining
}

// An adoptedRemaining is how many a third party still lets through under one of the limits.
type adoptedRemaining struct {
	limit     gatehouse.Limit // its window; the size may have changed since
	since     int64           // when it was reported
	until     int64           // when it counts no more
	remaining int64
	taken     int64 // of it, since then
}

const (
	// firstPause is how long the first pause is for which the third party names no time. Each one that
	// follows is twice as long.
	firstPause = time.Second

	// maxRamp is the longest ramp. With a longer one a server that was paused for an hour would need another
	// hour.
	maxRamp = int64(30 * time.Second)

	// rampBurst is how much of the ramp may be kept for later when it is not used: enough that a caller that
	// is woken late loses nothing, and too little for a burst.
	rampBurst = int64(100 * time.Millisecond)

	// jitterDivisor is what part of a pause the jitter is at most.
	jitterDivisor = 10

	// strikesKept is how long reports are remembered after the ramp for the length of the next pause.
	strikesKept = int64(10 * time.Minute)
)

// reports are what was reported to the limiter, nil when nothing of that counts.
func (l *limiterCore) reports() *thirdParty {
	if l.extra == nil {
		return nil
	}
	return l.extra.reports
}

// rampLength is the length of the ramp: that of the pause, up to maxRamp.
func (t *thirdParty) rampLength() int64 { return min(t.until-t.from, maxRamp) }

// rampEnd is when the ramp ends. Without a pause it is long ago.
func (t *thirdParty) rampEnd() int64 { return addSaturating(t.until, t.rampLength()) }

// heldUntil is until when anything that was reported holds back.
func (t *thirdParty) heldUntil() int64 {
	at := t.rampEnd()
	for i := range t.adopted {
		at = max(at, t.adopted[i].until)
	}
	return at
}

// keptUntil is until when anything that was reported decides something.
func (t *thirdParty) keptUntil() int64 {
	if t.strikes == 0 {
		return t.heldUntil()
	}
	return max(t.heldUntil(), t.forgetAt)
}

// takeFeedback takes a report into account.
func (l *limiterStep) takeFeedback() {
	// Check refuses it, but not all who use a store come through a gate.
	if l.turn.Feedback == nil {
		l.failWith(gatehouse.Invalid, "was told of no answer")
		return
	}
	// A limit is not needed if one is in force, but there must be something to pause.
	if l.created == 0 && !l.turn.HasLimit() {
		l.d.Outcome = gatehouse.Missing
		return
	}
	// A store to which a change costs much is told whether there is one.
	changed := l.created == 0 || !l.keepsLimits(l.turn.Command)
	if !l.applyLimits() {
		return
	}
	f := l.turn.Feedback
	switch t := l.reports(); {
	case f.Pauses():
		l.beginPause(f)
		changed = true
	case f.Succeeds() && t != nil && t.strikes > 0:
		// Calls that were under way when the pause began may succeed still. So it goes on, and only the next
		// one is short again.
		t.strikes, changed = 0, true
	}
	if f.Reset > 0 && l.adoptRemaining(f) {
		changed = true
	}
	l.forgetReports()
	l.fillGranted()
	l.d.Value = boolToInt(changed)
}

// ensureReports makes the reports if there are none.
func (l *limiterStep) ensureReports() *thirdParty {
	l.ensureExtra()
	if l.extra.reports == nil {
		l.extra.reports = new(thirdParty)
	}
	return l.extra.reports
}

// beginPause pauses the limiter, or has it paused for longer. A pause never gets shorter.
func (l *limiterStep) beginPause(f *gatehouse.Feedback) {
	t := l.ensureReports()
	t.status, t.by = int64(f.Status), ""
	if l.turn.Owner != nil {
		t.by = l.turn.Owner.Name
	}
	longest := f.MaxPause
	if longest == 0 {
		longest = gatehouse.DefaultMaxPause
	}
	length := f.RetryAfter
	// Without a time from the third party, each pause in a row is twice as long as the one before.
	if length == 0 {
		length = firstPause
		for range t.strikes {
			if length >= longest {
				break
			}
			length *= 2
		}
		t.strikes++
	}
	length = min(length, longest)
	length = min(length+jitterOf(f.Seed, l.now, length), longest)
	// A report during the pause makes it longer; one after it, on the ramp too, begins another.
	if l.now >= t.until {
		t.from, t.until, t.used = l.now, l.now, 0
	}
	t.until = max(t.until, addSaturating(l.now, int64(length)))
	t.forgetAt = addSaturating(t.rampEnd(), strikesKept)
}

// jitterOf is a length of time from 0 to a tenth of another. It depends only on what every retry and every
// replay of a decision knows, so that they decide the same. It differs between names and between instants, so
// that names that were paused together do not start together.
func jitterOf(seed uint64, now int64, length time.Duration) time.Duration {
	// Without a seed there is no jitter: in a program that decides for itself alone it would serve nothing.
	if seed == 0 {
		return 0
	}
	// The finalizer of SplitMix64, whose every output bit depends on every input bit.
	z := seed + uint64(now)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	part, _ := bits.Mul64(z, uint64(length/jitterDivisor)+1) // from 0
	return time.Duration(part)                               // at most a tenth
}

// forgetReports drops what counts no more.
func (l *limiterStep) forgetReports() {
	t := l.reports()
	if t == nil {
		return
	}
	t.adopted = slices.DeleteFunc(t.adopted, func(a adoptedRemaining) bool { return a.until <= l.now })
	if len(t.adopted) == 0 {
		t.adopted = nil
	}
	// The ramp and the strikes are kept together: a server that learns of a pause learns of the strikes too.
	counts := t.rampEnd() > l.now || t.strikes > 0 && t.forgetAt > l.now
	if !counts {
		// What was adopted has an end of its own.
		*t = thirdParty{adopted: t.adopted}
	}
	if !counts && t.adopted == nil {
		l.extra.reports = nil
		l.dropUnusedExtra(l.now)
	}
}

// endPause ends the pause and the ramp behind it, and forgets all else that was reported.
func (l *limiterStep) endPause() {
	if l.reports() == nil {
		return
	}
	l.extra.reports = nil
	l.dropUnusedExtra(l.now)
}

// Ramping reports whether what was reported to a limiter lets a part of what its limits would at an instant.
// What is paused lets nothing through.
func Ramping(now time.Time, s State) bool {
	l := limiterOf(s)
	if l == nil {
		return false
	}
	t, at := l.reports(), now.UnixNano()
	return t != nil && t.until <= at && t.heldUntil() > at
}
