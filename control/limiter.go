package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A limiterState is a limiter whose one limit is kept by a meter of type M.
type limiterState[M any, P interface {
	*M
	limitMeter
}] struct {
	limiterCore
	meter M
}

// Step implements [State].
func (l *limiterState[M, P]) Step(now time.Time, turn *Turn) {
	turn.beginDecision(now)
	step := l.stepAt(now.UnixNano(), turn)
	step.d = &turn.Decision
	step.applyCommand()
}

// Undo implements [State].
func (l *limiterState[M, P]) Undo(now time.Time, turn *Turn) {
	step := l.stepAt(now.UnixNano(), turn)
	step.undoGrant()
}

// Expiry implements [State].
func (l *limiterState[M, P]) Expiry() time.Time {
	step := l.stepAt(l.created, nil)
	return step.expiryTime()
}

// stepAt is a step at an instant, without a decision to fill in; turn is nil when it applies no command.
func (l *limiterState[M, P]) stepAt(now int64, turn *Turn) limiterStep {
	return limiterStep{limiterCore: &l.limiterCore, first: P(&l.meter), now: now, turn: turn}
}

// An anyLimiter is a limiterState of any meter.
type anyLimiter interface {
	stepAt(now int64, turn *Turn) limiterStep
}

// A limiterCore is what all limiters share: the rules of waiting, of several limits, of what is promised
// for later. What is particular to one way of limiting is its meter's business.
type limiterCore struct {
	commandCounts
	extra *limiterExtra // nil while there is one limit, and no reservation, chunk or generation to keep
}

// A limiterStep is a limiter while one call to it lasts, and what that call is about. It lies on the stack:
// what it points to is written in place, and no large value is copied from one function to the next.
type limiterStep struct {
	*limiterCore
	first limitMeter          // of the limit while there is one
	now   int64               // the instant of the call, Unix ns
	turn  *Turn               // whose command is applied or undone; nil in a call about the limiter alone
	d     *gatehouse.Decision // the turn's, to fill in, whose time is set already
}

// applyCommand applies one command.
func (l *limiterStep) applyCommand() {
	if l.extra != nil {
		l.passTime()
	}
	// What a grant takes is kept apart in its share, by which it is settled later.
	if l.turn.Grant != nil {
		l.applyGrantCommand()
		return
	}
	switch l.turn.Op {
	case gatehouse.OpAcquire:
		l.acquireTokens()
		return
	case gatehouse.OpClose, gatehouse.OpOpen:
		l.setClosed()
		return
	case gatehouse.OpReserve:
		l.reserveTokens()
		return
	case gatehouse.OpCharge:
		l.chargeCost()
		return
	case gatehouse.OpPeek, gatehouse.OpDelay:
		l.peekOrDelay()
		return
	case gatehouse.OpFeedback:
		l.takeFeedback()
		return
	}
	// What follows asks about a limiter that is there; it does not make one.
	if l.created == 0 {
		l.d.Outcome = gatehouse.Missing
		return
	}
	switch l.turn.Op {
	case gatehouse.OpCancel:
		l.cancelReservation()
		return
	case gatehouse.OpRefund:
		l.refundTokens(l.turn.Cost)
	case gatehouse.OpReset:
		l.resetTaken()
	}
	// The answer shows the limits as they are after the command.
	l.fillGranted()
	if l.turn.Op == gatehouse.OpStats {
		l.d.Stats = l.limiterStats()
	}
}

// passTime brings the extra to the instant of the step: shares of grants that are over are settled,
// reservations that are due become ordinary takes, and chunks and reports that ended stop counting. Each may
// drop the extra.
func (l *limiterStep) passTime() {
	if l.extra.shares != nil {
		l.endDueShares()
	}
	if l.extra != nil {
		l.startDueReservations()
	}
	if l.extra != nil {
		l.dropEndedChunks()
	}
	l.forgetReports()
}

