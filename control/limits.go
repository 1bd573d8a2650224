package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// A limiterExtra is what a limiter has besides one limit: several of them, what is promised for later, and
// what an undo has to know of the past so that it takes back what it means and nothing else.
type limiterExtra struct {
	rule       gatehouse.Rule // in force, canonical; without a list of which there are meters
	meters     []limitMeter   // of its limits; nil while the first meter keeps the one limit
	meterSince *generations   // in which each of meters began to count as it does; nil without those

	generation uint64 // how often counting has started again
	validFrom  uint64 // the generation before which no meter counts what was taken, or not as it does now
	lastNumber uint64 // the last number of a reservation; 0 when the next is higher in any case

	reservations []reservation // that lie ahead, in order of their starts
	holderBytes  int           // the weight of their holders
	projected    []limitMeter  // copies in which all reservations are taken; nil when not needed

	chunks []lentChunk // that may still be used, the newest last

	closed *closing // nil while the limiter is open

	reports *thirdParty // what third parties have answered; nil when nothing of that counts

	shares *shareList // of grants; nil when there is none
}

// The generations of a limiter's meters are an array, as that takes a word here, and a slice three.
type generations [gatehouse.MaxLimits]uint64

// mayBeginWithDefault reports whether a new name may begin with the default limit, as the command has none.
func (l *limiterStep) mayBeginWithDefault() bool {
	if l.turn.NeedLimit {
		l.failWith(gatehouse.Forbidden, noLimit)
		return false
	}
	// A cost above it that is not clipped would wait forever, so the sender is told what is missing.
	clips := l.turn.Grant != nil && l.turn.Grant.Clip
	if l.turn.Cost > gatehouse.DefaultSize && !l.turn.Forced && !clips {
		l.failWith(gatehouse.Invalid, fmt.Sprintf("is new, and a cost of %d can never fit "+
			"its size of %d: want a limit in the request", l.turn.Cost, gatehouse.DefaultSize))
		return false
	}
	return true
}

// ensureExtra makes the extra if there is none.
func (l *limiterCore) ensureExtra() {
	if l.extra == nil {
		l.extra = new(limiterExtra)
	}
}

// knowsRule reports whether the rule in force is noted here. If it is not, the first meter has its one limit.
func (m *limiterExtra) knowsRule() bool { return m != nil && (m.meters != nil || m.rule.HasLimit()) }

// hasRule reports whether a rule of canonicalRule is the one in force.
func (m *limiterExtra) hasRule(rule gatehouse.Rule) bool {
	if m.meters != nil && rule.Limits.Len() == len(m.meters) {
		for i, meter := range m.meters {
			if meter.currentLimit() != rule.Limits.At(i) {
				return false
			}
		}
		rule.Limits = gatehouse.LimitList{}
	}
	return m.rule == rule
}

// noteRule keeps a rule of canonicalRule that is in force.
func (m *limiterExtra) noteRule(rule gatehouse.Rule) {
	m.rule = rule
	// Meters have the limits that they count under. A second copy of eight would take 144 bytes.
	if m.meters != nil {
		m.rule.Limits = gatehouse.LimitList{}
	}
}

// hasList reports whether the limits in force were given in a list.
func (m *limiterExtra) hasList() bool {
	return m.rule.Limits.Len() > 0 || m.meters != nil && !m.rule.HasLimit()
}

// canonicalRule is a command's rule without what means nothing in it, so that rules are equal if they limit
// alike.
func canonicalRule(cmd *gatehouse.Command) gatehouse.Rule {
	r := cmd.Rule
	switch {
	// A list replaces the single limit, whose fields mean nothing then.
	case r.Limits.Len() > 0:
		r.Size, r.Interval, r.Calendar, r.Burst = 0, 0, gatehouse.NoCalendar, 0
	case r.Calendar != gatehouse.NoCalendar:
		r.Interval = 0
	}
	// A zone says only when days, weeks and months begin.
	if r.Zone != "" && !hasCalendar(&r) {
		r.Zone = ""
	}
	return r
}

// hasCalendar reports whether one of a rule's limits is the calendar's.
func hasCalendar(r *gatehouse.Rule) bool {
	for i := range limitCount(r) {
		if limitAt(r, i).Calendar != gatehouse.NoCalendar {
			return true
		}
	}
	return false
}

// hasPlainLimit reports whether a rule has one limit that is none of the calendar's.
func hasPlainLimit(r *gatehouse.Rule) bool {
	return r.Calendar == gatehouse.NoCalendar && r.Limits.Len() == 0
}

// limitCount is how many limits a rule has: those of its list, or the one that it is itself.
func limitCount(r *gatehouse.Rule) int { return max(1, r.Limits.Len()) }

