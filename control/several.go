package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A more is what a limiter has besides one limit: several of them, and what is promised for later.
type more struct {
	rule   rule
	meters []meter // of the rule's limits; nil while the first meter keeps the one limit

	promises []promise // that lie ahead, in order of their starts
	frontier []meter   // copies of the meters in which all promises are taken; nil when not needed
}

// A rule is the limits in force, as they were given.
type rule struct {
	limits []gatehouse.Limit
	burst  int64
	guard  time.Duration
	mode   gatehouse.Mode
	zone   string
}

func (r *rule) equal(other *rule) bool {
	return r.burst == other.burst && r.guard == other.guard && r.mode == other.mode &&
		r.zone == other.zone && slices.Equal(r.limits, other.limits)
}

// ruleOf is what a command says.
func ruleOf(cmd *gatehouse.Command) rule {
	r := rule{limits: cmd.Limits, guard: cmd.Guard, mode: cmd.Mode, zone: cmd.Zone}
	if len(r.limits) == 0 {
		r.burst = cmd.Burst
		r.limits = []gatehouse.Limit{{Size: cmd.Size, Interval: cmd.Interval, Calendar: cmd.Calendar}}
	}
	return r
}

// bound is the rule's limit of this number.
func (r *rule) bound(i int, zone *time.Location) bound {
	limit := r.limits[i]
	b := bound{
		size: limit.Size, interval: int64(limit.Interval), burst: r.burst, guard: int64(r.guard),
		mode: r.mode, calendar: limit.Calendar, zone: zone,
	}
	if len(r.limits) > 1 || limit.Calendar != gatehouse.NoCalendar {
		b.burst = max(0, limit.Size-1)
	}
	return b
}

// setRule puts a command's limits in force. One whose window there was before goes on counting. why is
// not empty when the command cannot be followed.
func (l *limiter) setRule(first meter, now int64, cmd *gatehouse.Command) (why string) {
	to := ruleOf(cmd)
	if l.more != nil && l.more.rule.equal(&to) {
		return ""
	}
	zone, err := time.LoadLocation(to.zone)
	if err != nil || to.zone == "Local" {
		return "has no time zone " + to.zone + ", want an IANA name such as Europe/Berlin"
	}
	if l.more == nil {
		l.more = new(more)
	}
	m := l.more
	if m.meters == nil && len(to.limits) == 1 && to.limits[0].Calendar == gatehouse.NoCalendar {
		first.set(now, boundOf(cmd))
	} else {
		m.meters = l.metersOf(first, &to)
		for i, meter := range m.meters {
			meter.set(now, to.bound(i, zone))
		}
	}
	m.rule = to
	l.lookAhead(first, now)
	return ""
}

// metersOf returns the meters of a rule's limits: those there are where the window is the same.
func (l *limiter) metersOf(first meter, to *rule) []meter {
	old, limits := l.meters(first), l.more.rule.limits
	if l.more.meters == nil {
		limits = []gatehouse.Limit{{Interval: time.Duration(first.length())}}
	}
	meters := make([]meter, len(to.limits))
	for i, limit := range to.limits {
		same := slices.IndexFunc(limits, func(l gatehouse.Limit) bool {
			return l.Calendar == limit.Calendar && (l.Calendar != 0 || l.Interval == limit.Interval)
		})
		switch {
		case same >= 0:
			meters[i] = old[same].clone()
		case limit.Calendar != gatehouse.NoCalendar:
			meters[i] = new(calendarWindow)
		default:
			meters[i] = first.clone()
			meters[i].clear()
		}
	}
	return meters
}

// meters are those in which everything that has started is taken; ledgers have what lies ahead too.
func (l *limiter) meters(first meter) []meter {
	if l.more != nil && l.more.meters != nil {
		return l.more.meters
	}
	return []meter{first}
}

// ahead are the meters in which everything that was promised is taken as well.
func (l *limiter) ahead(first meter) []meter {
	if l.more != nil && l.more.frontier != nil {
		return l.more.frontier
	}
	return l.meters(first)
}

// from is the instant before which nothing new may start: what is promised goes first.
func (l *limiter) from(now int64) int64 {
	if l.more != nil && l.more.frontier != nil {
		return max(now, l.more.floor())
	}
	return now
}

// when is the earliest instant at which all limits let n through. What fits under a limit at one
// instant fits at every later one too, so that the latest of them is the answer.
func (l *limiter) when(first meter, now, n int64) int64 {
	at := l.from(now)
	for _, m := range l.ahead(first) {
		at = max(at, m.when(l.from(now), n))
	}
	return at
}

// readings tells how the meters stand; nothing is left while something is promised for later.
func (l *limiter) readings(first meter, now int64) []reading {
	meters := l.ahead(first)
	readings := make([]reading, len(meters))
	for i, m := range meters {
		readings[i] = m.read(now)
		if l.from(now) > now {
			readings[i].left = 0
		}
	}
	return readings
}

// decide tells how the limits stand: in the first place the one with the least left.
func (l *limiter) decide(first meter, now time.Time, outcome gatehouse.Outcome) gatehouse.Decision {
	if l.more == nil {
		return decision(now, outcome, first.read(now.UnixNano()))
	}
	readings := l.readings(first, now.UnixNano())
	least := 0
	for i := range readings {
		if readings[i].left < readings[least].left {
			least = i
		}
	}
	d := decision(now, outcome, readings[least])
	d.Windows = l.windows(now, readings)
	return d
}

// windows lists what the limits say, when there are several.
func (l *limiter) windows(now time.Time, readings []reading) []gatehouse.Window {
	if len(readings) == 1 {
		return nil
	}
	windows := make([]gatehouse.Window, len(readings))
	for i, r := range readings {
		windows[i] = gatehouse.Window{
			Limit: l.more.rule.limits[i], Remaining: r.left,
			ResetAfter: time.Duration(r.reset - now.UnixNano()),
		}
	}
	return windows
}

// refusal says when what the command wants might be taken, and which limits refuse it.
func (l *limiter) refusal(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	at := now.UnixNano()
	if l.more == nil {
		r := first.read(at)
		if r.limit > 0 && cmd.Cost > r.limit {
			return unable(now, gatehouse.Conflict, resized)
		}
		d := decision(now, gatehouse.Refused, r)
		d.RetryAfter = wait(at, first.when(at, later(cmd.Ahead, cmd.Cost)))
		return d
	}
	readings := l.readings(first, at)
	windows := l.windows(now, readings)
	longest, binding := int64(-1), 0
	for i, m := range l.ahead(first) {
		if limit := readings[i].limit; limit > 0 && cmd.Cost > limit {
			return unable(now, gatehouse.Conflict, resized)
		}
		when := m.when(at, later(cmd.Ahead, cmd.Cost))
		if windows != nil && when > at {
			windows[i].RetryAfter = wait(at, when)
		}
		if when > longest {
			longest, binding = when, i
		}
	}
	d := decision(now, gatehouse.Refused, readings[binding])
	d.RetryAfter = wait(at, l.when(first, at, later(cmd.Ahead, cmd.Cost)))
	d.Windows = windows
	return d
}
