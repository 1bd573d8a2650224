package control

import (
	"fmt"
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
// In the pause nothing is let through. On the ramp the sum of what is let through since the pause is never more
// than that of a rate which rises in a straight line, from a tenth of the limiter's to the whole. Both only ever
// hold back: the meters count as ever, so that afterwards the limiter decides as one that was never paused and
// has let through the same. A remaining that was adopted is the most that is let through until it ends.

// A thirdParty is what was reported to a limiter.
type thirdParty struct {
	status      int64 // that the last pause was reported with; 0 when there was none
	from, until int64 // of the pause
	used        int64 // of the ramp, in ns of the whole rate
	strikes     int64 // reports that paused and named no time, since the last success
	forgetAt    int64 // when the strikes count no more
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
	// firstPause is how long the first pause is for which the third party names no time. Each one that follows
	// is twice as long.
	firstPause = time.Second

	// maxRamp is the longest ramp. With a longer one a server that was paused for an hour would need another
	// hour.
	maxRamp = int64(30 * time.Second)

	// rampBurst is how much of the ramp may be kept for later by who does not use it: enough that callers who are
	// woken late lose nothing, and too little for a burst.
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
	// A limit is not needed if one is in force, but there must be something to pause.
	if l.created == 0 && !l.turn.HasLimit() {
		l.d.Outcome = gatehouse.Missing
		return
	}
	if !l.applyLimits() {
		return
	}
	f := l.turn.Feedback
	switch {
	case f.Pauses():
		l.beginPause(f)
	case f.Succeeds() && l.reports() != nil:
		// Calls that were under way when the pause began may succeed still. So it goes on, and only the next one
		// is short again.
		l.reports().strikes = 0
	}
	if f.Reset > 0 {
		l.adoptRemaining(f)
	}
	l.forgetReports()
	l.fillGranted()
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
	t.status = int64(f.Status)
	longest := f.MaxPause
	if longest == 0 {
		longest = gatehouse.DefaultMaxPause
	}
	length := f.RetryAfter
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

// jitterOf is a length of time from 0 to a tenth of another. It is drawn from what every retry and every replay
// of a decision knows, so that they decide the same; and of other names at the same instant, or of this name at
// another one, it is another, so that those who were paused together do not start together.
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

// adoptRemaining puts in force how many a third party still lets through, if that is fewer than what is known
// here, for the limit whose window ends nearest to its reset.
func (l *limiterStep) adoptRemaining(f *gatehouse.Feedback) {
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
		return
	}
	if a == nil {
		t := l.ensureReports()
		t.adopted = append(t.adopted, adoptedRemaining{})
		a = &t.adopted[len(t.adopted)-1]
	}
	*a = adoptedRemaining{
		limit: nearest.currentLimit(), since: l.now, until: until, remaining: f.Remaining,
	}
	a.limit.Size = 0
}

// windowEnd is when the present window of a limit ends; of a limit that counts in no fixed windows, when one
// ends that begins now.
func windowEnd(m limitMeter, now int64) int64 {
	switch m := m.(type) {
	case *fixedWindowMeter:
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
		if a := &t.adopted[i]; a.until > l.now && sameWindow(a.limit, limit) {
			return a
		}
	}
	return nil
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
	// The ramp and the strikes go together: whoever is told of a pause is told of the last one.
	counts := t.rampEnd() > l.now || t.strikes > 0 && t.forgetAt > l.now
	if !counts {
		t.status, t.from, t.until, t.used, t.strikes, t.forgetAt = 0, 0, 0, 0, 0, 0
	}
	if !counts && t.adopted == nil {
		l.extra.reports = nil
		l.dropUnusedExtra(l.now)
	}
}

// reportedFit is the earliest instant, not before that at which the limits let n through, at which what was
// reported does so too. from is the earliest at which they may.
func (l *limiterStep) reportedFit(from, at, n int64) int64 {
	t := l.reports()
	if t == nil {
		return at
	}
	for _, m := range l.projectedMeters() {
		at = max(at, l.adoptedFit(m, from, n))
	}
	return l.rampFit(t, at, n)
}

// adoptedFit is when a limit lets n through, with what was adopted for it.
func (l *limiterStep) adoptedFit(m limitMeter, from, n int64) int64 {
	at := m.earliestFit(from, n)
	if a := l.adoptedOf(m); a != nil && n > a.remaining && at < a.until {
		return m.earliestFit(a.until, n)
	}
	return at
}

// rampFit is the earliest instant, not before another, at which the ramp lets n through.
func (l *limiterStep) rampFit(t *thirdParty, from, n int64) int64 {
	from = max(from, t.until)
	if from >= t.rampEnd() {
		return from
	}
	want, length := addSaturating(t.used, l.rampCost(n)), t.rampLength()
	if t.rampSum(length) < want {
		return t.rampEnd()
	}
	// The sum rises with the time, so that the instant can be found by halving. It takes 35 steps, which only a
	// limiter on its ramp needs.
	least, most := from-t.until, length
	for least < most {
		if middle := least + (most-least)/2; t.rampSum(middle) >= want {
			most = middle
		} else {
			least = middle + 1
		}
	}
	return t.until + least
}

// rampSum is how much the ramp has let through after some time, in ns of the whole rate: the integral of
// 1/10 + 9/10·x/length.
func (t *thirdParty) rampSum(x int64) int64 {
	// With x at most 30 s no product but that of proportionOf exceeds 64 bits.
	return x/10 + proportionOf(9*x, x, 20*t.rampLength())
}

// rampCost is the time in which n come back at the whole rate, rounded up. Of several limits the one with the
// highest rate counts: it is what the ramp leads up to, as the others say little about so short a time.
func (l *limiterStep) rampCost(n int64) int64 {
	cost := int64(noTime)
	for _, m := range l.activeMeters() {
		if size := m.currentLimit().Size; size > 0 {
			hi, lo := bits.Mul64(uint64(n), uint64(m.windowLength())) // from 0
			if hi >= uint64(size) {
				continue
			}
			quotient, rest := bits.Div64(hi, lo, uint64(size))
			if rest > 0 {
				quotient++
			}
			cost = min(cost, int64(min(quotient, noTime))) // checked
		}
	}
	return cost
}

// rampLeft is how many the ramp lets through at once.
func (l *limiterStep) rampLeft(t *thirdParty) int64 {
	left := int64(0)
	unused := max(0, t.rampSum(l.now-t.until)-t.used)
	for _, m := range l.activeMeters() {
		hi, lo := bits.Mul64(uint64(unused), uint64(m.currentLimit().Size)) // from 0
		if interval := uint64(m.windowLength()); hi < interval {
			quotient, _ := bits.Div64(hi, lo, interval)
			left = max(left, int64(min(quotient, noTime))) // checked
		} else {
			left = noTime
		}
	}
	return left
}

// lowerToReported lowers what a meter has left to what was reported lets through.
func (l *limiterStep) lowerToReported(m limitMeter, r *meterReading) {
	t := l.reports()
	if t == nil {
		return
	}
	if a := l.adoptedOf(m); a != nil {
		r.left = min(r.left, a.remaining)
	}
	switch {
	case t.until > l.now:
		r.left = 0
	case t.rampEnd() > l.now:
		r.left = min(r.left, l.rampLeft(t))
	}
}

// noteReportedTake counts n that start at an instant against what was reported.
func (l *limiterStep) noteReportedTake(at, n int64) {
	t := l.reports()
	if t == nil {
		return
	}
	for i := range t.adopted {
		if a := &t.adopted[i]; at < a.until {
			back := min(n, a.remaining)
			a.remaining, a.taken = a.remaining-back, a.taken+back
		}
	}
	x := at - t.until
	if x < 0 || x >= t.rampLength() {
		return
	}
	// Whoever lets the ramp pass unused gets no burst for it later, beyond what keeps exactness.
	cost, sum := l.rampCost(n), t.rampSum(x)
	unused := max(cost, sum-t.rampSum(max(0, x-rampBurst)))
	t.used = addSaturating(max(t.used, sum-min(sum, unused)), cost)
}

// undoReportedTake takes back what noteReportedTake counted of n that were taken at an instant.
func (l *limiterStep) undoReportedTake(at, n int64) {
	t := l.reports()
	if t == nil {
		return
	}
	t.giveBackAdopted(at, n)
	if x := at - t.until; x >= 0 && x < t.rampLength() {
		t.used = max(0, t.used-l.rampCost(n))
	}
}

// giveBackAdopted gives back to what was adopted by an instant, no more than was taken of it since.
func (t *thirdParty) giveBackAdopted(at, n int64) {
	if t == nil {
		return
	}
	for i := range t.adopted {
		if a := &t.adopted[i]; at >= a.since {
			back := min(n, a.taken)
			a.remaining, a.taken = a.remaining+back, a.taken-back
		}
	}
}

// refusesChunk refuses a chunk while anything that was reported holds back: what a server has in a chunk it lets
// through without asking again.
func (l *limiterStep) refusesChunk() bool {
	if l.turn.Chunk == nil {
		return false
	}
	t := l.reports()
	if t == nil || t.heldUntil() <= l.now {
		return false
	}
	l.fillRefused()
	if l.d.Outcome == gatehouse.Refused && l.d.RetryAfter != gatehouse.Forever {
		l.d.RetryAfter = max(l.d.RetryAfter, waitUntil(l.now, t.heldUntil()))
	}
	return true
}

// fillRefusedReports fills in a refusal what was reported, and why that refuses. latest is when the limits let n
// through that start no earlier than from; it returns when what was reported does so too.
func (l *limiterStep) fillRefusedReports(from, latest, n int64) int64 {
	t := l.reports()
	if t == nil {
		return latest
	}
	byLimits, at := int64(0), max(latest, l.rampFit(t, from, n))
	for _, m := range l.projectedMeters() {
		byLimits = max(byLimits, m.earliestFit(l.earliestUnpaused(), n))
	}
	l.fillReported()
	// Who goes on waiting is shown no reason, and looks often. Who is refused by a limit for as long is told of
	// that, but of a pause in any case.
	if r := l.d.Reported; r != nil && (r.PausedFor > 0 || at > byLimits) && !l.turn.keepsWaiting() {
		l.d.Message = l.reasonReported(r)
	}
	return at
}

// fillReported fills in what was reported, as far as it holds back.
func (l *limiterStep) fillReported() {
	t := l.reports()
	if t == nil || t.heldUntil() <= l.now {
		return
	}
	r := new(gatehouse.Reported)
	if t.rampEnd() > l.now {
		r.Status, r.PausedFor = int(t.status), time.Duration(max(0, t.until-l.now))
		r.RampFor = time.Duration(t.rampEnd() - l.now)
	}
	for _, m := range l.activeMeters() {
		if a := l.adoptedOf(m); a != nil && (r.AdoptedFor == 0 || a.remaining < r.Adopted) {
			r.Adopted, r.AdoptedFor = a.remaining, time.Duration(a.until-l.now)
		}
	}
	l.d.Reported = r
}

// reasonReported says why something is refused because of what was reported. The limiter is its subject.
func (l *limiterStep) reasonReported(r *gatehouse.Reported) string {
	at := func(after time.Duration) string {
		return l.d.At.Add(after).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	switch {
	case r.PausedFor > 0:
		return fmt.Sprintf("is paused until %s, reported with %d", at(r.PausedFor), r.Status)
	case r.RampFor > 0:
		return fmt.Sprintf("starts again slowly until %s, after a pause reported with %d", at(r.RampFor), r.Status)
	}
	return fmt.Sprintf("has %d left until %s, as was reported", r.Adopted, at(r.AdoptedFor))
}

// reportedStats are the figures about what was reported, as far as it holds back.
func (l *limiterStep) reportedStats() (figures []gatehouse.Stat) {
	r := l.d.Reported
	if r == nil {
		return nil
	}
	if r.Status != 0 {
		figures = append(figures,
			gatehouse.Stat{Name: "paused_with", Value: int64(r.Status)},
			gatehouse.Stat{Name: "paused_for", Value: r.PausedFor},
			gatehouse.Stat{Name: "ramp_for", Value: r.RampFor})
	}
	if r.AdoptedFor > 0 {
		figures = append(figures,
			gatehouse.Stat{Name: "adopted", Value: r.Adopted},
			gatehouse.Stat{Name: "adopted_for", Value: r.AdoptedFor})
	}
	return figures
}

// EndPause ends the pause of a limiter and the ramp behind it, and forgets all else that was reported to it. It
// reports whether there was anything to end.
func EndPause(now time.Time, s State) (ended bool) {
	limiter, ok := s.(anyLimiter)
	if !ok {
		return false
	}
	step := limiter.stepAt(now.UnixNano(), nil)
	return step.endPause()
}

// endPause is EndPause for a step.
func (l *limiterStep) endPause() (ended bool) {
	t := l.reports()
	if t == nil {
		return false
	}
	ended = t.heldUntil() > l.now
	l.extra.reports = nil
	l.dropUnusedExtra(l.now)
	return ended
}

// Ramping reports whether what was reported to a limiter lets a part of what its limits would at an instant. What
// is paused lets nothing through.
func Ramping(now time.Time, s State) bool {
	l := limiterOf(s)
	if l == nil {
		return false
	}
	t, at := l.reports(), now.UnixNano()
	return t != nil && t.until <= at && t.heldUntil() > at
}

// reportAlters reports whether a feedback changes anything.
func (l *limiterStep) reportAlters(cmd *gatehouse.Command) bool {
	t, f := l.reports(), cmd.Feedback
	return f.Pauses() || f.Succeeds() && t != nil && t.strikes > 0 || f.Reset > 0 || !l.keepsLimits(cmd)
}
