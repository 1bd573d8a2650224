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
	case interface{ alters(*gatehouse.Command) bool }:
		return s.alters(cmd)
	}
	return true
}

// alters reports whether a command has other limits than those in force.
func (l *limited[M, P]) alters(cmd *gatehouse.Command) bool {
	switch {
	case l.created == 0:
		return true
	case !cmd.HasLimit():
		return false
	case l.more != nil && (l.more.limits != nil || l.more.meters != nil):
		return !l.more.says(cmd)
	}
	// A form with chunks and no reservations leaves the limits out: the meter has the one there is.
	return !plain(cmd) || !P(&l.first).has(cmd)
}

// Refusals are how many commands gave up, and since when they are counted; the zero time if they are not.
func Refusals(s State) (count int64, since time.Time) {
	if t, ok := s.(interface{ tallied() *tally }); ok && t.tallied().created != 0 {
		return t.tallied().timedOut, time.Unix(0, t.tallied().created)
	}
	return 0, time.Time{}
}

// AddRefusals counts commands that gave up without the state being told.
func AddRefusals(s State, count int64) {
	if t, ok := s.(interface{ tallied() *tally }); ok {
		t.tallied().timedOut += count
	}
}

func (t *tally) tallied() *tally { return t }

// Created is when a controller was used first, the zero time if it was not.
func Created(s State) time.Time {
	if c, ok := s.(*Counter); ok {
		return c.created
	}
	_, since := Refusals(s)
	return since
}

func (r *rate) has(cmd *gatehouse.Command) bool {
	return r.size == cmd.Size && r.interval == int64(cmd.Interval)
}

func (g *gcra) has(cmd *gatehouse.Command) bool { return g.rate.has(cmd) && g.burst == cmd.Burst }

func (w *fixedWindow) has(cmd *gatehouse.Command) bool { return w.rate.has(cmd) && w.calendar == nil }

func (w *slidingWindow) has(cmd *gatehouse.Command) bool {
	fine := w.fine != nil
	return w.rate.has(cmd) && fine == (cmd.Mode != gatehouse.ModeDefault) &&
		(!fine || w.fine.strict == (cmd.Mode == gatehouse.ModeStrict))
}

func (p *pace) has(cmd *gatehouse.Command) bool {
	return p.rate.has(cmd) && p.span == int64(cmd.Interval+cmd.Guard) && p.mode == cmd.Mode
}

func (r *rate) tell(to *gatehouse.Command) { to.Size, to.Interval = r.size, time.Duration(r.interval) }

func (g *gcra) tell(to *gatehouse.Command) {
	g.rate.tell(to)
	to.Burst = g.burst
}

func (w *slidingWindow) tell(to *gatehouse.Command) {
	w.rate.tell(to)
	switch {
	case w.fine == nil:
	case w.fine.strict:
		to.Mode = gatehouse.ModeStrict
	default:
		to.Mode = gatehouse.ModeFine
	}
}

func (p *pace) tell(to *gatehouse.Command) {
	p.rate.tell(to)
	to.Guard, to.Mode = time.Duration(p.span-p.interval), p.mode
}
