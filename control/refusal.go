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
	case l.extra != nil && (l.extra.limits != nil || l.extra.meters != nil):
		// The extra has all parameters as they were given; the meter alone knows only its own.
		return !l.extra.matchesLimits(cmd)
	}
	// A form with chunks and no reservations leaves the limits out: the meter has the one there is.
	return !hasPlainLimit(cmd) || !P(&l.meter).matchesLimit(cmd)
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

func (r *meterRate) matchesLimit(cmd *gatehouse.Command) bool {
	return r.size == cmd.Size && r.interval == int64(cmd.Interval)
}

func (g *gcraMeter) matchesLimit(cmd *gatehouse.Command) bool {
	return g.meterRate.matchesLimit(cmd) && g.burst == cmd.Burst
}

func (w *fixedWindowMeter) matchesLimit(cmd *gatehouse.Command) bool {
	return w.meterRate.matchesLimit(cmd) && w.calendar == nil
}

func (w *slidingWindowMeter) matchesLimit(cmd *gatehouse.Command) bool {
	fine := w.fine != nil
	return w.meterRate.matchesLimit(cmd) && fine == (cmd.Mode != gatehouse.ModeDefault) &&
		(!fine || w.fine.strict == (cmd.Mode == gatehouse.ModeStrict))
}

func (p *paceMeter) matchesLimit(cmd *gatehouse.Command) bool {
	return p.meterRate.matchesLimit(cmd) && p.span == int64(cmd.Interval+cmd.Guard) && p.mode == cmd.Mode
}

func (r *meterRate) fillLimit(to *gatehouse.Command) {
	to.Size, to.Interval = r.size, time.Duration(r.interval)
}

func (g *gcraMeter) fillLimit(to *gatehouse.Command) {
	g.meterRate.fillLimit(to)
	to.Burst = g.burst
}

func (w *slidingWindowMeter) fillLimit(to *gatehouse.Command) {
	w.meterRate.fillLimit(to)
	switch {
	case w.fine == nil:
	case w.fine.strict:
		to.Mode = gatehouse.ModeStrict
	default:
		to.Mode = gatehouse.ModeFine
	}
}

func (p *paceMeter) fillLimit(to *gatehouse.Command) {
	p.meterRate.fillLimit(to)
	to.Guard, to.Mode = time.Duration(p.span-p.interval), p.mode
}
