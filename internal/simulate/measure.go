package simulate

import (
	"math"
	"slices"
	"time"
)

// tolerance is the relative error allowed to sums of many floating-point numbers.
const tolerance = 1e-7

// A measurement records one run. Nothing is sampled: between two events nothing changes, so every instant
// counts.
type measurement struct {
	now            time.Duration
	state          runState
	recoveredShare float64 // of what could be handed out, from which on the run counts as recovered

	meters  []*intervalMeter // the first is that of the report, the second of the whole run
	series  *timeSeries
	events  []RecordedEvent
	lastBad time.Duration // the last instant with less than that handed out, or with too much

	samples, samplesOver int
	samplesFrom          time.Duration
}

// A runState is the state between two events: sums over all clients.
type runState struct {
	capacity  float64
	wants     float64
	leased    float64       // what clients hold by leases that have not run out
	useful    float64       // of that: what they want as well
	confirmed float64       // leased, less what responses on their way take back
	safe      float64       // what clients may use without a lease that goes back to the root
	groups    []groupTotals // of the clients
}

// groupTotals are what a group of clients wants, and what of it they hold by leases.
type groupTotals struct{ wants, useful float64 }

// replaceUsage replaces the usage of one client in the totals.
func (p *groupTotals) replaceUsage(before, after clientUsage) {
	p.wants += after.wants - before.wants
	p.useful += after.useful() - before.useful()
}

// useful returns how much of what a client holds it also wants.
func (u clientUsage) useful() float64 { return min(u.leased, u.wants) }

// possible returns how much could be handed out.
func (s *runState) possible() float64 { return min(s.capacity, s.wants) }

// isAbove reports whether clients hold more than there is. isOver is the same without what responses on their
// way take back: while one travels, its client does not know yet that it has less, and another may know
// already that it has more.
func (s *runState) isAbove() bool { return s.leased > s.limit() }
func (s *runState) isOver() bool  { return s.confirmed > s.limit() }

func (s *runState) limit() float64 { return s.capacity + tolerance*max(1, s.capacity) }

// An intervalMeter sums up a part of the run.
type intervalMeter struct {
	from, to time.Duration
	group    int // whose wants are measured; -1 for all clients'

	amounts
	satisfied, wanted      float64 // amounts times seconds, of the group
	lowest, peak, safePeak float64

	over, brief excess // brief: only while responses travel
	settled     time.Duration
	firstLease  time.Duration
	zeroGrants  int
}

func newMeter(from, to time.Duration) *intervalMeter {
	return &intervalMeter{from: from, to: to, group: -1, lowest: math.Inf(1), firstLease: math.MaxInt64}
}

func newMeasure(s *Scenario) *measurement {
	m := &measurement{
		recoveredShare: s.recoveredShare, series: newSeries(s.duration), samplesFrom: s.measureFrom,
		meters: []*intervalMeter{newMeter(s.measureFrom, s.duration), newMeter(0, s.duration)},
		events: []RecordedEvent{{Do: "start"}},
	}
	m.state.capacity = s.resource.Capacity
	// The report's meters come first; those of the expectations follow in their order, see Run.
	m.state.groups = make([]groupTotals, len(s.groups))
	for _, e := range s.expectations {
		to := e.to
		// Without an end of its own, an expectation goes on to the end of the run.
		if to == 0 {
			to = s.duration
		}
		meter := newMeter(e.from, to)
		meter.group = slices.IndexFunc(s.groups, func(g clientGroup) bool {
			return e.of != "" && g.name == e.of
		})
		m.meters = append(m.meters, meter)
	}
	return m
}

// advanceTo counts the time since the last event, in which nothing changed.
func (m *measurement) advanceTo(now time.Duration) {
	// Several events may fall on one instant.
	if now <= m.now {
		return
	}
	for _, meter := range m.meters {
		meter.addInterval(m.now, now, &m.state)
	}
	m.series.addInterval(m.now, now, &m.state)
	// Recovery is for good: the last bad instant counts, however often the run was good before it.
	if m.state.isOver() || m.state.leased < m.recoveredShare*m.state.possible()-tolerance {
		m.lastBad = now
	}
	m.now = now
}

