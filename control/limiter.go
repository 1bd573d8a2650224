package control

import (
	"fmt"
	"strings"
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
func (l *limiterState[M, P]) Step(now time.Time, turn *Turn) (d gatehouse.Decision) {
	d.At = now
	l.applyCommand(P(&l.meter), turn, &d)
	return d
}

// Undo implements [State].
func (l *limiterState[M, P]) Undo(now time.Time, turn *Turn) {
	l.undoGrant(P(&l.meter), now, turn)
}

// Expiry implements [State].
func (l *limiterState[M, P]) Expiry() time.Time { return l.expiryTime(P(&l.meter)) }

// isStopped is Stopped of a limiter.
func (l *limiterState[M, P]) isStopped() (refused int64, ok bool) {
	for _, m := range l.activeMeters(P(&l.meter)) {
		ok = ok || m.currentLimit().Size == 0
	}
	return l.timedOut, ok
}

// A limiterCore is what all limiters share: the rules of waiting, of several limits, of what is promised
// for later. What is particular to one way of limiting is its meter's business.
//
// Its methods are given first, the meter of the limit while there is one, and d, the decision to fill
// in, whose time is set already: large values are not copied from one to the next.
type limiterCore struct {
	commandCounts
	extra *limiterExtra // nil while there is one limit, and no reservation, chunk or generation to keep
}

// beginGeneration notes that what was taken so far counts no more, or in another way, so that it cannot be
// given back any more.
func (l *limiterCore) beginGeneration() {
	// Nothing was granted yet, so there is no earlier generation to tell apart.
	if l.created == 0 {
		return
	}
	if l.extra == nil {
		l.extra = new(limiterExtra)
	}
	l.extra.generation++
	l.extra.validFrom = l.extra.generation
}

// followDeleted takes over from a limiter that was deleted at this instant: the grants of that one are not
// this one's, although the time is the same, and its numbers are not used again.
func (l *limiterCore) followDeleted(before *limiterCore) {
	if l.extra == nil {
		l.extra = new(limiterExtra)
	}
	l.extra.generation, l.extra.validFrom = 1, 1
	if m := before.extra; m != nil {
		l.extra.generation, l.extra.validFrom = m.generation+1, m.generation+1
		l.extra.lastNumber = m.lastNumber
	}
}

// applyCommand applies one command.
func (l *limiterCore) applyCommand(first limitMeter, turn *Turn, d *gatehouse.Decision) {
	// Time passes first: reservations that are due become ordinary takes, and chunks that ended stop
	// counting. Either may drop the extra, so it is tested twice.
	if l.extra != nil {
		l.startDueReservations(first, d.At.UnixNano())
	}
	if l.extra != nil {
		l.dropEndedChunks(first, d.At.UnixNano())
	}
	switch turn.Op {
	case gatehouse.OpAcquire:
		l.acquireTokens(first, turn, d)
		return
	case gatehouse.OpReserve:
		l.reserveTokens(first, turn, d)
		return
	case gatehouse.OpCharge:
		l.chargeCost(first, turn, d)
		return
	case gatehouse.OpPeek, gatehouse.OpDelay:
		l.peekOrDelay(first, turn, d)
		return
	}
	// What follows asks about a limiter that is there; it does not make one.
	if l.created == 0 {
		d.Outcome = gatehouse.Missing
		return
	}
	switch turn.Op {
	case gatehouse.OpCancel:
		l.cancelReservation(first, turn, d)
		return
	case gatehouse.OpRefund:
		l.refundTokens(first, d.At.UnixNano(), turn.Cost)
	case gatehouse.OpReset:
		l.resetTaken(first, d.At)
	}
	// The answer shows the limits as they are after the command.
	l.fillGranted(first, d)
	if turn.Op == gatehouse.OpStats {
		d.Stats = l.limiterStats(first, d)
	}
}

// acquireTokens takes what the command wants now, or says when it might.
func (l *limiterCore) acquireTokens(first limitMeter, turn *Turn, d *gatehouse.Decision) {
	if !l.applyLimits(first, turn, d) {
		return
	}
	// The tokens are spent already, so the limit is not asked.
	if turn.Forced {
		l.forceTake(first, turn, d)
		return
	}
	if !l.checkAvailable(first, turn, d) {
		// A conflict is not counted as a timeout: no wait would have helped.
		if d.Outcome == gatehouse.Refused {
			l.countRefused(turn)
		}
		// How long the chunk may be used follows from the reset time in the decision just filled in.
		if turn.Chunk != nil {
			d.Value = l.leftInChunk(turn.Chunk)
		}
		return
	}
	// A chunk is not a request of a client. Its holder reports later how many it let through.
	if turn.Chunk == nil {
		l.countPassed(d.At, turn)
	}
	at := d.At.UnixNano()
	for _, m := range l.activeMeters(first) {
		m.takeTokens(at, at, turn.Cost)
	}
	l.fillGranted(first, d)
	if turn.Chunk != nil {
		l.lendChunk(turn, d)
	}
}

// forceTake counts what was let through elsewhere.
func (l *limiterCore) forceTake(first limitMeter, turn *Turn, d *gatehouse.Decision) {
	if at := d.At.UnixNano(); turn.Cost > 0 {
		// A zero comes from senders that speak for a single request.
		l.passed += max(1, turn.Requests)
		for _, m := range l.activeMeters(first) {
			m.takeTokens(at, at, turn.Cost)
		}
		// What starts now may be before reservations, which the projection must count after it.
		l.rebuildProjection(first, at)
	}
	l.fillGranted(first, d)
}

// applyLimits puts the command's limits in force, at its first look. It reports false when it cannot.
func (l *limiterCore) applyLimits(first limitMeter, turn *Turn, d *gatehouse.Decision) (ok bool) {
	// A waiting command puts its limits in force once. Otherwise two that wait with different limits would
	// change them back and forth with every look.
	if turn.Again && l.created != 0 {
		return true
	}
	cmd := turn.Command
	if !turn.HasLimit() {
		if l.created != 0 {
			return true
		}
		// A new name gets the default limit. A cost above it would wait forever, so the sender is told what
		// is missing.
		if turn.Cost > gatehouse.DefaultSize && !turn.Forced {
			*d = failedWith(d.At, gatehouse.Invalid, fmt.Sprintf("is new, and a cost of %d can never fit "+
				"its size of %d: want a limit in the request", turn.Cost, gatehouse.DefaultSize))
			return false
		}
		cmd = withDefaultLimit(cmd)
	}
	at := d.At.UnixNano()
	// The common case: one limit, which the one meter keeps without any extra.
	if l.extra == nil && hasPlainLimit(cmd) {
		if first.setLimit(at, cmd, nil) {
			l.beginGeneration()
			if l.extra != nil {
				l.extra.noteLimits(cmd)
			}
		}
	} else if err := l.setLimits(first, at, cmd); err != nil {
		d.Outcome, d.Message = gatehouse.Invalid, err.Error()
		return false
	}
	l.noteFirstUse(d.At)
	// A meter that started again has forgotten what is out in chunks.
	l.countChunks(first, at)
	return true
}

// checkAvailable reports whether what the command wants can be taken now. If not, d says why and when.
func (l *limiterCore) checkAvailable(first limitMeter, turn *Turn, d *gatehouse.Decision) bool {
	at := d.At.UnixNano()
	// With commands in front nothing may be taken, even if there is room: they come first.
	if turn.Ahead == 0 && l.earliestFit(first, at, turn.Cost) <= at {
		return true
	}
	l.fillRefused(first, turn, d)
	return false
}

// peekOrDelay answers a peek or a delay.
func (l *limiterCore) peekOrDelay(first limitMeter, turn *Turn, d *gatehouse.Decision) {
	if l.created == 0 && !turn.HasLimit() {
		d.Outcome = gatehouse.Missing
		return
	}
	if turn.HasLimit() {
		// A question under another limit is tried on a copy, so that it changes nothing.
		l, first = l.copyForTrial(), borrowMeter(first)
		if !l.applyLimits(first, turn, d) {
			return
		}
	}
	if l.checkAvailable(first, turn, d) {
		l.fillGranted(first, d)
		return
	}
	if turn.Op == gatehouse.OpDelay && d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
		// A delay is an answer, not a refusal. Only what can never be taken stays refused.
		d.Outcome, d.Delay, d.RetryAfter = gatehouse.Granted, d.RetryAfter, 0
	}
}