// acquireTokens takes what the command wants now, or says when it might.
func (l *limiterStep) acquireTokens() {
	if !l.applyLimits() {
		return
	}
	// The tokens are spent already, so the limit is not asked.
	if l.turn.Forced {
		l.forceTake()
		return
	}
	if !l.checkAvailable() || l.turn.Chunk != nil && l.refusesChunk() {
		// A conflict is not counted as a timeout: no wait would have helped.
		if l.d.Outcome == gatehouse.Refused {
			l.countRefused(l.turn)
		}
		// How long the chunk may be used follows from the reset time in the decision just filled in.
		if l.turn.Chunk != nil {
			l.d.Value = l.leftInChunk(l.turn.Chunk)
		}
		return
	}
	// A chunk is not a request of a client. Its holder reports later how many it let through.
	if l.turn.Chunk == nil {
		l.countPassed(l.d.At, l.turn)
	}
	for _, m := range l.activeMeters() {
		m.takeTokens(l.now, l.now, l.turn.Cost)
	}
	if l.extra != nil {
		l.noteReportedTake(l.now, l.turn.Cost)
	}
	l.fillGranted()
	if l.turn.Chunk != nil {
		l.lendChunk()
	}
}

// forceTake counts what was let through elsewhere.
func (l *limiterStep) forceTake() {
	if l.turn.Cost > 0 {
		// A zero comes from senders that speak for a single request.
		l.passed += max(1, l.turn.Requests)
		for _, m := range l.activeMeters() {
			m.takeTokens(l.now, l.now, l.turn.Cost)
		}
		l.noteReportedTake(l.now, l.turn.Cost)
		// What starts now may be before reservations, which the projection must count after it.
		l.rebuildProjection()
	}
	l.fillGranted()
}

// applyLimits puts the command's limits in force, at its first look. It reports false when it cannot.
func (l *limiterStep) applyLimits() (ok bool) {
	// A waiting command puts its limits in force once. Otherwise two that wait with different limits would
	// change them back and forth with every look.
	if (l.turn.Again || l.turn.isFollowing()) && l.created != 0 {
		return true
	}
	cmd := l.turn.Command
	if !l.turn.HasLimit() {
		if l.created != 0 {
			return true
		}
		if !l.mayBeginWithDefault() {
			return false
		}
		cmd = new(*cmd)
		cmd.Rule = gatehouse.Rule{Size: gatehouse.DefaultSize, Interval: gatehouse.DefaultInterval}
	}
	if (cmd.KeepLimit || cmd.TellResize) && l.created != 0 && !l.keepsLimits(cmd) {
		if cmd.KeepLimit {
			l.failWith(gatehouse.Forbidden, anotherLimit)
			return false
		}
		l.d.Resized = true
	}
	// The common case: one limit, which the one meter keeps without any extra. An extra that needs no
	// encoding gets no rule either: a copy that is read would not know it.
	if !l.extra.needsEncoding() && hasPlainLimit(&cmd.Rule) {
		if l.first.setLimit(l.now, &cmd.Rule, nil) {
			l.beginGeneration()
			if l.extra.needsEncoding() {
				l.extra.noteRule(canonicalRule(cmd))
			}
		}
	} else if err := l.setLimits(cmd); err != nil {
		l.d.Outcome, l.d.Message = gatehouse.Invalid, err.Error()
		return false
	}
	l.noteFirstUse(l.d.At)
	// A meter that started again has forgotten what is out in chunks.
	if l.extra != nil {
		l.countChunks()
	}
	return true
}

// checkAvailable reports whether what the command wants can be taken now. If not, d says why and when.
func (l *limiterStep) checkAvailable() bool {
	// With commands in front nothing may be taken, even if there is room: they come first.
	closed := l.extra.closing()
	if l.turn.Ahead == 0 && closed == nil && l.earliestFit(l.turn.Cost) <= l.now {
		return true
	}
	l.fillRefused()
	// However much is free, no time brings the answer, but whoever opens it.
	if closed != nil && l.d.Outcome == gatehouse.Refused {
		l.d.RetryAfter, l.d.Message = gatehouse.Forever, closed.sentence()
	}
	return false
}

// peekOrDelay answers a peek or a delay.
func (l *limiterStep) peekOrDelay() {
	if l.created == 0 && !l.turn.HasLimit() {
		l.d.Outcome = gatehouse.Missing
		return
	}
	if l.turn.HasLimit() {
		// A question under another limit is tried on a copy, so that it changes nothing.
		trial := l.copyForTrial()
		l = &trial
		if !l.applyLimits() {
			return
		}
	}
	if l.checkAvailable() {
		l.fillGranted()
		return
	}
	d := l.d
	if l.turn.Op == gatehouse.OpDelay && d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
		// A delay is an answer, not a refusal. Only what can never be taken stays refused.
		d.Outcome, d.Delay, d.RetryAfter, d.Message = gatehouse.Granted, d.RetryAfter, 0, ""
	}
}

