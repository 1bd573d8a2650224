package control

import (
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
func (l *limited[M, P]) Step(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if l.more != nil {
		l.keepPromises(P(&l.first), now.UnixNano())
	}
	if cmd.Op == gatehouse.OpAcquire {
		return l.acquire(P(&l.first), now, cmd)
	}
	return l.step(P(&l.first), now, cmd)
}

// Undo implements [State].
func (l *limited[M, P]) Undo(now time.Time, cmd *gatehouse.Command) {
	l.undo(P(&l.first), now, cmd)
}

// Expiry implements [State].
func (l *limited[M, P]) Expiry() time.Time { return l.expiry(P(&l.first)) }

// A limiter is what all limiters share: the rules of waiting, of several limits, of what is promised
// for later. What is particular to one way of limiting is its meter's business.
type limiter struct {
	tally
	more *more // nil while there is one limit and nothing is promised
}

// step applies one command that is no acquire. first is the meter of the limit while there is one.
func (l *limiter) step(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	switch cmd.Op {
	case gatehouse.OpReserve:
		return l.reserve(first, now, cmd)
	case gatehouse.OpPeek, gatehouse.OpDelay:
		return l.ask(first, now, cmd)
	}
	if l.created == 0 {
		return unable(now, gatehouse.Missing, "")
	}
	switch cmd.Op {
	case gatehouse.OpCancel:
		return l.cancel(first, now, cmd)
	case gatehouse.OpRefund:
		for _, m := range l.meters(first) {
			m.giveBack(now.UnixNano(), cmd.Cost)
		}
		l.lookAhead(first, now.UnixNano())
	case gatehouse.OpReset:
		for _, m := range l.meters(first) {
			m.clear()
		}
		l.forgetPromises()
	}
	d := l.decide(first, now, gatehouse.Granted)
	if cmd.Op == gatehouse.OpStats {
		d.Stats = l.figures(first, &d)
	}
	return d
}

// acquire takes what the command wants now, or says when it might.
func (l *limiter) acquire(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	at := now.UnixNano()
	if why := l.apply(first, at, cmd); why != "" {
		return unable(now, gatehouse.Invalid, why)
	}
	if !l.fits(first, at, cmd) {
		return l.refuse(first, now, cmd)
	}
	l.pass(now, cmd)
	if l.more == nil {
		first.take(at, at, cmd.Cost)
		return decision(now, gatehouse.Granted, first.read(at))
	}
	for _, m := range l.meters(first) {
		m.take(at, at, cmd.Cost)
	}
	return l.decide(first, now, gatehouse.Granted)
}

// apply puts the command's limits in force, at its first look. why is not empty when they cannot be.
func (l *limiter) apply(first meter, now int64, cmd *gatehouse.Command) (why string) {
	switch {
	case cmd.Again && l.created != 0:
		return ""
	case l.more == nil && len(cmd.Limits) == 0 && cmd.Calendar == gatehouse.NoCalendar:
		first.set(now, boundOf(cmd))
	default:
		why = l.setRule(first, now, cmd)
	}
	if l.created == 0 && why == "" {
		l.created = now
	}
	return why
}

// boundOf is a command's one limit.
func boundOf(cmd *gatehouse.Command) bound {
	return bound{
		size: cmd.Size, interval: int64(cmd.Interval), burst: cmd.Burst,
		guard: int64(cmd.Guard), mode: cmd.Mode, calendar: cmd.Calendar,
	}
}

// fits reports whether what the command wants can be taken now.
func (l *limiter) fits(first meter, now int64, cmd *gatehouse.Command) bool {
	switch {
	case cmd.Ahead > 0:
		return false
	case l.more == nil:
		return first.when(now, cmd.Cost) <= now
	}
	return l.when(first, now, cmd.Cost) <= now
}

// refuse is the answer to a command for which there is nothing now, and notes it.
func (l *limiter) refuse(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	d := l.refusal(first, now, cmd)
	if d.Outcome == gatehouse.Refused {
		l.refused(cmd)
	}
	return d
}

const resized = "was resized below the cost of this request"

// wait is the time until an instant.
func wait(now, when int64) time.Duration {
	if when == noTime {
		return gatehouse.Forever
	}
	return min(time.Duration(when-now), gatehouse.MaxDuration)
}

// decision tells how one meter stands.
func decision(now time.Time, outcome gatehouse.Outcome, r reading) gatehouse.Decision {
	return gatehouse.Decision{
		Outcome:    outcome,
		At:         now,
		ResetAfter: time.Duration(r.reset - now.UnixNano()),
		Limit:      r.limit,
		Remaining:  r.left,
		Interval:   time.Duration(r.interval),
	}
}

// ask answers a peek or a delay: as if the command took what it wants, and that were undone.
func (l *limiter) ask(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if l.created == 0 && !cmd.HasLimit() {
		return unable(now, gatehouse.Missing, "")
	}
	if cmd.HasLimit() {
		l, first = l.copy(), first.clone()
		if why := l.apply(first, now.UnixNano(), cmd); why != "" {
			return unable(now, gatehouse.Invalid, why)
		}
	}
	if l.fits(first, now.UnixNano(), cmd) {
		return l.decide(first, now, gatehouse.Granted)
	}
	d := l.refusal(first, now, cmd)
	if cmd.Op == gatehouse.OpDelay && d.Outcome == gatehouse.Refused && d.RetryAfter != gatehouse.Forever {
		d.Outcome, d.Delay, d.RetryAfter = gatehouse.Granted, d.RetryAfter, 0
	}
	return d
}

// undo takes back what an acquire was granted.
func (l *limiter) undo(first meter, now time.Time, cmd *gatehouse.Command) {
	granted := cmd.Granted
	if granted == nil || l.created == 0 {
		return
	}
	at := now.UnixNano()
	if l.more != nil {
		l.keepPromises(first, at)
	}
	l.takeBack(cmd)
	for i, m := range l.meters(first) {
		reset := granted.ResetAfter
		if i < len(granted.Windows) {
			reset = granted.Windows[i].ResetAfter
		}
		m.undo(at, granted.At.UnixNano(), granted.At.Add(reset).UnixNano(), cmd.Cost)
	}
	l.lookAhead(first, at)
}

// expiry is when nothing that was taken or promised counts any more.
func (l *limiter) expiry(first meter) time.Time {
	at := l.created
	for _, m := range l.ahead(first) {
		at = max(at, m.read(at).reset)
	}
	if l.more != nil {
		at = max(at, l.more.floor())
	}
	return time.Unix(0, at)
}

// figures are the statistics: what is particular to limiters comes last.
func (l *limiter) figures(first meter, d *gatehouse.Decision) []gatehouse.Stat {
	figures := l.stats("acquired",
		gatehouse.Stat{Name: "size", Value: d.Limit},
		gatehouse.Stat{Name: "interval", Value: d.Interval},
		gatehouse.Stat{Name: "available", Value: d.Remaining})
	if l.more == nil {
		return figures
	}
	if len(d.Windows) > 0 {
		var limits []string
		for _, w := range d.Windows {
			limits = append(limits, w.Limit.String())
		}
		figures = append(figures, gatehouse.Stat{Name: "limits", Value: strings.Join(limits, ",")})
	}
	ahead := int64(len(l.more.promises))
	return append(figures, gatehouse.Stat{Name: "reserved", Value: ahead})
}
