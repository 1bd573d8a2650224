package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A paceMeter is the meter of a schedule: it keeps the starts that it promised, and the next is promised for
// the earliest instant that leaves no interval with more than the size. That is a sliding log that also
// looks ahead. It is what JARL set out to do, without its faults: JARL keeps arrivals instead of starts
// and lets more through than its limit.
//
// When paced, those that are promised a start ahead of them start one step of interval/size after the
// other, and not all at once when the interval is over; when classic, the first of them is one step
// later still, as in JARL. What is taken without a promise goes by the log alone.
type paceMeter struct {
	slidingLogMeter
	mode gatehouse.Mode
	next int64 // one step after the latest start, as it was before it was rounded up
}

func (p *paceMeter) setLimit(now int64, to *gatehouse.Rule, _ *time.Location) (restarted bool) {
	restarted = p.setSpan(now, to, to.Interval+to.Guard)
	p.mode = to.Mode
	return restarted
}

// stepLength is the time from one start to the next; 0 when the size is.
func (p *paceMeter) stepLength() int64 {
	if p.size == 0 {
		return 0
	}
	return p.interval / p.size
}

// earliestReservation implements [schedulingMeter].
func (p *paceMeter) earliestReservation(now, n int64) int64 {
	at := p.earliestFit(now, n)
	// A size of 0 never lets anything through.
	if at == noTime {
		return at
	}
	return max(at, p.unroundedStart(now, n))
}

// unroundedStart is when n would start if nothing were rounded: not before the last start as it was promised,
// but a step after that as it was meant. Otherwise what is rounded would add up.
func (p *paceMeter) unroundedStart(now, n int64) int64 {
	room := max(0, p.size-n) // a place may be for more than the size, which was made smaller since
	// Steps between starts matter only while others lie ahead.
	at := max(now, p.freedAt(room))
	switch {
	case p.mode == gatehouse.ModeDefault:
	case p.latestStart(now) > now:
		at = max(at, p.next)
	case at > now && p.mode == gatehouse.ModeClassic:
		at = addSaturating(at, p.stepLength())
	}
	return at
}

func (p *paceMeter) takeTokens(now, at, n int64) {
	// Reservations are rounded up to whole milliseconds. The next one is planned from the exact instant, or
	// the rounding would add up.
	exact := at
	if e := p.unroundedStart(now, n); at > now && at-e < int64(time.Millisecond) { // it was only rounded up
		exact = min(at, e)
	}
	if p.latestStart(at) == at { // otherwise it was forced in before one that lies ahead
		p.next = addSaturating(exact, mulSaturating(p.stepLength(), n))
	}
	p.slidingLogMeter.takeTokens(now, at, n)
}

func (p *paceMeter) clearTaken() {
	p.slidingLogMeter.clearTaken()
	p.next = 0
}

func (p *paceMeter) clone() limitMeter {
	c := *p
	c.copyRuns()
	return &c
}

func (p *paceMeter) codeFields(c *stateCodec) {
	p.slidingLogMeter.codeFields(c)
	c.codeByte((*byte)(&p.mode), byte(gatehouse.ModeClassic))
	c.codeInstant(&p.next)
}
