package control

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// A pace is the meter of a schedule: it keeps the starts that it promised, and the next is promised for
// the earliest instant that leaves no interval with more than the size. That is a sliding log that also
// looks ahead. It is what JARL set out to do, without its faults: JARL keeps arrivals instead of starts
// and lets more through than its limit.
//
// When paced, those that are promised a start ahead of them start one step of interval/size after the
// other, and not all at once when the interval is over; when classic, the first of them is one step
// later still, as in JARL. What is taken without a promise goes by the log alone.
type pace struct {
	slidingLog
	mode gatehouse.Mode
	step int64
	next int64 // one step after the latest start, before that was rounded up
}

func (p *pace) set(now int64, to bound) {
	p.slidingLog.set(now, to)
	p.mode, p.step = to.mode, 0
	if to.size > 0 {
		p.step = to.interval / to.size
	}
}

// promise implements [schedule].
func (p *pace) promise(now, n int64) int64 {
	at := p.when(now, n)
	switch {
	case p.mode == gatehouse.ModeDefault:
	case p.last(now) > now:
		at = max(at, p.next)
	case at > now && p.mode == gatehouse.ModeClassic:
		at = plus(at, p.step)
	}
	return at
}

// take is told an instant in whole milliseconds from now; the steps are counted from the exact one.
func (p *pace) take(now, at, n int64) {
	exact := at
	if at > now {
		exact = min(at, p.promise(now, n))
	}
	p.next = plus(exact, times(p.step, n))
	p.slidingLog.take(now, at, n)
}

func (p *pace) clear() {
	p.slidingLog.clear()
	p.next = 0
}

func (p *pace) clone() meter {
	c := *p
	c.runs = slices.Clone(p.runs)
	return &c
}
