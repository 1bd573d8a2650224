package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// A more is what a limiter has besides one limit: several of them, and what is promised for later.
type more struct {
	limits []gatehouse.Limit // in force, as they were given
	bound  bound             // what else was given; with several limits size and interval mean nothing
	zone   string            // "" when no limit is the calendar's
	meters []meter           // of the limits; nil while the first meter keeps the one limit

	promises []promise // that lie ahead, in order of their starts
	frontier []meter   // copies of the meters in which all promises are taken; nil when not needed
}

// says reports whether the limits in force are those of the command.
func (m *more) says(cmd *gatehouse.Command) bool {
	if m.bound.guard != int64(cmd.Guard) || m.bound.mode != cmd.Mode || m.zone != zoneOf(cmd) {
		return false
	}
	if len(cmd.Limits) > 0 {
		return slices.Equal(m.limits, cmd.Limits)
	}
	return len(m.limits) == 1 && m.limits[0] == limitOf(cmd) && m.bound.burst == cmd.Burst
}

// limitOf is the limit of a command that has no list of them.
func limitOf(cmd *gatehouse.Command) gatehouse.Limit {
	limit := gatehouse.Limit{Size: cmd.Size, Interval: cmd.Interval, Calendar: cmd.Calendar}
	if limit.Calendar != gatehouse.NoCalendar {
		limit.Interval = 0
	}
	return limit
}

// zoneOf is the command's time zone, which means nothing without a limit of the calendar's.
func zoneOf(cmd *gatehouse.Command) string {
	ofCalendar := func(limit gatehouse.Limit) bool { return limit.Calendar != gatehouse.NoCalendar }
	if cmd.Calendar == gatehouse.NoCalendar && !slices.ContainsFunc(cmd.Limits, ofCalendar) {
		return ""
	}
	return cmd.Zone
}

// limitsOf are the limits of a command.
func limitsOf(cmd *gatehouse.Command) []gatehouse.Limit {
	if len(cmd.Limits) > 0 {
		return slices.Clone(cmd.Limits)
	}
	return []gatehouse.Limit{limitOf(cmd)}
}

// note keeps what the command says.
func (m *more) note(cmd *gatehouse.Command) {
	m.limits, m.bound, m.zone = limitsOf(cmd), boundOf(cmd), zoneOf(cmd)
}

// sameWindow reports whether what was taken under one limit counts under another.
func sameWindow(a, b gatehouse.Limit) bool {
	return a.Calendar == b.Calendar && (a.Calendar != gatehouse.NoCalendar || a.Interval == b.Interval)
}

// rule lists the limits in force when they have meters of their own.
func (l *limiter) rule() []gatehouse.Limit {
	if l.more == nil || l.more.meters == nil {
		return nil
	}
	return l.more.limits
}

// setRule puts a command's limits in force. why is not empty when the command cannot be followed.
func (l *limiter) setRule(first meter, now int64, cmd *gatehouse.Command) (why string) {
	if l.more != nil && l.more.says(cmd) {
		return ""
	}
	location, err := zone.Load(zoneOf(cmd))
	if err != nil {
		return err.Error()
	}
	if l.more == nil {
		l.more = new(more)
	}
	l.withdrawPromises(first)
	if l.more.meters == nil && plain(cmd) {
		first.set(now, boundOf(cmd))
		l.more.note(cmd)
	} else {
		l.setMeters(first, now, cmd, location)
	}
	l.renewPromises(first, now)
	return ""
}

// setMeters puts the command's limits in force, each with a meter of its own: where the window is the
// same, the one there was, and where one limit takes the place of one other, that one's if it can be.
func (l *limiter) setMeters(first meter, now int64, cmd *gatehouse.Command, location *time.Location) {
	old, limits := l.meters(first), l.rule()
	if limits == nil {
		limits = []gatehouse.Limit{{Interval: time.Duration(first.length())}}
	}
	m := l.more
	m.note(cmd)
	m.meters = make([]meter, len(m.limits))
	for i, limit := range m.limits {
		b := m.bound
		if !plain(cmd) {
			b.size, b.interval, b.burst = limit.Size, int64(limit.Interval), max(0, limit.Size-1)
		}
		m.meters[i] = first.clone()
		if limit.Calendar != gatehouse.NoCalendar {
			m.meters[i] = new(fixedWindow)
			b.calendar = &calendar{limit.Calendar, location}
		}
		same := slices.IndexFunc(limits, func(l gatehouse.Limit) bool { return sameWindow(l, limit) })
		if same < 0 && len(limits) == 1 && len(m.limits) == 1 && fixed(old[0]) == fixed(m.meters[0]) {
			same = 0 // one takes the place of the other
		}
		if same >= 0 {
			m.meters[i] = old[same].clone()
		} else {
			m.meters[i].clear()
		}
		m.meters[i].set(now, b)
	}
}