// addInterval counts the part of [from, now) that lies within the meter's time.
func (t *intervalMeter) addInterval(from, now time.Duration, s *runState) {
	from, now = max(from, t.from), min(now, t.to)
	if from >= now {
		return
	}
	// The sums are integrals: amounts times seconds. Extremes are taken of the amounts themselves.
	seconds := (now - from).Seconds()
	t.add(seconds, s)
	// Expectations may be about one group; all else is about all clients.
	asked := groupTotals{s.wants, s.useful}
	if t.group >= 0 {
		asked = s.groups[t.group]
	}
	t.wanted += asked.wants * seconds
	t.satisfied += asked.useful * seconds
	t.lowest = min(t.lowest, ratio(s.leased, s.possible()))
	t.peak = max(t.peak, ratio(s.leased, s.capacity))
	// Use without a lease is added here alone: the server cannot prevent it.
	t.safePeak = max(t.safePeak, ratio(s.leased+s.safe, s.capacity))
	t.over.addInterval(from, now, s.isOver(), s.confirmed-s.capacity)
	t.brief.addInterval(from, now, s.isAbove() && !s.isOver(), s.leased-s.capacity)
	if s.leased > 0 {
		t.firstLease = min(t.firstLease, from)
	}
}

// noteUsage notes that a client may use another amount, or wants another.
func (m *measurement) noteUsage(c *simClient, u clientUsage) {
	if u == c.usage {
		return
	}
	// The time up to now belongs to the state of before.
	m.advanceTo(c.w.now)
	before := c.usage
	c.usage = u
	m.state.wants += u.wants - before.wants
	m.state.leased += u.leased - before.leased
	m.state.confirmed += u.confirmed - before.confirmed
	m.state.safe += u.safe - before.safe
	m.state.useful += u.useful() - before.useful()
	m.state.groups[c.group.position].replaceUsage(before, u)
	// Wants alone do not change what the servers above have given.
	if u.leased == before.leased {
		return
	}
	// All servers above the client, except the root, have a parent that may have given them less.
	for n := c.node; n.parent != nil; n = n.parent {
		n.shortage.advanceTo(c.w.now)
		n.shortage.used += u.leased - before.leased
	}
}

// takeSample looks at the run at regular intervals, as doorman's own simulation does. It also computes the
// sums again, so that rounding errors do not accumulate.
func (w *world) takeSample() {
	m := w.measure
	m.advanceTo(w.now)
	// The groups' slice is reused, and so cleared before the clients are added up.
	fresh := runState{capacity: m.state.capacity, groups: m.state.groups}
	clear(fresh.groups)
	for _, c := range w.clients {
		fresh.wants += c.usage.wants
		fresh.leased += c.usage.leased
		fresh.confirmed += c.usage.confirmed
		fresh.safe += c.usage.safe
		fresh.useful += c.usage.useful()
		fresh.groups[c.group.position].replaceUsage(clientUsage{}, c.usage)
	}
	m.state = fresh
	// What happens before the measuring starts is left out, as in all other statistics.
	if w.now >= m.samplesFrom {
		m.samples++
		if m.state.isAbove() {
			m.samplesOver++
		}
	}
	w.scheduleAfter(w.scenario.sampleEvery, w.takeSample)
}

// noteCapacity notes another capacity.
func (m *measurement) noteCapacity(now time.Duration, to float64) {
	m.advanceTo(now)
	m.state.capacity = to
}

// zeroGrant notes a grant of nothing to a client that wants something.
func (m *measurement) zeroGrant(now time.Duration) {
	for _, meter := range m.meters {
		if now >= meter.from && now < meter.to {
			meter.zeroGrants++
		}
	}
}

// noteEvent records an event, and how long it took to recover from the one before.
func (m *measurement) noteEvent(e RecordedEvent) {
	m.advanceTo(e.At)
	m.settleLastEvent()
	m.events = append(m.events, e)
}

// settleLastEvent records how long it took to recover from the last event, up to now.
func (m *measurement) settleLastEvent() {
	last := &m.events[len(m.events)-1]
	last.Settled = max(0, m.lastBad-last.At)
	// Still bad at this instant: the run has not recovered when the next event comes.
	last.Open = m.lastBad == m.now && m.now > last.At
	for _, meter := range m.meters {
		if last.At >= meter.from && last.At < meter.to {
			meter.settled = max(meter.settled, last.Settled)
		}
	}
}

