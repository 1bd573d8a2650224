package simulate

import (
	"math"
	"slices"
	"time"
)

// tolerance is how much of the capacity sums of many floating-point numbers may be off.
const tolerance = 1e-7

// A measure keeps the books of a run. Nothing is sampled: between two events nothing changes, so that
// every instant counts.
type measure struct {
	now   time.Duration
	state state
	rate  float64 // of what could be handed out: from there on it counts as recovered

	meters []*meter // the first is that of the report, the second of the whole run
	series *series
	events []Event
	bad    time.Duration // the last instant with less than rate handed out, or too much

	samples, samplesOver int
	samplesFrom          time.Duration
}

// A state is how things stand between two events.
type state struct {
	capacity float64
	wants    float64
	leased   float64 // what clients hold by leases that have not run out
	useful   float64 // of that: what they want as well
	told     float64 // leased, less what answers on their way take back
	safe     float64 // what clients may use without a lease that goes back to the root
	groups   []part  // of the clients
}

// A part is what some clients want, and what of it they hold by leases.
type part struct{ wants, useful float64 }

func (p *part) change(before, after use) {
	p.wants += after.wants - before.wants
	p.useful += after.useful() - before.useful()
}

// useful is what a client holds and wants.
func (u use) useful() float64 { return min(u.leased, u.wants) }

// possible is how much could be handed out.
func (s *state) possible() float64 { return min(s.capacity, s.wants) }

// isAbove reports whether clients hold more than there is. isOver is the same without what answers on
// their way take back: for as long as one travels, its client does not know yet that it has less, and
// another may know already that it has more.
func (s *state) isAbove() bool { return s.leased > s.limit() }
func (s *state) isOver() bool  { return s.told > s.limit() }

func (s *state) limit() float64 { return s.capacity + tolerance*max(1, s.capacity) }

// A meter sums up a part of the run.
type meter struct {
	from, to time.Duration
	group    int // whose wants are looked at; -1: everybody's

	satisfied, wanted       float64 // amounts times seconds, of the group
	possible, given, useful float64 // amounts times seconds
	leased, capacity        float64
	lowest, peak, safePeak  float64
	lowestAt, peakAt        time.Duration

	over, brief excess // brief: while answers travel
	settled     time.Duration
	firstLease  time.Duration
	zeroGrants  int
}

func newMeter(from, to time.Duration) *meter {
	return &meter{from: from, to: to, group: -1, lowest: math.Inf(1), firstLease: math.MaxInt64}
}

func newMeasure(s *Scenario) *measure {
	m := &measure{
		rate: s.settled, series: newSeries(s.duration), samplesFrom: s.from,
		meters: []*meter{newMeter(s.from, s.duration), newMeter(0, s.duration)},
		events: []Event{{Do: "start"}},
	}
	m.state.capacity = s.resource.Capacity
	m.state.groups = make([]part, len(s.groups))
	for _, e := range s.expected {
		to := e.to
		if to == 0 {
			to = s.duration
		}
		meter := newMeter(e.from, to)
		meter.group = slices.IndexFunc(s.groups, func(g group) bool { return e.of != "" && g.name == e.of })
		m.meters = append(m.meters, meter)
	}
	return m
}

// advance counts the time since the last event, in which nothing changed.
func (m *measure) advance(now time.Duration) {
	if now <= m.now {
		return
	}
	for _, meter := range m.meters {
		meter.advance(m.now, now, &m.state)
	}
	m.series.advance(m.now, now, &m.state)
	if m.state.isOver() || m.state.leased < m.rate*m.state.possible()-tolerance {
		m.bad = now
	}
	m.now = now
}

// advance counts the part of [from, now) that is the meter's.
func (t *meter) advance(from, now time.Duration, s *state) {
	from, now = max(from, t.from), min(now, t.to)
	if from >= now {
		return
	}
	seconds := (now - from).Seconds()
	possible := s.possible()
	t.possible += possible * seconds
	t.given += min(s.leased, possible) * seconds
	t.useful += min(s.useful, possible) * seconds
	t.leased += s.leased * seconds
	asked := part{s.wants, s.useful}
	if t.group >= 0 {
		asked = s.groups[t.group]
	}
	t.wanted += asked.wants * seconds
	t.satisfied += asked.useful * seconds
	t.capacity += s.capacity * seconds
	if share := ratio(s.leased, possible); share < t.lowest {
		t.lowest, t.lowestAt = share, from
	}
	if share := ratio(s.leased, s.capacity); share > t.peak {
		t.peak, t.peakAt = share, from
	}
	t.safePeak = max(t.safePeak, ratio(s.leased+s.safe, s.capacity))
	t.over.advance(from, now, s.isOver(), s.told-s.capacity)
	t.brief.advance(from, now, s.isAbove() && !s.isOver(), s.leased-s.capacity)
	if s.leased > 0 {
		t.firstLease = min(t.firstLease, from)
	}
}

// uses notes that a client may use another amount, or wants another.
func (m *measure) uses(c *client, u use) {
	if u == c.use {
		return
	}
	m.advance(c.w.now)
	before := c.use
	c.use = u
	m.state.wants += u.wants - before.wants
	m.state.leased += u.leased - before.leased
	m.state.told += u.told - before.told
	m.state.safe += u.safe - before.safe
	m.state.useful += u.useful() - before.useful()
	m.state.groups[c.group.place].change(before, u)
	if u.leased == before.leased {
		return
	}
	for n := c.node; n.parent != nil; n = n.parent {
		n.shortage.advance(c.w.now)
		n.shortage.used += u.leased - before.leased
	}
}

// sample is looked at now and then, as doorman's own simulation does it. It also takes the sums anew, so
// that what rounding leaves behind does not add up.
func (w *world) sample() {
	m := w.measure
	m.advance(w.now)
	fresh := state{capacity: m.state.capacity, groups: m.state.groups}
	clear(fresh.groups)
	for _, c := range w.clients {
		fresh.wants += c.use.wants
		fresh.leased += c.use.leased
		fresh.told += c.use.told
		fresh.safe += c.use.safe
		fresh.useful += c.use.useful()
		fresh.groups[c.group.place].change(use{}, c.use)
	}
	m.state = fresh
	if w.now >= m.samplesFrom {
		m.samples++
		if m.state.isAbove() {
			m.samplesOver++
		}
	}
	w.after(w.scenario.sample, w.sample)
}

// resized notes another capacity.
func (m *measure) resized(now time.Duration, to float64) {
	m.advance(now)
	m.state.capacity = to
}

// zeroGrant notes an answer of nothing to somebody who wants something.
func (m *measure) zeroGrant(now time.Duration) {
	for _, meter := range m.meters {
		if now >= meter.from && now < meter.to {
			meter.zeroGrants++
		}
	}
}

// happened notes what happened, and how long it took to recover from what happened before.
func (m *measure) happened(e Event) {
	m.advance(e.At)
	m.settle()
	m.events = append(m.events, e)
}

// settle says of the last event how long it took to recover from it, up to now.
func (m *measure) settle() {
	last := &m.events[len(m.events)-1]
	last.Settled = max(0, m.bad-last.At)
	last.Open = m.bad == m.now && m.now > last.At
	for _, meter := range m.meters {
		if last.At >= meter.from && last.At < meter.to {
			meter.settled = max(meter.settled, last.Settled)
		}
	}
}
