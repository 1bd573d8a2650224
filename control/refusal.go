package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is for stores to which a change costs much: what a refused command leaves behind is often no more
// than one in the statistics.

// Alters reports whether a command that is refused leaves more behind than that it was: because it puts other
// parameters in force, arrives somewhere, or is the first of all. s may be nil.
func Alters(s State, cmd *gatehouse.Command) bool {
	switch s := s.(type) {
	case *Semaphore:
		return !s.lock && (!s.sized || cmd.Size != gatehouse.InForce && s.size != cmd.Size)
	case *Event:
		return s.created == 0
	case *Watchdog:
		return s.deadline.IsZero()
	case *Barrier:
		return cmd.MaxWait != 0 || len(s.arrivals) == 0 && s.size != cmd.Size
	case interface{ changesLimits(*gatehouse.Command) bool }:
		return s.changesLimits(cmd)
	}
	return true
}

// changesLimits reports whether a command has other limits than those in force.
func (l *limiterState[M, P]) changesLimits(cmd *gatehouse.Command) bool {
	switch {
	case l.created == 0:
		return true
	case !cmd.HasLimit():
		return false
	case l.extra.knowsRule():
		// The extra has all parameters as they were given; the meter alone knows only its own.
		return !l.extra.hasRule(canonicalRule(cmd))
	}
	// A form with chunks and no reservations leaves the limits out: the meter has the one there is.
	return !hasPlainLimit(&cmd.Rule) || P(&l.meter).inForce(cmd.Rule) != cmd.Rule
}

// Refusals are how many commands gave up, and since when they are counted; the zero time if they are not.
func Refusals(s State) (count int64, since time.Time) {
	if t, ok := s.(interface{ baseCounts() *commandCounts }); ok && t.baseCounts().created != 0 {
		return t.baseCounts().timedOut, time.Unix(0, t.baseCounts().created)
	}
	return 0, time.Time{}
}

// AddRefusals counts commands that gave up without the state being told.
func AddRefusals(s State, count int64) {
	if t, ok := s.(interface{ baseCounts() *commandCounts }); ok {
		t.baseCounts().timedOut += count
	}
}

func (t *commandCounts) baseCounts() *commandCounts { return t }

// Created is when a controller was used first, the zero time if it was not.
func Created(s State) time.Time {
	if c, ok := s.(*Counter); ok {
		return c.created
	}
	_, since := Refusals(s)
	return since
}

func (r *meterRate) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Size, rule.Interval = r.size, time.Duration(r.interval)
	return rule
}

func (g *gcraMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Burst = g.burst
	return g.meterRate.inForce(rule)
}

func (w *slidingWindowMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	switch {
	case w.fine == nil:
		rule.Mode = gatehouse.ModeDefault
	case w.fine.strict:
		rule.Mode = gatehouse.ModeStrict
	default:
		rule.Mode = gatehouse.ModeFine
	}
	return w.meterRate.inForce(rule)
}

func (p *paceMeter) inForce(rule gatehouse.Rule) gatehouse.Rule {
	rule.Guard, rule.Mode = time.Duration(p.span-p.interval), p.mode
	return p.meterRate.inForce(rule)
}
