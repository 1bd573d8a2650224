package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A limited is a limiter whose one limit is kept by a meter of type M.
type limited[M any, P interface {
	*M
	meter
}] struct {
	limiter
	first M
}

// Step implements [State].
func (l *limited[M, P]) Step(now time.Time, cmd *gatehouse.Command) (d gatehouse.Decision) {
	d.At = now
	l.step(P(&l.first), cmd, &d)
	return d
}

// Undo implements [State].
func (l *limited[M, P]) Undo(now time.Time, cmd *gatehouse.Command) {
	l.undo(P(&l.first), now, cmd)
}

// Expiry implements [State].
func (l *limited[M, P]) Expiry() time.Time { return l.expiry(P(&l.first)) }

// stopped is Stopped of a limiter.
func (l *limited[M, P]) stopped() (refused int64, ok bool) {
	for _, m := range l.meters(P(&l.first)) {
		ok = ok || m.limit().Size == 0
	}
	return l.timedOut, ok
}

// A limiter is what all limiters share: the rules of waiting, of several limits, of what is promised
// for later. What is particular to one way of limiting is its meter's business.
//
// Its methods are given first, the meter of the limit while there is one, and d, the decision to fill
// in, whose time is set already: large values are not copied from one to the next.
type limiter struct {
	tally
	more *more // nil while there is one limit, and no place ahead, chunk or past to know of
}

// beginGeneration notes that what was taken so far counts no more, or in another way, so that it cannot be
// given back any more.
func (l *limiter) beginGeneration() {
	if l.created == 0 {
		return
	}
	if l.more == nil {
		l.more = new(more)
	}
	l.more.generation++
	l.more.from = l.more.generation
}

// follow takes over from a limiter that was deleted at this instant: the grants of that one are not this
// one's, although the time is the same, and its numbers are not used again.
func (l *limiter) follow(before *limiter) {
	if l.more == nil {
		l.more = new(more)
	}
	l.more.generation, l.more.from = 1, 1
	if m := before.more; m != nil {
		l.more.generation, l.more.from, l.more.number = m.generation+1, m.generation+1, m.number
	}
}

// step applies one command.
func (l *limiter) step(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if l.more != nil {
		l.keepPromises(first, d.At.UnixNano())
	}
	if l.more != nil {
		l.keepChunks(first, d.At.UnixNano())
	}
	switch cmd.Op {
	case gatehouse.OpAcquire:
		l.acquire(first, cmd, d)
		return
	case gatehouse.OpReserve:
		l.reserve(first, cmd, d)
		return
	case gatehouse.OpCharge:
		l.charge(first, cmd, d)
		return
	case gatehouse.OpPeek, gatehouse.OpDelay:
		l.ask(first, cmd, d)
		return
	}
	if l.created == 0 {
		d.Outcome = gatehouse.Missing
		return
	}
	switch cmd.Op {
	case gatehouse.OpCancel:
		l.cancel(first, cmd, d)
		return
	case gatehouse.OpRefund:
		l.refund(first, d.At.UnixNano(), cmd.Cost)
	case gatehouse.OpReset:
		l.reset(first, d.At)
	}
	l.grant(first, d)
	if cmd.Op == gatehouse.OpStats {
		d.Stats = l.figures(first, d)
	}
}

// acquire takes what the command wants now, or says when it might.
func (l *limiter) acquire(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if !l.apply(first, cmd, d) {
		return
	}
	if cmd.Forced {
		l.force(first, cmd, d)
		return
	}
	if !l.judge(first, cmd, d) {
		if d.Outcome == gatehouse.Refused {
			l.refused(cmd)
		}
		if cmd.Chunk != nil {
			d.Value = l.left(cmd.Chunk)
		}
		return
	}
	if cmd.Chunk == nil {
		l.pass(d.At, cmd)
	}
	at := d.At.UnixNano()
	for _, m := range l.meters(first) {
		m.take(at, at, cmd.Cost)
	}
	l.grant(first, d)
	if cmd.Chunk != nil {
		l.lend(cmd, d)
	}
}

// force counts what was let through elsewhere.
func (l *limiter) force(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if at := d.At.UnixNano(); cmd.Cost > 0 {
		l.passed += max(1, cmd.Amount)
		for _, m := range l.meters(first) {
			m.take(at, at, cmd.Cost)
		}
		l.lookAhead(first, at)
	}
	l.grant(first, d)
}

// apply puts the command's limits in force, at its first look. It reports false when it cannot.
func (l *limiter) apply(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) (ok bool) {
	if cmd.Again && l.created != 0 {
		return true
	}
	if !cmd.HasLimit() {
		if l.created != 0 {
			return true
		}
		if cmd.Cost > gatehouse.DefaultSize && !cmd.Forced {
			*d = unable(d.At, gatehouse.Invalid, fmt.Sprintf("is new, and a cost of %d can never fit "+
				"its size of %d: want a limit in the request", cmd.Cost, gatehouse.DefaultSize))
			return false
		}
		cmd = defaults(cmd)
	}
	at := d.At.UnixNano()
	if l.more == nil && plain(cmd) {
		if first.set(at, cmd, nil) {
			l.beginGeneration()
			if l.more != nil {
				l.more.note(cmd)
			}
		}
	} else if err := l.setRule(first, at, cmd); err != nil {
		d.Outcome, d.Message = gatehouse.Invalid, err.Error()
		return false
	}
	l.begin(d.At)
	l.countChunks(first, at)
	return true
}