// refundTokens gives back what was taken: first what was charged and lies ahead, then what counts now.
// Reservations stay.
func (l *limiterStep) refundTokens(n int64) {
	n = l.lowerDebt(n)
	for _, m := range l.activeMeters() {
		m.giveBack(l.now, n)
	}
	l.reports().giveBackAdopted(l.now, n)
	// A refund must not give away what servers still hold in chunks.
	l.countChunks()
	l.rebuildProjection()
}

// resetTaken starts again, under the limits in force. The figures start again too, so that nothing of what
// was granted before is taken back later.
func (l *limiterStep) resetTaken() {
	for _, m := range l.activeMeters() {
		m.clearTaken()
	}
	// Reservations go without a refund: their starts lie in meters that were just cleared.
	if l.extra != nil {
		l.extra.reservations, l.extra.holderBytes = nil, 0
		if m := l.extra.shares; m != nil {
			m.list, m.bytes, m.nextEnd = nil, 0, noTime // grants go on, but have nothing here any more
		}
		l.dropUnusedExtra(l.now)
	}
	l.commandCounts = commandCounts{}
	l.noteFirstUse(l.d.At)
	// Undos of what was granted before the reset find another generation, and give nothing back.
	l.beginGeneration()
	l.countChunks()
}

// expiryTime is when nothing that was taken or promised counts any more.
func (l *limiterStep) expiryTime() time.Time {
	at := l.now // of the first use
	if l.extra.closing() != nil {
		return neverExpires()
	}
	if l.extra != nil {
		// A pause counts even where nothing was taken, and how many there were one after the other.
		if t := l.extra.reports; t != nil {
			at = max(at, t.keptUntil())
		}
		for _, c := range l.extra.chunks {
			// Until then tokens may still be used elsewhere, even if the limiter was deleted.
			at = max(at, c.until)
		}
	}
	if l.created == 0 {
		return time.Unix(0, at)
	}
	for _, m := range l.projectedMeters() {
		at = max(at, m.readMeter(l.now).reset)
	}
	if l.extra == nil || l.extra.shares == nil {
		return time.Unix(0, at)
	}
	// What is charged or repaid when grants end counts from then on.
	if until, ok := l.extra.shares.mayExtend(l.totalDebt()); ok {
		trial := l.copyForTrial()
		trial.extra.shares = l.extra.shares.copyShares()
		trial.now = max(until, l.now)
		trial.passTime()
		at = max(at, trial.expiryTime().UnixNano())
	}
	return time.Unix(0, at)
}

// activeMeters are those in which everything that has started is taken.
func (l *limiterStep) activeMeters() []limitMeter {
	if l.extra != nil && l.extra.meters != nil {
		return l.extra.meters
	}
	return []limitMeter{l.first}
}

// projectedMeters are the meters in which all reservations are taken as well.
func (l *limiterStep) projectedMeters() []limitMeter {
	if l.extra != nil && l.extra.projected != nil {
		return l.extra.projected
	}
	return l.activeMeters()
}

// earliestFit is the earliest instant at which all limits let n through. What fits under a limit at one
// instant fits at every later one too, so that the latest of them is the answer.
func (l *limiterStep) earliestFit(n int64) int64 {
	if l.extra == nil {
		return l.first.earliestFit(l.now, n)
	}
	// Nothing overtakes a reservation, so the search begins at the last of them.
	from := l.earliestStart()
	at := from
	for _, m := range l.projectedMeters() {
		at = max(at, m.earliestFit(from, n))
	}
	if l.extra.reports != nil {
		return l.reportedFit(from, at, n)
	}
	return at
}

// readMeter tells how a meter stands: nothing is left while a reservation lies ahead, and no more than what
// was reported lets through.
func (l *limiterStep) readMeter(m limitMeter) meterReading {
	r := m.readMeter(l.now)
	if l.extra != nil {
		l.lowerReading(m, &r)
	}
	return r
}

// lowerReading lowers what a meter has left to what may be taken of it.
func (l *limiterStep) lowerReading(m limitMeter, r *meterReading) {
	// The meter itself may have room, but taking it would overtake the reservation.
	if l.earliestUnpaused() > l.now {
		r.left = 0
	}
	if l.extra.reports != nil {
		l.lowerToReported(m, r)
	}
}
