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
func (l *limiterState[M, P]) Step(now time.Time, cmd *gatehouse.Command) (d gatehouse.Decision) {
	d.At = now
	l.applyCommand(P(&l.meter), cmd, &d)
	return d
}

// Undo implements [State].
func (l *limiterState[M, P]) Undo(now time.Time, cmd *gatehouse.Command) {
	l.undoGrant(P(&l.meter), now, cmd)
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
	extra *limiterExtra // nil while there is one limit, and no place ahead, chunk or past to know of
}

// beginGeneration notes that what was taken so far counts no more, or in another way, so that it cannot be
// given back any more.
func (l *limiterCore) beginGeneration() {
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
func (l *limiterCore) applyCommand(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if l.extra != nil {
		l.startDueReservations(first, d.At.UnixNano())
	}
	if l.extra != nil {
		l.dropEndedChunks(first, d.At.UnixNano())
	}
	switch cmd.Op {
	case gatehouse.OpAcquire:
		l.acquireTokens(first, cmd, d)
		return
	case gatehouse.OpReserve:
		l.reserveTokens(first, cmd, d)
		return
	case gatehouse.OpCharge:
		l.chargeCost(first, cmd, d)
		return
	case gatehouse.OpPeek, gatehouse.OpDelay:
		l.peekOrDelay(first, cmd, d)
		return
	}
	if l.created == 0 {
		d.Outcome = gatehouse.Missing
		return
	}
	switch cmd.Op {
	case gatehouse.OpCancel:
		l.cancelReservation(first, cmd, d)
		return
	case gatehouse.OpRefund:
		l.refundTokens(first, d.At.UnixNano(), cmd.Cost)
	case gatehouse.OpReset:
		l.resetTaken(first, d.At)
	}
	l.fillGranted(first, d)
	if cmd.Op == gatehouse.OpStats {
		d.Stats = l.limiterStats(first, d)
	}
}

// acquireTokens takes what the command wants now, or says when it might.
func (l *limiterCore) acquireTokens(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if !l.applyLimits(first, cmd, d) {
		return
	}
	if cmd.Forced {
		l.forceTake(first, cmd, d)
		return
	}
	if !l.checkAvailable(first, cmd, d) {
		if d.Outcome == gatehouse.Refused {
			l.countRefused(cmd)
		}
		if cmd.Chunk != nil {
			d.Value = l.leftInChunk(cmd.Chunk)
		}
		return
	}
	if cmd.Chunk == nil {
		l.countPassed(d.At, cmd)
	}
	at := d.At.UnixNano()
	for _, m := range l.activeMeters(first) {
		m.takeTokens(at, at, cmd.Cost)
	}
	l.fillGranted(first, d)
	if cmd.Chunk != nil {
		l.lendChunk(cmd, d)
	}
}

// forceTake counts what was let through elsewhere.
func (l *limiterCore) forceTake(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if at := d.At.UnixNano(); cmd.Cost > 0 {
		l.passed += max(1, cmd.Amount)
		for _, m := range l.activeMeters(first) {
			m.takeTokens(at, at, cmd.Cost)
		}
		l.rebuildProjection(first, at)
	}
	l.fillGranted(first, d)
}

// applyLimits puts the command's limits in force, at its first look. It reports false when it cannot.
func (l *limiterCore) applyLimits(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) (ok bool) {
	if cmd.Again && l.created != 0 {
		return true
	}
	if !cmd.HasLimit() {
		if l.created != 0 {
			return true
		}
		if cmd.Cost > gatehouse.DefaultSize && !cmd.Forced {
			*d = failedWith(d.At, gatehouse.Invalid, fmt.Sprintf("is new, and a cost of %d can never fit "+
				"its size of %d: want a limit in the request", cmd.Cost, gatehouse.DefaultSize))
			return false
		}
		cmd = withDefaultLimit(cmd)
	}
	at := d.At.UnixNano()
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
	l.countChunks(first, at)
	return true
}

// checkAvailable reports whether what the command wants can be taken now. If not, d says why and when.
func (l *limiterCore) checkAvailable(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	at := d.At.UnixNano()
	if cmd.Ahead == 0 && l.earliestFit(first, at, cmd.Cost) <= at {
		return true
	}
	l.fillRefused(first, cmd, d)
	return false
}

// peekOrDelay answers a peek or a delay.
func (l *limiterCore) peekOrDelay(first limitMeter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if l.created == 0 && !cmd.HasLimit() {
		d.Outcome = gatehouse.Missing
		return
	}
	if cmd.HasLimit() {
		l, first = l.copyForTrial(), borrowMeter(first)
		if !l.applyLimits(first, cmd, d) {
			return
		}
	}
	if l.checkAvailable(first, cmd, d) {
		l.fillGranted(first, d)
		return
	}
	if cmd.Op == gatehouse.OpDelay && d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
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
	l.countChunks(first, now)
	l.rebuildProjection(first, now)
}

// resetTaken begins anew, under the limits in force. The figures begin anew too, so that nothing of what
// was granted before is taken back later.
func (l *limiterCore) resetTaken(first limitMeter, now time.Time) {
	for _, m := range l.activeMeters(first) {
		m.clearTaken()
	}
	if l.extra != nil {
		l.extra.reservations, l.extra.holderBytes = nil, 0
		l.dropUnusedExtra(now.UnixNano())
	}
	l.commandCounts = commandCounts{}
	l.noteFirstUse(now)
	l.beginGeneration()
	l.countChunks(first, now.UnixNano())
}

// undoGrant takes back what an acquire or a reserve was granted.
//
// A place goes by its number alone. If that is not there, the place was cancelled, undone or reset, or its
// time has come: then nothing is given back, as nobody can tell any more what of the meter was this place's.
// What was taken at once goes by its instant, as long as the meters count what was taken in its generation.
func (l *limiterCore) undoGrant(first limitMeter, now time.Time, cmd *gatehouse.Command) {
	if cmd.Chunk != nil {
		l.returnChunk(first, now.UnixNano(), cmd)
		return
	}
	granted := cmd.Granted
	if granted == nil || l.created == 0 {
		return // nothing was taken, or not from this one
	}
	at, start := now.UnixNano(), granted.At.Add(granted.Delay).UnixNano()
	if l.extra != nil {
		l.startDueReservations(first, at)
	}
	if l.extra != nil {
		l.dropEndedChunks(first, at)
	}
	if granted.Reservation != 0 {
		if i := l.findByNumber(granted.Reservation); i >= 0 {
			l.undoReservation(first, at, i)
		}
		return
	}
	if granted.At.UnixNano() < l.created || l.extra != nil && granted.Generation < l.extra.validFrom {
		return // by another of this name, or it was reset since
	}
	l.uncountPassed(cmd)
	limits := l.ownLimits()
	for i, m := range l.activeMeters(first) {
		reset, ok := resetThen(limits, i, cmd, m.readMeter(at).interval)
		if ok && l.stillCounts(i, granted.Generation) {
			m.undoTake(at, start, granted.At.Add(reset).UnixNano(), cmd.Cost)
		}
	}
	l.countChunks(first, at)
	l.rebuildProjection(first, at)
}

// resetThen is what the decision to take back said about the limit of this number, whose interval is
// given. ok is false when that limit did not count it, because it is in force only since.
func resetThen(
	limits []gatehouse.Limit, i int, cmd *gatehouse.Command, interval int64,
) (reset time.Duration, ok bool) {
	granted := cmd.Granted
	if len(limits) == 0 || len(granted.Windows) == 0 && !cmd.HasLimit() {
		return granted.ResetAfter, granted.Interval == time.Duration(interval)
	}
	if len(granted.Windows) == 0 {
		limit := limitsOf(cmd)[0]
		return granted.ResetAfter, sameWindow(limit, limits[i])
	}
	for _, w := range granted.Windows {
		if sameWindow(w.Limit, limits[i]) {
			return w.ResetAfter, true
		}
	}
	return 0, false
}

// expiryTime is when nothing that was taken or promised counts any more.
func (l *limiterCore) expiryTime(first limitMeter) time.Time {
	at := l.created
	if l.extra != nil {
		for _, c := range l.extra.chunks {
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
	if ahead := l.reservedAhead(first, d.At.UnixNano()); ahead > 0 {
		figures = append(figures, gatehouse.Stat{Name: "reserved", Value: ahead})
	}
	if debt := l.totalDebt(); debt > 0 {
		figures = append(figures, gatehouse.Stat{Name: "debt", Value: debt})
	}
	return figures
}

// codeFields reads what there is besides one limit first: the meter of that is still unused then.
func (l *limiterCore) codeFields(c *stateCodec, first limitMeter) {
	enough := byte(2)
	if l.totalDebt() > 0 {
		enough = 3
	}
	c.codeEarlierVersion(enough, 3)
	l.commandCounts.codeFields(c)
	several := l.extra != nil && l.created != 0 && l.extra.needsEncoding()
	c.codeBool(&several)
	if several && c.reading {
		l.extra = new(limiterExtra)
	}
	if several {
		l.extra.codeFields(c, first)
	}
	c.codeMeter(first)
	if c.version > 1 {
		l.codeChunks(c, first)
	}
	if several && l.created == 0 {
		c.failDecoding("several limits or reservations, but never used")
	}
	if l.created != 0 && (l.extra == nil || l.extra.meters == nil) && first.windowLength() == 0 {
		c.failDecoding("limit without an interval")
	}
}
