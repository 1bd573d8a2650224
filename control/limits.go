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
func (l *limiterCore) setLimits(first limitMeter, now int64, cmd *gatehouse.Command) error {
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
	if l.extra.meters == nil && hasPlainLimit(cmd) && l.allScheduling(first) {
		if first.setLimit(now, cmd, nil) { // which keeps what lies ahead
			l.beginGeneration()
		}
		l.extra.noteLimits(cmd)
		return nil
	}
	// Meters that keep what lies ahead by themselves need not be told of it again.
	keep := l.allScheduling(first) && !slices.ContainsFunc(limitsOf(cmd), isCalendarLimit)
	// Otherwise reservations are taken out before the change and taken again after it, as the new meters may
	// count them in other windows.
	if !keep {
		l.withdrawReservations(first)
	}
	switch {
	case l.extra.meters != nil || !hasPlainLimit(cmd):
		fresh := l.setMeters(first, now, cmd, location)
		if keep {
			l.extra.takeReservations(fresh, now)
		}
	case first.setLimit(now, cmd, nil):
		l.beginGeneration()
	}
	l.extra.noteLimits(cmd)
	if !keep {
		l.retakeReservations(first, now)
	}
	return nil
}

// isCalendarLimit reports whether a limit is the calendar's.
func isCalendarLimit(limit gatehouse.Limit) bool { return limit.Calendar != gatehouse.NoCalendar }