// refundTokens gives back what was taken: first what was charged and lies ahead, then what counts now.
// Reservations stay.
func (l *limiterCore) refundTokens(first limitMeter, now, n int64) {
	n = l.lowerDebt(first, now, n)
	for _, m := range l.activeMeters(first) {
		m.giveBack(now, n)
	}
	// A refund must not give away what servers still hold in chunks.
	l.countChunks(first, now)
	l.rebuildProjection(first, now)
}

// resetTaken starts again, under the limits in force. The figures start again too, so that nothing of what
// was granted before is taken back later.
func (l *limiterCore) resetTaken(first limitMeter, now time.Time) {
	for _, m := range l.activeMeters(first) {
		m.clearTaken()
	}
	// Reservations go without a refund: their starts lie in meters that were just cleared.
	if l.extra != nil {
		l.extra.reservations, l.extra.holderBytes = nil, 0
		l.dropUnusedExtra(now.UnixNano())
	}
	l.commandCounts = commandCounts{}
	l.noteFirstUse(now)
	// Undos of what was granted before the reset find another generation, and give nothing back.
	l.beginGeneration()
	l.countChunks(first, now.UnixNano())
}

// expiryTime is when nothing that was taken or promised counts any more.
func (l *limiterCore) expiryTime(first limitMeter) time.Time {
	at := l.created
	if l.extra != nil {
		for _, c := range l.extra.chunks {
			// Until then tokens may still be used elsewhere, even if the limiter was deleted.
			at = max(at, c.until)
		}
	}
	if l.created == 0 {
		return time.Unix(0, at)
	}
	for _, m := range l.projectedMeters(first) {
		at = max(at, m.readMeter(l.created).reset)
	}
	return time.Unix(0, at)
}

// limiterStats are the statistics: what is particular to limiters comes last.
func (l *limiterCore) limiterStats(first limitMeter, d *gatehouse.Decision) []gatehouse.Stat {
	figures := l.commandStats("acquired",
		gatehouse.Stat{Name: "size", Value: d.Limit},
		gatehouse.Stat{Name: "interval", Value: d.Interval},
		gatehouse.Stat{Name: "available", Value: d.Remaining})
	if len(d.Windows) > 0 {
		limits := make([]string, len(d.Windows))
		for i, w := range d.Windows {
			limits[i] = w.Limit.String()
		}
		figures = append(figures, gatehouse.Stat{Name: "limits", Value: strings.Join(limits, ",")})
	}
	// What most limiters do not have is left out.
	if ahead := l.reservedAhead(first, d.At.UnixNano()); ahead > 0 {
		figures = append(figures, gatehouse.Stat{Name: "reserved", Value: ahead})
	}
	if debt := l.totalDebt(); debt > 0 {
		figures = append(figures, gatehouse.Stat{Name: "debt", Value: debt})
	}
	return figures
}