// limitAt is one of as many limits.
func limitAt(r *gatehouse.Rule, i int) gatehouse.Limit {
	switch {
	case r.Limits.Len() > 0:
		return r.Limits.At(i)
	case r.Calendar != gatehouse.NoCalendar:
		return gatehouse.Limit{Size: r.Size, Calendar: r.Calendar}
	}
	return gatehouse.Limit{Size: r.Size, Interval: r.Interval}
}

// sameWindow reports whether what was taken under one limit counts under another.
func sameWindow(a, b gatehouse.Limit) bool {
	return a.Calendar == b.Calendar && (a.Calendar != gatehouse.NoCalendar || a.Interval == b.Interval)
}

// setLimits puts a command's limits in force. The error's text is for the sender of the command.
func (l *limiterStep) setLimits(cmd *gatehouse.Command) error {
	rule := canonicalRule(cmd)
	// Most commands repeat the limits in force.
	if l.extra.knowsRule() && l.extra.hasRule(rule) {
		return nil
	}
	location, err := zone.Load(rule.Zone)
	if err != nil {
		return err
	}
	l.ensureExtra()
	// One limit of a scheduling meter replaces another in place: the reservations stay in it.
	if l.extra.meters == nil && hasPlainLimit(&rule) && l.allScheduling() {
		if l.first.setLimit(l.now, &cmd.Rule, nil) { // which keeps what lies ahead
			l.beginGeneration()
		}
		l.extra.noteRule(rule)
		return nil
	}
	// Meters that keep what lies ahead by themselves need not be told of it again.
	keep := l.allScheduling() && !hasCalendar(&rule)
	// Otherwise reservations are taken out before the change and taken again after it, as the new meters may
	// count them in other windows.
	if !keep {
		l.withdrawReservations()
	}
	switch {
	case l.extra.meters != nil || !hasPlainLimit(&rule):
		fresh := l.setMeters(&rule, location)
		if keep {
			l.extra.takeReservations(fresh, l.now, l.extra.reservations)
		}
	case l.first.setLimit(l.now, &cmd.Rule, nil):
		l.beginGeneration()
	}
	l.extra.noteRule(rule)
	if !keep {
		l.retakeReservations()
	}
	return nil
}

// setMeters puts a rule's limits in force, each with a meter of its own: where the window is the
// same, the one there was, and where one limit takes the place of one other, that one's if it can be. It
// returns the meters in which nothing was taken yet.
func (l *limiterStep) setMeters(rule *gatehouse.Rule, location *time.Location) (fresh []limitMeter) {
	old, count := l.activeMeters(), limitCount(rule)
	meters, since := make([]limitMeter, count), new(generations)
	next, restarted := l.extra.generation+1, false
	heirs := make([]bool, len(old)) // which of the old meters have an heir already
	for i := range meters {
		limit := limitAt(rule, i)
		same := slices.IndexFunc(old, func(m limitMeter) bool { return sameWindow(m.currentLimit(), limit) })
		// Where one limit replaces one other, what was taken is carried over even if the window differs, as
		// far as both count in the same way.
		if same < 0 && len(old) == 1 && count == 1 &&
			isFixedWindow(old[0]) == (isFixedWindow(l.first) || limit.Calendar != gatehouse.NoCalendar) {
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
		case limit.Calendar != gatehouse.NoCalendar:
			meters[i], since[i], restarted = new(fixedWindowMeter), next, true
		default:
			meters[i], since[i], restarted = borrowMeter(l.first), next, true
			meters[i].clearTaken()
		}
		// It has counted nothing yet. Reservations that stayed in the other meters are taken in it by the
		// caller.
		if since[i] == next {
			fresh = append(fresh, meters[i])
		}
		// Each meter is told its own limit as if that were the only one.
		one := *rule
		one.Size, one.Interval, one.Calendar = limit.Size, limit.Interval, limit.Calendar
		if rule.Limits.Len() > 0 {
			// In a list a limit's burst is its whole size.
			one.Burst = max(0, limit.Size-1)
		}
		if meters[i].setLimit(l.now, &one, location) {
			since[i], restarted = next, true
		}
	}
	// One new generation covers all meters that started again in this change.
	if restarted {
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

// ensureRuleNoted notes the rule in force if it is not noted yet, as it must be while anything lies ahead.
func (l *limiterStep) ensureRuleNoted(cmd *gatehouse.Command) {
	l.ensureExtra()
	switch {
	case l.extra.knowsRule():
	case cmd.HasLimit():
		l.extra.noteRule(canonicalRule(cmd))
	default:
		// The command relies on the limit in force, which only the meter knows so far.
		l.extra.rule = l.first.inForce(gatehouse.Rule{})
	}
}
