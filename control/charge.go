package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A charge takes what was spent already, whether there is room or not. What is free is taken at once. The
// rest is the debt: it lies ahead like reservations, in pieces of at most the limit, each at the earliest
// instant at which it fits behind all that lies ahead already. So every rule about reservations holds for it
// too: nothing is let through before the last piece, a change of limits keeps it, and each piece counts where
// it starts.
//
// A piece smaller than the limit is laid again together with the next charge, unless a place was reserved
// behind it. Otherwise a thousand charges of 1 would need a thousand pieces, and one of 1,000 a single one.

// chargeCost takes the cost of a command. It refuses only what could not be repaid, and then takes nothing.
func (l *limiterStep) chargeCost() {
	if l.created == 0 && !l.turn.HasLimit() {
		l.d.Outcome = gatehouse.Missing
		return
	}
	if !l.applyLimits() {
		return
	}
	// From here on the limits are in force, even if the charge itself is refused.
	limit, free := l.limitAndFree()
	if limit == 0 {
		l.failWith(gatehouse.Conflict, "has a size of 0, under which nothing is ever repaid")
		return
	}
	free = min(free, l.turn.Cost)
	if debt := l.turn.Cost - free; debt > 0 {
		// The plan is made on copies. If the debt cannot be repaid in time, nothing was taken yet and
		// nothing has to be undone.
		p := l.planRepayment(free, debt, limit)
		if p.fault != "" {
			l.failWith(gatehouse.Conflict, p.fault)
			return
		}
		l.ensureRuleNoted(l.turn.Command)
		l.carryOutPlan(p)
	}
	if free > 0 {
		// The projection of the plan has the free part already. The meters themselves take it here.
		for _, m := range l.activeMeters() {
			m.takeTokens(l.now, l.now, free)
		}
	}
	l.noteReportedTake(l.now, l.turn.Cost)
	l.countPassed(l.d.At, l.turn)
	l.fillGranted()
	if free < l.turn.Cost {
		// The last piece is the last reservation, as nothing starts after it yet.
		l.d.Delay = time.Duration(l.earliestUnpaused() - l.now)
	}
}

// limitAndFree is the most that any limit lets through at once, and how much of that is free at an instant.
// What third parties have reported does not matter to a charge, which was spent already.
func (l *limiterStep) limitAndFree() (limit, free int64) {
	limit, free = noTime, noTime
	for _, m := range l.projectedMeters() {
		r := m.readMeter(l.now)
		if l.earliestUnpaused() > l.now {
			r.left = 0
		}
		// Several limits hold together: the smallest of each decides.
		limit, free = min(limit, r.limit), min(free, r.left)
	}
	return limit, free
}

// A repaymentPlan is where the debt of a charge is laid. Nothing has changed yet.
type repaymentPlan struct {
	keep      int           // how many of the present reservations stay
	pieces    []reservation // in the place of the others
	projected []limitMeter  // copies of the meters in which all of them are taken
	fault     string        // why the debt cannot be laid
}

// planRepayment lays a debt behind all that lies ahead, in pieces of at most the limit. free is taken now,
// before the debt.
func (l *limiterStep) planRepayment(free, debt, limit int64) (p repaymentPlan) {
	ahead := l.extra.placesAhead()
	keep := len(ahead)
	// The last piece may be smaller than the limit. It is taken up into this debt and laid again with it,
	// which keeps the number of pieces low. A reservation behind it would be overtaken, so then it stays.
	if last := keep - 1; last >= 0 && ahead[last].isDebt && ahead[last].n < limit {
		keep = last
		debt = addSaturating(debt, ahead[last].n)
	}
	p.keep = keep
	// The count is checked before anything is copied: a huge debt must not cost much to refuse.
	if pieces := (debt-1)/limit + 1; pieces > int64(maxReservations-p.keep) {
		p.fault = fmt.Sprintf("would be in debt by %d pieces of %d; "+
			"it keeps at most %d pieces and reservations", pieces, limit, maxReservations)
		return p
	}
	p.projected = l.projectWithout(ahead[p.keep:])
	l.planPieces(&p, free, debt, limit)
	return p
}

