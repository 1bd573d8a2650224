package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// A limiterExtra is what a limiter has besides one limit: several of them, what is promised for later, and
// what an undo has to know of the past so that it takes back what it means and nothing else.
type limiterExtra struct {
	limits     []gatehouse.Limit // in force, as they were given; nil when there are meters, which have them
	burst      int64             // of one limit that was given without a list; otherwise ofSize
	guard      time.Duration
	mode       gatehouse.Mode
	zone       string       // "" when no limit is the calendar's
	meters     []limitMeter // of the limits; nil while the first meter keeps the one limit
	meterSince []uint64     // the generation in which each of meters began to count as it does

	generation uint64 // how often counting has started again
	validFrom  uint64 // the generation before which no meter counts what was taken, or not as it does now
	lastNumber uint64 // the last number of a reservation; 0 when the next is higher in any case

	reservations []reservation // that lie ahead, in order of their starts
	holderBytes  int           // the weight of their holders
	projected    []limitMeter  // copies in which all reservations are taken; nil when not needed

	chunks []lentChunk // that may still be used, the newest last
}

// ofSize is the burst of a limit in a list, whose whole size passes at once.
const ofSize = -1

// matchesLimits reports whether the limits in force are those of the command.
func (m *limiterExtra) matchesLimits(cmd *gatehouse.Command) bool {
	switch {
	case m.guard != cmd.Guard || m.mode != cmd.Mode || m.zone != zoneOf(cmd):
		return false
	case len(cmd.Limits) > 0:
		return m.burst == ofSize && m.hasLimits(cmd.Limits)
	}
	// The array stays on the stack, where a slice would be allocated for every command.
	one := [1]gatehouse.Limit{singleLimit(cmd)}
	return m.burst == cmd.Burst && m.hasLimits(one[:])
}

// hasLimits reports whether these limits are in force.
func (m *limiterExtra) hasLimits(limits []gatehouse.Limit) bool {
	if m.meters == nil {
		return slices.Equal(m.limits, limits)
	}
	same := len(m.meters) == len(limits)
	for i := 0; same && i < len(limits); i++ {
		limit := m.meters[i].currentLimit()
		same = limit.Size == limits[i].Size && sameWindow(limit, limits[i])
	}
	return same
}

// listLimits is a list of the limits in force.
func (m *limiterExtra) listLimits() []gatehouse.Limit {
	if m.meters == nil {
		return m.limits
	}
	limits := make([]gatehouse.Limit, len(m.meters))
	for i := range limits {
		limits[i] = m.meters[i].currentLimit()
	}
	return limits
}

// noteLimits keeps what the command says.
func (m *limiterExtra) noteLimits(cmd *gatehouse.Command) {
	m.limits, m.burst = nil, cmd.Burst
	// Meters of their own know their limits, so that a second copy could only differ.
	if m.meters == nil {
		m.limits = slices.Clone(limitsOf(cmd))
	}
	m.guard, m.mode, m.zone = cmd.Guard, cmd.Mode, zoneOf(cmd)
	if len(cmd.Limits) > 0 {
		m.burst = ofSize
	}
}

// hasPlainLimit reports whether the command has one limit that is none of the calendar's.
func hasPlainLimit(cmd *gatehouse.Command) bool {
	return len(cmd.Limits) == 0 && cmd.Calendar == gatehouse.NoCalendar
}

// singleLimit is the limit of a command that has no list of them.
func singleLimit(cmd *gatehouse.Command) gatehouse.Limit {
	if cmd.Calendar != gatehouse.NoCalendar {
		return gatehouse.Limit{Size: cmd.Size, Calendar: cmd.Calendar}
	}
	return gatehouse.Limit{Size: cmd.Size, Interval: cmd.Interval}
}

// limitsOf are the limits of a command.
func limitsOf(cmd *gatehouse.Command) []gatehouse.Limit {
	if len(cmd.Limits) > 0 {
		return cmd.Limits
	}
	return []gatehouse.Limit{singleLimit(cmd)}
}

// zoneOf is the command's time zone, which means nothing without a limit of the calendar's.
func zoneOf(cmd *gatehouse.Command) string {
	if cmd.Zone == "" {
		return ""
	}
	for _, limit := range limitsOf(cmd) {
		if limit.Calendar != gatehouse.NoCalendar {
			return cmd.Zone
		}
	}
	return ""
}

// sameWindow reports whether what was taken under one limit counts under another.
func sameWindow(a, b gatehouse.Limit) bool {
	return a.Calendar == b.Calendar && (a.Calendar != gatehouse.NoCalendar || a.Interval == b.Interval)
}

// ownLimits lists the limits in force when they have meters of their own.
func (l *limiterCore) ownLimits() []gatehouse.Limit {
	if l.extra == nil || l.extra.meters == nil {
		return nil
	}
	return l.extra.listLimits()
}