// seriesBins is the number of bins of a run for the picture: about one for each pixel.
const seriesBins = 900

// A timeSeries is the run in bins of equal width.
type timeSeries struct {
	width time.Duration
	bins  []seriesBin
}

// A seriesBin holds sums and extremes.
type seriesBin struct {
	amounts
	seconds float64
	most    float64 // leased at any instant
	over    bool
}

// amounts are sums of amounts times seconds, of all clients.
type amounts struct {
	capacity, wants, leased, safe float64
	possible, given, useful       float64 // to be handed out, what of it was, and what of that was wanted
}

func (a *amounts) add(seconds float64, s *runState) {
	possible := s.possible()
	a.capacity += s.capacity * seconds
	a.wants += s.wants * seconds
	a.leased += s.leased * seconds
	a.safe += s.safe * seconds
	a.possible += possible * seconds
	a.given += min(s.leased, possible) * seconds
	a.useful += min(s.useful, possible) * seconds
}

func newSeries(duration time.Duration) *timeSeries {
	return &timeSeries{
		width: max(1, (duration+seriesBins-1)/seriesBins),
		bins:  make([]seriesBin, seriesBins),
	}
}

// addInterval spreads an interval over the bins it touches.
func (s *timeSeries) addInterval(from, to time.Duration, st *runState) {
	for from < to {
		i := min(int(from/s.width), len(s.bins)-1)
		// The part of the interval that lies in this bin.
		end := min(to, time.Duration(i+1)*s.width)
		// The widths are rounded up, so the last bin takes all that is left.
		if i == len(s.bins)-1 {
			end = to
		}
		b, seconds := &s.bins[i], (end - from).Seconds()
		b.add(seconds, st)
		b.seconds += seconds
		b.most = max(b.most, st.leased)
		b.over = b.over || st.isAbove()
		from = end
	}
}

// maxOvers is how many excesses are kept with time and size; all are counted.
const maxOvers = 1000

// An excess records the times in which more is used than there is.
type excess struct {
	count int
	time  time.Duration
	most  float64
	list  []Over
	open  bool
}

// addInterval counts an interval in which nothing changed. Intervals that follow each other make one excess.
func (e *excess) addInterval(from, to time.Duration, over bool, by float64) {
	if !over {
		e.open = false
		return
	}
	// Only the first excesses are kept with their times; all are counted.
	if !e.open {
		e.count++
		e.open = true
		if len(e.list) < maxOvers {
			e.list = append(e.list, Over{At: from})
		}
	}
	// The size at each instant counts for the extreme, the length for the sum.
	e.time += to - from
	e.most = max(e.most, by)
	// Only the excess that is still open can grow, and it is the last of the list if the list has not been
	// full.
	if e.count == len(e.list) {
		last := &e.list[e.count-1]
		last.For += to - from
		last.Most = max(last.Most, by)
	}
}

// A shortage is a server whose clients hold more than its parent gives it: the parent took some back, and the
// clients do not know yet.
type shortage struct {
	excess
	used  float64 // by clients anywhere below
	given float64 // by the parent
	until time.Duration
	last  time.Duration
}

// advanceTo counts the time since the last change.
func (s *shortage) advanceTo(now time.Duration) {
	// The parent's lease may run out within the interval. Up to then its amount counts, and nothing after it.
	if middle := min(max(s.until, s.last), now); middle > s.last {
		s.addPart(middle, s.given)
	}
	if now > s.last {
		s.addPart(now, 0)
	}
}

func (s *shortage) addPart(to time.Duration, given float64) {
	// Rounding must not count as an excess.
	by := s.used - given
	s.addInterval(s.last, to, by > tolerance*max(1, given, s.used), by)
	s.last = to
}

// noteSupply notes what a parent gave to the server.
func (n *serverNode) noteSupply(now time.Duration, given float64, until time.Duration) {
	n.shortage.advanceTo(now)
	n.shortage.given, n.shortage.until = given, until
}
