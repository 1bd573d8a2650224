package control

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// This file is what grants owe: what was spent beyond what they took, how it is charged and repaid.

// lowerShareDebt takes up to n off the debt that a share has booked and that is not repaid, and returns how
// much is left of n. What others have booked behind it moves up.
func (l *limiterStep) lowerShareDebt(s *grantShare, n int64) (rest int64) {
	lowered := int64(0)
	// The last first, which would be repaid last.
	for i := len(s.debts) - 1; i >= 0 && lowered < n; i-- {
		span := &s.debts[i]
		cut := min(n-lowered, span.n)
		span.n -= cut
		lowered += cut
		l.extra.shares.moveDebtsUp(span, cut)
	}
	if lowered == 0 {
		return n
	}
	s.debts = slices.DeleteFunc(s.debts, func(d debtSpan) bool { return d.n == 0 })
	l.lowerDebt(lowered)
	return n - lowered
}

// moveDebtsUp moves what was booked behind a part of the debt up by what was cut off the end of that.
func (m *shareList) moveDebtsUp(span *debtSpan, cut int64) {
	end := span.from + span.n
	for _, s := range m.list {
		for i := range s.debts {
			if d := &s.debts[i]; d != span && d.from >= end {
				d.from -= cut
			}
		}
	}
}

// A chargePlan is how something that was spent beyond a share is charged. Nothing has changed yet.
type chargePlan struct {
	free, debt int64 // what is taken at once, and what lies ahead
	repayment  repaymentPlan
}

// planCharge plans to charge n, or as much of it as is free. A fault says why it cannot be charged.
func (l *limiterStep) planCharge(n int64, o gatehouse.Overrun) (c chargePlan, fault string) {
	limit, free := l.limitAndFree()
	c.free = min(free, n)
	// Capped, a charge takes what is free, and leaves no debt.
	if o == gatehouse.OverrunCap || c.free == n {
		return c, ""
	}
	if limit == 0 {
		return c, "has a size of 0, under which nothing is ever repaid"
	}
	c.debt = n - c.free
	c.repayment = l.planRepayment(c.free, c.debt, limit)
	return c, c.repayment.fault
}

// carryOutCharge puts a plan into effect. The share may be nil, of a grant that has none here any more.
func (l *limiterStep) carryOutCharge(s *grantShare, c chargePlan) {
	if c.debt > 0 {
		l.ensureExtra()
		if !l.extra.knowsRule() {
			l.extra.rule = l.first.inForce(gatehouse.Rule{})
		}
		// Before the plan is carried out, as what of it is due at once is repaid then.
		if s != nil && len(s.debts) < maxSpans {
			s.debts = append(s.debts, debtSpan{from: l.totalDebt(), n: c.debt})
			l.extra.shares.weighShare(s)
		}
		l.carryOutPlan(c.repayment)
	}
	if c.free > 0 {
		l.takeForShare(s, c.free)
	}
	if s != nil {
		s.counted = addSaturating(s.counted, c.free+c.debt)
	}
}

// noteRepaid notes whose debt a piece of it was that starts.
func (l *limiterStep) noteRepaid(piece *reservation) {
	for _, s := range l.extra.shares.list {
		if len(s.debts) == 0 {
			continue
		}
		for i := range s.debts {
			d := &s.debts[i]
			// A piece repays the front of the whole debt. What of it
			// reaches into this span is this share's.
			if mine := min(d.from+d.n, piece.n) - d.from; mine > 0 {
				l.noteTake(s, shareTake{at: piece.at, n: mine}, piece.n-d.from-mine)
				d.n -= mine
			}
			// What lies behind the piece moves up.
			d.from = max(0, d.from-piece.n)
		}
		s.debts = slices.DeleteFunc(s.debts, func(d debtSpan) bool { return d.n == 0 })
	}
}

// truncateDebts notes that the end of the debt was taken off: it is not of the shares' any more.
func (m *shareList) truncateDebts(left int64) {
	for _, s := range m.list {
		for i := range s.debts {
			d := &s.debts[i]
			d.n = max(0, min(d.n, left-d.from))
		}
		s.debts = slices.DeleteFunc(s.debts, func(d debtSpan) bool { return d.n == 0 })
	}
}

// advanceDebt lays what lies ahead again, after something was given back: what fits now is repaid at once, so
// that it is not left unused until the last of the debt is. Where a place was reserved behind or before the
// debt, all stays as it was promised.
func (l *limiterStep) advanceDebt() {
	debt := l.totalDebt()
	if debt == 0 || l.reservedAhead() > 0 {
		return
	}
	p := repaymentPlan{projected: l.projectWithout(l.extra.reservations)}
	// All that is free is taken, and by the oldest debt first.
	limit, free := int64(noTime), debt
	for _, m := range p.projected {
		r := m.readMeter(l.now)
		limit, free = min(limit, r.limit), min(free, r.left)
	}
	if free == 0 || limit == 0 {
		return
	}
	l.planPieces(&p, free, debt-free, limit)
	if p.fault != "" || len(p.pieces) > maxReservations {
		return
	}
	l.carryOutPlan(p)
	for _, m := range l.activeMeters() {
		m.takeTokens(l.now, l.now, free)
	}
	if l.extra.shares != nil {
		l.noteRepaid(&reservation{at: l.now, n: free, isDebt: true})
	}
	l.rebuildProjection()
	l.dropUnusedExtra(l.now)
}
