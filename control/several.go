package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// A more is what a limiter has besides one limit: several of them, what is promised for later, and what an
// undo has to know of the past so that it takes back what it means and nothing else.
type more struct {
	limits []gatehouse.Limit // in force, as they were given; nil when there are meters, which have them
	burst  int64             // of one limit that was given without a list; otherwise ofSize
	guard  time.Duration
	mode   gatehouse.Mode
	zone   string   // "" when no limit is the calendar's
	meters []meter  // of the limits; nil while the first meter keeps the one limit
	since  []uint64 // the generation in which each of meters began to count as it does

	generation uint64 // how often counting has begun anew
	from       uint64 // the generation before which no meter counts what was taken, or not as it does now
	number     uint64 // the last number of a reservation; 0 when the next is higher in any case

	promises []promise // that lie ahead, in order of their starts
	keys     int       // the weight of their holders
	frontier []meter   // copies of the meters in which all promises are taken; nil when not needed

	chunks []chunk // that may still be used, the newest last
}

// ofSize is the burst of a limit in a list, whose whole size passes at once.
const ofSize = -1

// says reports whether the limits in force are those of the command.
func (m *more) says(cmd *gatehouse.Command) bool {
	switch {
	case m.guard != cmd.Guard || m.mode != cmd.Mode || m.zone != zoneOf(cmd):
		return false
	case len(cmd.Limits) > 0:
		return m.burst == ofSize && m.limited(cmd.Limits)
	}
	one := [1]gatehouse.Limit{limitOf(cmd)}
	return m.burst == cmd.Burst && m.limited(one[:])
}

// limited reports whether these limits are in force.
func (m *more) limited(limits []gatehouse.Limit) bool {
	if m.meters == nil {
		return slices.Equal(m.limits, limits)
	}
	same := len(m.meters) == len(limits)
	for i := 0; same && i < len(limits); i++ {
		limit := m.meters[i].limit()
		same = limit.Size == limits[i].Size && sameWindow(limit, limits[i])
	}
	return same
}

// list is a list of the limits in force.
func (m *more) list() []gatehouse.Limit {
	if m.meters == nil {
		return m.limits
	}
	limits := make([]gatehouse.Limit, len(m.meters))
	for i := range limits {
		limits[i] = m.meters[i].limit()
	}
	return limits
}

// note keeps what the command says.
func (m *more) note(cmd *gatehouse.Command) {
	m.limits, m.burst = nil, cmd.Burst
	if m.meters == nil {
		m.limits = slices.Clone(limitsOf(cmd))
	}
	m.guard, m.mode, m.zone = cmd.Guard, cmd.Mode, zoneOf(cmd)
	if len(cmd.Limits) > 0 {
		m.burst = ofSize
	}
}

// plain reports whether the command has one limit that is none of the calendar's.
func plain(cmd *gatehouse.Command) bool {
	return len(cmd.Limits) == 0 && cmd.Calendar == gatehouse.NoCalendar
}

