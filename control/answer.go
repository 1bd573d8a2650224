package control

import (
	"cmp"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is how a limiter answers: how its limits stand after a grant, and until when they refuse.

// failWith answers the turn with an outcome that is neither a grant nor a refusal, and says why.
func (l *limiterStep) failWith(outcome gatehouse.Outcome, why string) {
	*l.d = failedWith(l.d.At, outcome, why)
}

// fillGranted fills in how the limits stand: in the first place the one with the least left.
func (l *limiterStep) fillGranted() {
	l.d.Outcome, l.d.Windows = gatehouse.Granted, nil
	// Most limiters have one limit and nothing else, and need no list of how each stands.
	if l.extra == nil {
		r := l.first.readMeter(l.now)
		r.fillDecision(l.now, l.d)
		return
	}
	l.d.Windows, l.d.Generation = l.decisionWindows(), l.extra.generation
	l.fillReported()
	for i, m := range l.projectedMeters() {
		r := l.readMeter(m)
		if l.d.Windows != nil {
			l.d.Windows[i].Remaining, l.d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-l.now)
		}
		// With several limits the tightest one is shown, as the next request meets it first.
		if i == 0 || r.left < l.d.Remaining {
			r.fillDecision(l.now, l.d)
		}
	}
}

// fillRefused fills in when what the command wants might be taken, and which limits refuse it: in the first
// place the one that does for longest. While a place lies ahead all of them do until then.
func (l *limiterStep) fillRefused() {
	from, n := l.earliestStart(), addSaturating(l.turn.Ahead, l.turn.Cost)
	l.d.Outcome, l.d.Windows = gatehouse.Refused, l.decisionWindows()
	latest, soonest, reports := int64(0), int64(noTime), l.reports()
	for i, m := range l.projectedMeters() {
		r := l.readMeter(m)
		// No wait helps a cost above the limit. A limit of 0 is different: it stops for now, and may be
		// raised.
		if r.limit > 0 && l.turn.Cost > r.limit {
			l.failWith(gatehouse.Conflict, costTooHigh(l.turn.Command))
			return
		}
		// It must find room for those in front as well, as they go first.
		when := m.earliestFit(from, n)
		// Before the next token comes back the answer cannot change.
		next := m.earliestFit(from, r.left+1)
		if reports != nil {
			when = l.adoptedFit(m, from, n)
			next = l.rampFit(reports, l.adoptedFit(m, from, r.left+1), r.left+1)
		}
		soonest = min(soonest, next)
		if l.d.Windows != nil {
			l.d.Windows[i].Remaining, l.d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-l.now)
			l.d.Windows[i].RetryAfter = waitUntil(l.now, when)
		}
		if when > latest {
			latest = when
			r.fillDecision(l.now, l.d)
		}
	}
	if reports != nil {
		latest = l.fillRefusedReports(from, latest, n)
	}
	if latest <= l.now { // it is only that those in front must go first
		latest = min(soonest, addSaturating(l.now, int64(keptFor)))
		l.d.Message = cmp.Or(l.d.Message, keptForEarlier)
	}
	l.d.RetryAfter = waitUntil(l.now, latest)
}

// costTooHigh says why a cost is above the limit. One that takes something and names its limit was below it
// when it came.
func costTooHigh(cmd *gatehouse.Command) string {
	if cmd.Op == gatehouse.OpPeek || cmd.Op == gatehouse.OpDelay || !cmd.HasLimit() {
		return "lets fewer through at once than this request wants"
	}
	return "was resized below the cost of this request"
}

// fillDecision fills in how the limit stands that a decision is about in the first place.
func (r *meterReading) fillDecision(now int64, d *gatehouse.Decision) {
	d.Limit, d.Remaining, d.Interval = r.limit, r.left, time.Duration(r.interval)
	d.ResetAfter = time.Duration(r.reset - now)
}

// decisionWindows are the entries of a decision for each of several limits; nil for one.
func (l *limiterCore) decisionWindows() []gatehouse.Window {
	if l.extra == nil || len(l.extra.meters) < 2 {
		return nil
	}
	windows := make([]gatehouse.Window, len(l.extra.meters))
	for i, m := range l.extra.meters {
		windows[i].Limit = m.currentLimit()
	}
	return windows
}

// keptFor is when to try again where there is room, but not before requests in front. They wait for another
// name, for which this one is kept for less than that at a stretch; or they are at another server, and what
// they want is not known here.
const (
	keptFor        = time.Second
	keptForEarlier = "is kept for requests that came before"
)

// waitUntil is the time until an instant.
func waitUntil(now, when int64) time.Duration {
	if when == noTime {
		return gatehouse.Forever
	}
	return min(time.Duration(when-now), gatehouse.MaxDuration)
}

// limiterStats are the statistics: what is particular to limiters comes last.
func (l *limiterStep) limiterStats() []gatehouse.Stat {
	figures := l.commandStats("acquired",
		gatehouse.Stat{Name: "size", Value: l.d.Limit},
		gatehouse.Stat{Name: "interval", Value: l.d.Interval},
		gatehouse.Stat{Name: "available", Value: l.d.Remaining})
	if len(l.d.Windows) > 0 {
		// One text, since a figure has one value.
		limits := make([]string, len(l.d.Windows))
		for i, w := range l.d.Windows {
			limits[i] = w.Limit.String()
		}
		figures = append(figures, gatehouse.Stat{Name: "limits", Value: strings.Join(limits, ",")})
	}
	// What most limiters do not have is left out.
	if ahead := l.reservedAhead(); ahead > 0 {
		figures = append(figures, gatehouse.Stat{Name: "reserved", Value: ahead})
	}
	if debt := l.totalDebt(); debt > 0 {
		figures = append(figures, gatehouse.Stat{Name: "debt", Value: debt})
	}
	return l.extra.closing().appendTo(append(figures, l.reportedStats()...))
}
