package control

import "github.com/gatehousehq/gatehouse"

// A pace is the meter of a schedule: it keeps the starts that it promised, the last size of them, and
// the next is promised for the earliest instant that leaves no interval with more than the size. That
// is a sliding log that also looks ahead. It is what JARL set out to do, without its faults: JARL keeps
// arrivals instead of starts and lets more through than its limit.
//
// When paced, those who must wait start one step of interval/size after the other, and not all at once
// when the interval is over; when classic, the first of them is one step later still, as in JARL.
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

func (p *pace) when(from, n int64) int64 {
	at := p.slidingLog.when(from, n)
	if p.mode == gatehouse.ModeDefault || at == noTime || n == 0 {
		return at
	}
	switch queued := p.last(from) > from; {
	case queued:
		at = max(at, p.next)
	case at > from && p.mode == gatehouse.ModeClassic:
		at += p.step
	}
	return at
}

func (p *pace) take(now, at, n int64) {
	unrounded := at
	if at > now && p.mode != gatehouse.ModeDefault {
		unrounded = min(at, p.when(now, n))
	}
	p.next = later(unrounded, times(p.step, n))
	p.slidingLog.take(now, at, n)
}

func (p *pace) clear() {
	p.slidingLog.clear()
	p.next = 0
}

func (p *pace) clone() meter {
	c := *p
	c.slidingLog = *p.slidingLog.clone().(*slidingLog)
	return &c
}