// limitOf is the limit of a command that has no list of them.
func limitOf(cmd *gatehouse.Command) gatehouse.Limit {
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
	return []gatehouse.Limit{limitOf(cmd)}
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
func (l *limiter) ownLimits() []gatehouse.Limit {
	if l.more == nil || l.more.meters == nil {
		return nil
	}
	return l.more.list()
}

// setRule puts a command's limits in force. The error's text is for whoever sent the command.
func (l *limiter) setRule(first meter, now int64, cmd *gatehouse.Command) error {
	if l.more != nil && l.more.says(cmd) {
		return nil
	}
	location, err := zone.Load(zoneOf(cmd))
	if err != nil {
		return err
	}
	if l.more == nil {
		l.more = new(more)
	}
	if l.more.meters == nil && plain(cmd) && l.scheduled(first) {
		if first.set(now, cmd, nil) { // which keeps what lies ahead
			l.beginGeneration()
		}
		l.more.note(cmd)
		return nil
	}
	// Meters that keep what lies ahead by themselves need not be told of it again.
	keep := l.scheduled(first) && !slices.ContainsFunc(limitsOf(cmd), calendrical)
	if !keep {
		l.withdrawPromises(first)
	}
	switch {
	case l.more.meters != nil || !plain(cmd):
		fresh := l.setMeters(first, now, cmd, location)
		if keep {
			l.more.takePromises(fresh, now)
		}
	case first.set(now, cmd, nil):
		l.beginGeneration()
	}
	l.more.note(cmd)
	if !keep {
		l.renewPromises(first, now)
	}
	return nil
}

// calendrical reports whether a limit is the calendar's.
func calendrical(limit gatehouse.Limit) bool { return limit.Calendar != gatehouse.NoCalendar }

// setMeters puts the command's limits in force, each with a meter of its own: where the window is the
// same, the one there was, and where one limit takes the place of one other, that one's if it can be. It
// returns the meters in which nothing was taken yet.
func (l *limiter) setMeters(
	first meter, now int64, cmd *gatehouse.Command, location *time.Location,
) (fresh []meter) {
	old, limits := l.meters(first), l.ownLimits()
	if limits == nil {
		limits = []gatehouse.Limit{{Interval: time.Duration(first.length())}}
	}
	to := limitsOf(cmd)
	meters, since := make([]meter, len(to)), make([]uint64, len(to))
	next, anew := l.more.generation+1, false
	heirs := make([]bool, len(old)) // which of the old meters have an heir already
	for i, limit := range to {
		same := slices.IndexFunc(limits, func(l gatehouse.Limit) bool { return sameWindow(l, limit) })
		if same < 0 && len(limits) == 1 && len(to) == 1 &&
			fixed(old[0]) == (fixed(first) || calendrical(limit)) {
			same = 0
		}
		switch {
		case same >= 0 && heirs[same]:
			meters[i], since[i] = old[same].clone(), l.inherited(same)
		case same >= 0 && l.more.meters != nil:
			meters[i], since[i], heirs[same] = old[same], l.inherited(same), true
		case same >= 0:
			meters[i], since[i], heirs[same] = borrow(first), l.inherited(same), true
		case calendrical(limit):
			meters[i], since[i], anew = new(fixedWindow), next, true
		default:
			meters[i], since[i], anew = borrow(first), next, true
			meters[i].clear()
		}
		if since[i] == next {
			fresh = append(fresh, meters[i])
		}
		one := *cmd
		one.Size, one.Interval, one.Calendar = limit.Size, limit.Interval, limit.Calendar
		if len(cmd.Limits) > 0 {
			one.Burst = max(0, limit.Size-1)
		}
		if meters[i].set(now, &one, location) {
			since[i], anew = next, true
		}
	}
	if anew {
		l.more.generation = next
	}
	l.more.meters, l.more.since = meters, since
	first.clear() // what it has counted its heirs know
	return fresh
}

// counts reports whether a meter counts what was taken in a generation as it did then.
func (l *limiter) counts(i int, generation uint64) bool {
	m := l.more
	return m == nil || generation >= m.from && (i >= len(m.since) || generation >= m.since[i])
}

// inherited is the generation of the meter that a new one takes over from.
func (l *limiter) inherited(i int) uint64 {
	if l.more.since == nil {
		return 0
	}
	return l.more.since[i]
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
	from := l.from(now)
	at := from
	for _, m := range l.looking(first) {
		at = max(at, m.when(from, n))
	}
	return at
}

// read tells how a meter stands; nothing is left while something is promised for later.
func (l *limiter) read(m meter, now int64) reading {
	r := m.read(now)
	if l.from(now) > now {
		r.left = 0
	}
	return r
}

// tell fills in how the limit stands that a decision is about in the first place.
func (r *reading) tell(d *gatehouse.Decision) {
	d.Limit, d.Remaining, d.Interval = r.limit, r.left, time.Duration(r.interval)
	d.ResetAfter = time.Duration(r.reset - d.At.UnixNano())
}

// windows are the entries of a decision for each of several limits; nil for one.
func (l *limiter) windows() []gatehouse.Window {
	if l.more == nil || len(l.more.meters) < 2 {
		return nil
	}
	windows := make([]gatehouse.Window, len(l.more.meters))
	for i, m := range l.more.meters {
		windows[i].Limit = m.limit()
	}
	return windows
}

// grant fills in how the limits stand: in the first place the one with the least left.
func (l *limiter) grant(first meter, d *gatehouse.Decision) {
	at := d.At.UnixNano()
	d.Outcome, d.Windows = gatehouse.Granted, l.windows()
	if l.more != nil {
		d.Generation = l.more.generation
	}
	for i, m := range l.looking(first) {
		r := l.read(m, at)
		if d.Windows != nil {
			d.Windows[i].Remaining, d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-at)
		}
		if i == 0 || r.left < d.Remaining {
			r.tell(d)
		}
	}
}

// refuse fills in when what the command wants might be taken, and which limits refuse it: in the first
// place the one that does for longest. While a place lies ahead all of them do until then.
func (l *limiter) refuse(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	at, n := d.At.UnixNano(), plus(cmd.Ahead, cmd.Cost)
	from := l.from(at)
	d.Outcome, d.Windows = gatehouse.Refused, l.windows()
	latest, soonest := int64(0), int64(noTime)
	for i, m := range l.looking(first) {
		r := l.read(m, at)
		if r.limit > 0 && cmd.Cost > r.limit {
			*d = unable(d.At, gatehouse.Conflict, tooMuch(cmd))
			return
		}
		when := m.when(from, n)
		soonest = min(soonest, m.when(from, r.left+1))
		if d.Windows != nil {
			d.Windows[i].Remaining, d.Windows[i].ResetAfter = r.left, time.Duration(r.reset-at)
			d.Windows[i].RetryAfter = wait(at, when)
		}
		if when > latest {
			latest = when
			r.tell(d)
		}
	}
	if latest <= at { // it is only that those in front must go first, who want more than is left
		latest = soonest
	}
	d.RetryAfter = wait(at, latest)
}

// tooMuch says why a cost is above the limit. One that takes something and names its limit was below it when
// it came.
func tooMuch(cmd *gatehouse.Command) string {
	if cmd.Op == gatehouse.OpPeek || cmd.Op == gatehouse.OpDelay || !cmd.HasLimit() {
		return "lets fewer through at once than this request wants"
	}
	return "was resized below the cost of this request"
}

// wait is the time until an instant.
func wait(now, when int64) time.Duration {
	if when == noTime {
		return gatehouse.Forever
	}
	return min(time.Duration(when-now), gatehouse.MaxDuration)
}

// noted reports whether there is anything besides chunks that a stored form has to tell.
func (m *more) noted() bool {
	return m.meters != nil || m.promises != nil || m.generation != 0 || m.number != 0
}