// fixed reports whether a meter counts in fixed windows, as that of every limit of the calendar's does.
func fixed(m meter) bool {
	_, ok := m.(*fixedWindow)
	return ok
}

// meters are those in which everything that has started is taken.
func (l *limiter) meters(first meter) []meter {
	if l.more != nil && l.more.meters != nil {
		return l.more.meters
	}
	return []meter{first}
}

// looking are the meters in which everything that was promised is taken as well.
func (l *limiter) looking(first meter) []meter {
	if l.more != nil && l.more.frontier != nil {
		return l.more.frontier
	}
	return l.meters(first)
}

// from is the instant before which nothing new may start: what is promised goes first.
func (l *limiter) from(now int64) int64 {
	if l.more != nil && len(l.more.promises) > 0 {
		return max(now, l.more.promises[len(l.more.promises)-1].at)
	}
	return now
}

// when is the earliest instant at which all limits let n through. What fits under a limit at one
// instant fits at every later one too, so that the latest of them is the answer.
func (l *limiter) when(first meter, now, n int64) int64 {
	if l.more == nil {
		return first.when(now, n)
	}
	from := l.from(now)
	at := from
	for _, m := range l.looking(first) {
		at = max(at, m.when(from, n))
	}
	return at
}

// readings are how the meters stand.
type readings struct {
	count int
	all   [gatehouse.MaxLimits]reading
}

// readings tells how the meters stand; nothing is left while something is promised for later.
func (l *limiter) readings(first meter, now int64) (r readings) {
	for i, m := range l.looking(first) {
		r.all[i], r.count = m.read(now), i+1
		if l.from(now) > now {
			r.all[i].left = 0
		}
	}
	return r
}

// decide grants, and tells how the limits stand: in the first place the one with the least left.
func (l *limiter) decide(first meter, now time.Time) gatehouse.Decision {
	if l.more == nil {
		return decision(now, gatehouse.Granted, first.read(now.UnixNano()))
	}
	r := l.readings(first, now.UnixNano())
	least := 0
	for i := range r.count {
		if r.all[i].left < r.all[least].left {
			least = i
		}
	}
	d := decision(now, gatehouse.Granted, r.all[least])
	d.Windows = l.windows(now, &r)
	return d
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

// windows lists what the limits say, when there are several.
func (l *limiter) windows(now time.Time, r *readings) []gatehouse.Window {
	if r.count == 1 {
		return nil
	}
	windows := make([]gatehouse.Window, r.count)
	for i := range windows {
		windows[i] = gatehouse.Window{
			Limit:      l.more.limits[i],
			Remaining:  r.all[i].left,
			ResetAfter: time.Duration(r.all[i].reset - now.UnixNano()),
		}
	}
	return windows
}

// refusal says when what the command wants might be taken, and which limits refuse it. While a place
// lies ahead all of them do until then.
func (l *limiter) refusal(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	at, n := now.UnixNano(), plus(cmd.Ahead, cmd.Cost)
	from, r := l.from(at), l.readings(first, at)
	windows := l.windows(now, &r)
	latest, soonest, binding := at, int64(noTime), 0
	for i, m := range l.looking(first) {
		if limit := r.all[i].limit; limit > 0 && cmd.Cost > limit {
			return unable(now, gatehouse.Conflict, "was resized below the cost of this request")
		}
		soonest = min(soonest, m.when(from, r.all[i].left+1))
		when := m.when(from, n)
		if windows != nil && when > at {
			windows[i].RetryAfter = wait(at, when)
		}
		if when > latest {
			latest, binding = when, i
		}
	}
	if latest == at { // it is only that those in front must go first, who want more than is left
		latest = soonest
	}
	d := decision(now, gatehouse.Refused, r.all[binding])
	d.RetryAfter, d.Windows = wait(at, latest), windows
	return d
}