// setLimits puts a command's limits in force. The error's text is for the sender of the command.
func (l *limiterStep) setLimits(cmd *gatehouse.Command) error {
	// Most commands repeat the limits in force.
	if l.extra != nil && l.extra.matchesLimits(cmd) {
		return nil
	}
	location, err := zone.Load(zoneOf(cmd))
	if err != nil {
		return err
	}
	if l.extra == nil {
		l.extra = new(limiterExtra)
	}
	// One limit of a scheduling meter replaces another in place: the reservations stay in it.
	if l.extra.meters == nil && hasPlainLimit(cmd) && l.allScheduling() {
		if l.first.setLimit(l.now, cmd, nil) { // which keeps what lies ahead
			l.beginGeneration()
		}
		l.extra.noteLimits(cmd)
		return nil
	}
	// Meters that keep what lies ahead by themselves need not be told of it again.
	keep := l.allScheduling() && !slices.ContainsFunc(limitsOf(cmd), isCalendarLimit)
	// Otherwise reservations are taken out before the change and taken again after it, as the new meters may
	// count them in other windows.
	if !keep {
		l.withdrawReservations()
	}
	switch {
	case l.extra.meters != nil || !hasPlainLimit(cmd):
		fresh := l.setMeters(cmd, location)
		if keep {
			l.extra.takeReservations(fresh, l.now)
		}
	case l.first.setLimit(l.now, cmd, nil):
		l.beginGeneration()
	}
	l.extra.noteLimits(cmd)
	if !keep {
		l.retakeReservations()
	}
	return nil
}

// isCalendarLimit reports whether a limit is the calendar's.
func isCalendarLimit(limit gatehouse.Limit) bool { return limit.Calendar != gatehouse.NoCalendar }

// setMeters puts the command's limits in force, each with a meter of its own: where the window is the
// same, the one there was, and where one limit takes the place of one other, that one's if it can be. It
// returns the meters in which nothing was taken yet.
func (l *limiterStep) setMeters(cmd *gatehouse.Command, location *time.Location) (fresh []limitMeter) {
	old, limits := l.activeMeters(), l.ownLimits()
	// So far the one meter kept one limit, known by its interval alone.
	if limits == nil {
		limits = []gatehouse.Limit{{Interval: time.Duration(l.first.windowLength())}}
	}
	to := limitsOf(cmd)
	meters, since := make([]limitMeter, len(to)), make([]uint64, len(to))
	next, anew := l.extra.generation+1, false
	heirs := make([]bool, len(old)) // which of the old meters have an heir already
	for i, limit := range to {
		same := slices.IndexFunc(limits, func(l gatehouse.Limit) bool { return sameWindow(l, limit) })
		// Where one limit replaces one other, what was taken is carried over even if the window differs, as
		// far as both count in the same way.
		if same < 0 && len(limits) == 1 && len(to) == 1 &&
			isFixedWindow(old[0]) == (isFixedWindow(l.first) || isCalendarLimit(limit)) {
			same = 0
		}
		// A meter can be handed on once. A second limit with the same window gets a copy of it.
		switch {
		case same >= 0 && heirs[same]:
			meters[i], since[i] = old[same].clone(), l.meterGeneration(same)
		case same >= 0 && l.extra.meters != nil:
			meters[i], since[i], heirs[same] = old[same], l.meterGeneration(same), true
		case same >= 0:
			meters[i], since[i], heirs[same] = borrowMeter(l.first), l.meterGeneration(same), true
		case isCalendarLimit(limit):
			meters[i], since[i], anew = new(fixedWindowMeter), next, true
		default:
			meters[i], since[i], anew = borrowMeter(l.first), next, true
			meters[i].clearTaken()
		}
		// It has counted nothing yet. Reservations that stayed in the other meters are taken in it by the
		// caller.
		if since[i] == next {
			fresh = append(fresh, meters[i])
		}
		// Each meter is told its own limit as if that were the command's only one.
		one := *cmd
		one.Size, one.Interval, one.Calendar = limit.Size, limit.Interval, limit.Calendar
		if len(cmd.Limits) > 0 {
			// In a list a limit's burst is its whole size.
			one.Burst = max(0, limit.Size-1)
		}
		if meters[i].setLimit(l.now, &one, location) {
			since[i], anew = next, true
		}
	}
	// One new generation covers all meters that started again in this change.
	if anew {
		l.extra.generation = next
	}
	l.extra.meters, l.extra.meterSince = meters, since
	l.first.clearTaken() // what it has counted its heirs know
	return fresh
}

// isFixedWindow reports whether a meter counts in fixed windows, as that of every limit of the calendar's
// does.
func isFixedWindow(m limitMeter) bool {
	_, ok := m.(*fixedWindowMeter)
	return ok
}

// ensureLimitsNoted notes the limits in force if they are not noted yet, as they must be while anything
// lies ahead.
func (l *limiterStep) ensureLimitsNoted(cmd *gatehouse.Command) {
	if l.extra == nil {
		l.extra = new(limiterExtra)
	}
	if l.extra.limits != nil || l.extra.meters != nil {
		return
	}
	// The command relies on the limit in force, which only the meter knows so far.
	if !cmd.HasLimit() {
		inForce := new(gatehouse.Command)
		l.first.fillLimit(inForce)
		cmd = inForce
	}
	l.extra.noteLimits(cmd)
}

// withDefaultLimit are the limit of a limiter that begins with a command that names none.
func withDefaultLimit(cmd *gatehouse.Command) *gatehouse.Command {
	c := *cmd
	c.Size, c.Interval, c.Calendar, c.Limits = gatehouse.DefaultSize, gatehouse.DefaultInterval, 0, nil
	c.Burst, c.Guard, c.Mode, c.Zone = 0, 0, gatehouse.ModeDefault, ""
	return &c
}