// planPieces lays a debt behind what a plan keeps, in the meters that it projects.
func (l *limiterStep) planPieces(p *repaymentPlan, free, debt, limit int64) {
	// The projected meters must see the part that is taken now, since pieces compete with it.
	if free > 0 {
		// Every limit has to let the piece through, so the latest of their instants counts.
		for _, m := range p.projected {
			m.takeTokens(l.now, l.now, free)
		}
	}
	// No piece may start before a reservation that stays.
	from := l.now
	if p.keep > 0 {
		from = max(from, l.extra.reservations[p.keep-1].at)
	}
	for debt > 0 {
		piece := reservation{at: from, n: min(debt, limit), answers: 1, isDebt: true}
		for _, m := range p.projected {
			piece.at = max(piece.at, earliestPiece(m, from, piece.n))
		}
		if piece.at-l.now > int64(gatehouse.MaxDuration) || piece.at > latest {
			p.fault = "would be in debt for more than 100 years"
			return
		}
		// The next piece is found with this one taken, and never before it.
		p.pieces = append(p.pieces, piece)
		l.extra.takeReservations(p.projected, l.now, p.pieces[len(p.pieces)-1:])
		debt, from = debt-piece.n, piece.at
	}
}

// earliestPiece is the first instant, not before from, at which a meter lets n through that lie ahead.
func earliestPiece(m limitMeter, from, n int64) int64 {
	at := m.earliestFit(from, n)
	if s, ok := m.(schedulingMeter); ok {
		at = max(at, s.earliestReservation(from, n))
	}
	return at
}

// projectWithout are copies of the meters in which all that lies ahead is taken except some promises, the
// last ones.
func (l *limiterStep) projectWithout(some []reservation) []limitMeter {
	if len(some) == 0 {
		return copyMeters(l.projectedMeters(), limitMeter.clone)
	}
	ahead := copyMeters(l.activeMeters(), limitMeter.clone)
	if l.extra.projected == nil {
		// The meters hold the reservations themselves, and can give single ones back.
		removeReservations(ahead, some)
	} else {
		// The meters know only what has started.
		stay := l.extra.reservations[:len(l.extra.reservations)-len(some)]
		l.extra.takeReservations(ahead, l.now, stay)
	}
	return ahead
}

// carryOutPlan puts a plan into effect. The rule in force is noted already.
func (l *limiterStep) carryOutPlan(p repaymentPlan) {
	replaced := l.extra.reservations[p.keep:]
	// Scheduling meters get the difference; for others the plan's copies are the projection already.
	if l.allScheduling() {
		removeReservations(l.activeMeters(), replaced)
		l.extra.takeReservations(l.activeMeters(), l.now, p.pieces)
	} else {
		l.extra.projected = p.projected
	}
	// A piece is a reservation, and the encoding wants a number of each.
	for i := range p.pieces {
		p.pieces[i].number = l.nextReservationNumber()
	}
	l.extra.reservations = append(l.extra.reservations[:p.keep], p.pieces...)
	l.startDueReservations() // what was reserved again may fit at once by now
}

// lowerDebt takes n off the debt, the latest piece first, and returns how much is left of n.
func (l *limiterStep) lowerDebt(n int64) (rest int64) {
	if l.extra == nil {
		return n
	}
	ahead := l.extra.reservations
	// The latest piece goes first, so that the limiter is free again as early as possible.
	for i := len(ahead) - 1; i >= 0 && n > 0; i-- {
		p := &ahead[i]
		if !p.isDebt {
			continue
		}
		back := min(n, p.n)
		if l.extra.projected == nil {
			removeReservations(l.activeMeters(), []reservation{{at: p.at, n: back}})
		}
		p.n, n = p.n-back, n-back
	}
	// Pieces that are paid off go; what remains keeps its place.
	l.extra.reservations = slices.DeleteFunc(ahead, func(p reservation) bool { return p.n == 0 })
	if l.extra.shares != nil {
		l.extra.shares.truncateDebts(l.totalDebt())
	}
	l.rebuildProjection()
	l.dropUnusedExtra(l.now)
	return n
}

// maxPieces is how many pieces a charge lays ahead, at most.
func (l *limiterStep) maxPieces(cmd *gatehouse.Command, keeps bool) int {
	// The smallest limit decides how large a piece is, and a smaller piece means more of them.
	limit := int64(noTime)
	if keeps {
		for _, m := range l.activeMeters() {
			limit = min(limit, m.currentLimit().Size)
		}
	} else {
		for i := range limitCount(&cmd.Rule) {
			limit = min(limit, limitAt(&cmd.Rule, i).Size)
		}
	}
	// A burst of a GCRA is more or less than its size: then as many as there may be.
	if _, bursts := l.first.(*gcraMeter); bursts || limit <= 0 {
		limit = 1
	}
	return int(min(cmd.Cost/limit+1, maxReservations))
}

// totalDebt is how much of what was charged is not repaid yet.
func (l *limiterCore) totalDebt() (n int64) {
	for _, p := range l.extra.placesAhead() {
		if p.isDebt {
			n = addSaturating(n, p.n)
		}
	}
	return n
}