// setMeters puts the command's limits in force, each with a meter of its own: where the window is the
// same, the one there was, and where one limit takes the place of one other, that one's if it can be. It
// returns the meters in which nothing was taken yet.
func (l *limiterCore) setMeters(
	first limitMeter, now int64, cmd *gatehouse.Command, location *time.Location,
) (fresh []limitMeter) {
	old, limits := l.activeMeters(first), l.ownLimits()
	// So far the one meter kept one limit, known by its interval alone.
	if limits == nil {
		limits = []gatehouse.Limit{{Interval: time.Duration(first.windowLength())}}
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
			isFixedWindow(old[0]) == (isFixedWindow(first) || isCalendarLimit(limit)) {
			same = 0
		}
		// A meter can be handed on once. A second limit with the same window gets a copy of it.
		switch {
		case same >= 0 && heirs[same]:
			meters[i], since[i] = old[same].clone(), l.meterGeneration(same)
		case same >= 0 && l.extra.meters != nil:
			meters[i], since[i], heirs[same] = old[same], l.meterGeneration(same), true
		case same >= 0:
			meters[i], since[i], heirs[same] = borrowMeter(first), l.meterGeneration(same), true
		case isCalendarLimit(limit):
			meters[i], since[i], anew = new(fixedWindowMeter), next, true
		default:
			meters[i], since[i], anew = borrowMeter(first), next, true
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
		if meters[i].setLimit(now, &one, location) {
			since[i], anew = next, true
		}
	}
	// One new generation covers all meters that started again in this change.
	if anew {
		l.extra.generation = next
	}
	l.extra.meters, l.extra.meterSince = meters, since
	first.clearTaken() // what it has counted its heirs know
	return fresh
}

// stillCounts reports whether a meter counts what was taken in a generation as it did then.
func (l *limiterCore) stillCounts(i int, generation uint64) bool {
	m := l.extra
	return m == nil || generation >= m.validFrom && (i >= len(m.meterSince) || generation >= m.meterSince[i])
}

// meterGeneration is the generation of the meter that a new one takes over from.
func (l *limiterCore) meterGeneration(i int) uint64 {
	if l.extra.meterSince == nil {
		return 0
	}
	return l.extra.meterSince[i]
}

// isFixedWindow reports whether a meter counts in fixed windows, as that of every limit of the calendar's
// does.
func isFixedWindow(m limitMeter) bool {
	_, ok := m.(*fixedWindowMeter)
	return ok
}

// activeMeters are those in which everything that has started is taken.
func (l *limiterCore) activeMeters(first limitMeter) []limitMeter {
	if l.extra != nil && l.extra.meters != nil {
		return l.extra.meters
	}
	return []limitMeter{first}
}

// projectedMeters are the meters in which all reservations are taken as well.
func (l *limiterCore) projectedMeters(first limitMeter) []limitMeter {
	if l.extra != nil && l.extra.projected != nil {
		return l.extra.projected
	}
	return l.activeMeters(first)
}

// earliestStart is the instant before which nothing new may start: reservations go first.
func (l *limiterCore) earliestStart(now int64) int64 {
	if l.extra != nil && len(l.extra.reservations) > 0 {
		return max(now, l.extra.reservations[len(l.extra.reservations)-1].at)
	}
	return now
}

// earliestFit is the earliest instant at which all limits let n through. What fits under a limit at one
// instant fits at every later one too, so that the latest of them is the answer.
func (l *limiterCore) earliestFit(first limitMeter, now, n int64) int64 {
	// Nothing overtakes a reservation, so the search begins at the last of them.
	from := l.earliestStart(now)
	at := from
	for _, m := range l.projectedMeters(first) {
		at = max(at, m.earliestFit(from, n))
	}
	return at
}

// readMeter tells how a meter stands; nothing is left while a reservation lies ahead.
func (l *limiterCore) readMeter(m limitMeter, now int64) meterReading {
	r := m.readMeter(now)
	// The meter itself may have room, but taking it would overtake the reservation.
	if l.earliestStart(now) > now {
		r.left = 0
	}
	return r
}

// fillDecision fills in how the limit stands that a decision is about in the first place.
func (r *meterReading) fillDecision(d *gatehouse.Decision) {
	d.Limit, d.Remaining, d.Interval = r.limit, r.left, time.Duration(r.interval)
	d.ResetAfter = time.Duration(r.reset - d.At.UnixNano())
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

// fillGranted fills in how the limits stand: in the first place the one with the least left.
func (l *limiterCore) fillGranted(first limitMeter, d *gatehouse.Decision) {
	at := d.At.UnixNano()
	d.Outcome, d.Windows = gatehouse.Granted, l.decisionWindows()
	if l.extra != nil {
		d.Generation = l.extra.generation
	}
	for i, m := range l.projectedMeters(first) {
		r := l.readMeter(m, at)
		if d.Windows != nil {
			d.Windows[i].Remaining, d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-at)
		}
		// With several limits the tightest one is shown, as the next request meets it first.
		if i == 0 || r.left < d.Remaining {
			r.fillDecision(d)
		}
	}
}

// fillRefused fills in when what the command wants might be taken, and which limits refuse it: in the first
// place the one that does for longest. While a place lies ahead all of them do until then.
func (l *limiterCore) fillRefused(first limitMeter, turn *Turn, d *gatehouse.Decision) {
	at, n := d.At.UnixNano(), addSaturating(turn.Ahead, turn.Cost)
	from := l.earliestStart(at)
	d.Outcome, d.Windows = gatehouse.Refused, l.decisionWindows()
	latest, soonest := int64(0), int64(noTime)
	for i, m := range l.projectedMeters(first) {
		r := l.readMeter(m, at)
		// No wait helps a cost above the limit. A limit of 0 is different: it stops for now, and may be
		// raised.
		if r.limit > 0 && turn.Cost > r.limit {
			*d = failedWith(d.At, gatehouse.Conflict, costTooHigh(turn.Command))
			return
		}
		// It must find room for those in front as well, as they go first.
		when := m.earliestFit(from, n)
		// Before the next token comes back the answer cannot change.
		soonest = min(soonest, m.earliestFit(from, r.left+1))
		if d.Windows != nil {
			d.Windows[i].Remaining, d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-at)
			d.Windows[i].RetryAfter = waitUntil(at, when)
		}
		if when > latest {
			latest = when
			r.fillDecision(d)
		}
	}
	if latest <= at { // it is only that those in front must go first, who want more than is left
		latest = soonest
	}
	d.RetryAfter = waitUntil(at, latest)
}

// costTooHigh says why a cost is above the limit. One that takes something and names its limit was below it
// when it came.
func costTooHigh(cmd *gatehouse.Command) string {
	if cmd.Op == gatehouse.OpPeek || cmd.Op == gatehouse.OpDelay || !cmd.HasLimit() {
		return "lets fewer through at once than this request wants"
	}
	return "was resized below the cost of this request"
}

// waitUntil is the time until an instant.
func waitUntil(now, when int64) time.Duration {
	if when == noTime {
		return gatehouse.Forever
	}
	return min(time.Duration(when-now), gatehouse.MaxDuration)
}