// judge reports whether what the command wants can be taken now. If not, d says why and when.
func (l *limiter) judge(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) (ok bool) {
	at := d.At.UnixNano()
	if cmd.Ahead == 0 && l.when(first, at, cmd.Cost) <= at {
		return true
	}
	l.refuse(first, cmd, d)
	return false
}

// ask answers a peek or a delay.
func (l *limiter) ask(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if l.created == 0 && !cmd.HasLimit() {
		d.Outcome = gatehouse.Missing
		return
	}
	if cmd.HasLimit() {
		l, first = l.copy(), borrow(first)
		if !l.apply(first, cmd, d) {
			return
		}
	}
	if l.judge(first, cmd, d) {
		l.grant(first, d)
		return
	}
	if cmd.Op == gatehouse.OpDelay && d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
		d.Outcome, d.Delay, d.RetryAfter = gatehouse.Granted, d.RetryAfter, 0
	}
}

// refund gives back what was taken: first what was charged and lies ahead, then what counts now. Reservations
// stay.
func (l *limiter) refund(first meter, now, n int64) {
	n = l.lowerDebt(first, now, n)
	for _, m := range l.meters(first) {
		m.giveBack(now, n)
	}
	l.countChunks(first, now)
	l.lookAhead(first, now)
}

// reset begins anew, under the limits in force. The figures begin anew too, so that nothing of what
// was granted before is taken back later.
func (l *limiter) reset(first meter, now time.Time) {
	for _, m := range l.meters(first) {
		m.clear()
	}
	if l.more != nil {
		l.more.promises, l.more.keys = nil, 0
		l.settlePromises(now.UnixNano())
	}
	l.tally = tally{}
	l.begin(now)
	l.beginGeneration()
	l.countChunks(first, now.UnixNano())
}

// undo takes back what an acquire or a reserve was granted.
//
// A place goes by its number alone. If that is not there, the place was cancelled, undone or reset, or its
// time has come: then nothing is given back, as nobody can tell any more what of the meter was this place's.
// What was taken at once goes by its instant, as long as the meters count what was taken in its generation.
func (l *limiter) undo(first meter, now time.Time, cmd *gatehouse.Command) {
	if cmd.Chunk != nil {
		l.endChunk(first, now.UnixNano(), cmd)
		return
	}
	granted := cmd.Granted
	if granted == nil || l.created == 0 {
		return // nothing was taken, or not from this one
	}
	at, start := now.UnixNano(), granted.At.Add(granted.Delay).UnixNano()
	if l.more != nil {
		l.keepPromises(first, at)
	}
	if l.more != nil {
		l.keepChunks(first, at)
	}
	if granted.Reservation != 0 {
		if i := l.numbered(granted.Reservation); i >= 0 {
			l.unpromise(first, at, i)
		}
		return
	}
	if granted.At.UnixNano() < l.created || l.more != nil && granted.Generation < l.more.from {
		return // by another of this name, or it was reset since
	}
	l.takeBack(cmd)
	limits := l.ownLimits()
	for i, m := range l.meters(first) {
		reset, ok := resetThen(limits, i, cmd, m.read(at).interval)
		if ok && l.counts(i, granted.Generation) {
			m.undo(at, start, granted.At.Add(reset).UnixNano(), cmd.Cost)
		}
	}
	l.countChunks(first, at)
	l.lookAhead(first, at)
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

// expiry is when nothing that was taken or promised counts any more.
func (l *limiter) expiry(first meter) time.Time {
	at := l.created
	if l.more != nil {
		for _, c := range l.more.chunks {
			at = max(at, c.until)
		}
	}
	if l.created == 0 {
		return time.Unix(0, at)
	}
	for _, m := range l.looking(first) {
		at = max(at, m.read(l.created).reset)
	}
	return time.Unix(0, at)
}

// figures are the statistics: what is particular to limiters comes last.
func (l *limiter) figures(first meter, d *gatehouse.Decision) []gatehouse.Stat {
	figures := l.stats("acquired",
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
	if ahead := l.reserved(first, d.At.UnixNano()); ahead > 0 {
		figures = append(figures, gatehouse.Stat{Name: "reserved", Value: ahead})
	}
	if debt := l.debt(); debt > 0 {
		figures = append(figures, gatehouse.Stat{Name: "debt", Value: debt})
	}
	return figures
}

// code reads what there is besides one limit first: the meter of that is still unused then.
func (l *limiter) code(c *codec, first meter) {
	enough := byte(2)
	if l.debt() > 0 {
		enough = 3
	}
	c.oldVersion(enough, 3)
	l.tally.code(c)
	several := l.more != nil && l.created != 0 && l.more.noted()
	c.bool(&several)
	if several && c.reading {
		l.more = new(more)
	}
	if several {
		l.more.code(c, first)
	}
	c.meter(first)
	if c.form > 1 {
		l.codeChunks(c, first)
	}
	if several && l.created == 0 {
		c.fail("several limits or reservations, but never used")
	}
	if l.created != 0 && (l.more == nil || l.more.meters == nil) && first.length() == 0 {
		c.fail("limit without an interval")
	}
}
