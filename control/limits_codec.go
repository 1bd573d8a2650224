package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// leastReservation is the least that a reservation takes in a form.
const leastReservation = 11

// codeFields leaves out the zone of each calendar, which is that of all of them, and whether there is a
// projection, which follows from the reservations.
func (m *limiterExtra) codeFields(c *stateCodec, first limitMeter) {
	own := m.meters != nil
	c.codeBool(&own)
	// Version 1 knew no generations and no numbers.
	if c.version > 1 {
		c.codeUint64(&m.generation)
		c.codeUint64(&m.validFrom)
		c.codeUint64(&m.lastNumber)
	}
	if c.version > 4 {
		codeClosing(c, &m.closed)
	}
	limits := m.codeRule(c, own)
	if own {
		m.codeMeters(c, first, limits, &m.meters)
		m.codeSince(c)
	}
	codeSlice(c, &m.reservations, leastReservation)
	n := len(m.reservations)
	if n > maxReservations || n == 0 && !own && m.generation == 0 && m.lastNumber == 0 && m.closed == nil {
		c.failDecoding("%d reservations ahead, want at most %d, and with one limit some", n, maxReservations)
		return
	}
	last := int64(0)
	for i := range m.reservations {
		m.reservations[i].codeFields(c)
		if c.reading && c.version == 1 {
			m.reservations[i].number = uint64(i) + 1 // less than any that is made of the time
		}
		if m.reservations[i].at < last {
			c.failDecoding("reservations out of order")
		}
		last = m.reservations[i].at
		if c.reading {
			m.holderBytes += m.reservations[i].holderWeight()
		}
	}
	// Whether there is a projection follows from the meters, so it is not stored.
	l := limiterStep{limiterCore: &limiterCore{extra: m}, first: first}
	if n > 0 && !l.allScheduling() {
		m.codeMeters(c, first, limits, &m.projected)
	}
}

// codeRule codes the rule in force, and returns its limits.
func (m *limiterExtra) codeRule(c *stateCodec, own bool) (limits []gatehouse.Limit) {
	r := &m.rule
	switch {
	case m.meters != nil:
		for _, meter := range m.meters {
			limits = append(limits, meter.currentLimit())
		}
	case m.knowsRule():
		limits = []gatehouse.Limit{limitAt(r, 0)}
	}
	n := c.codeLength(len(limits), 3)
	// After a reset no command may have named a limit yet.
	// Nor does one that is only closed know more than its meter.
	unknown := n == 0 && !own && (m.generation != 0 || m.closed != nil)
	if n == 0 && !unknown || n > gatehouse.MaxLimits || n > 1 && !own {
		c.failDecoding("%d limits, want 1 to %d", n, gatehouse.MaxLimits)
		return nil
	}
	if c.reading && n > 0 {
		limits = make([]gatehouse.Limit, n)
	}
	for i := range limits {
		limit := &limits[i]
		c.codeSize(&limit.Size)
		c.codeByte((*byte)(&limit.Calendar), byte(gatehouse.Month))
		c.codeDuration(&limit.Interval)
		if !own && limit.Calendar != gatehouse.NoCalendar {
			c.failDecoding("one window of the calendar without a meter of its own")
		}
	}
	burst := r.Burst + 1
	if m.hasList() {
		burst = 0 // in a list there are none
	}
	c.codeUpTo(&burst, gatehouse.MaxSize+1)
	c.codeDuration(&r.Guard)
	c.codeByte((*byte)(&r.Mode), byte(gatehouse.ModeClassic))
	c.codeString(&r.Zone)
	switch {
	case !c.reading || n == 0:
	case burst != 0:
		r.Size, r.Interval, r.Calendar = limits[0].Size, limits[0].Interval, limits[0].Calendar
		r.Burst = burst - 1
	case !own:
		r.Limits = gatehouse.NewLimitList(limits...)
	}
	// Encode writes no such limit, and it would be taken for none.
	if c.reading && n > 0 && (burst != 0 || !own) && !r.HasLimit() {
		c.failDecoding("limit without an interval")
	}
	return limits
}

// codeMeters codes a meter for each of the limits.
func (m *limiterExtra) codeMeters(
	c *stateCodec, first limitMeter, limits []gatehouse.Limit, meters *[]limitMeter,
) {
	var location *time.Location
	if c.reading {
		var err error
		location, err = zone.Load(m.rule.Zone)
		if err != nil {
			c.failDecoding("%w", err)
		}
		*meters = make([]limitMeter, len(limits))
	}
	for i, limit := range limits {
		// When reading, each meter is made with the type that its limit asks for, and filled in below.
		switch {
		case !c.reading:
		case limit.Calendar != gatehouse.NoCalendar:
			(*meters)[i] = &fixedWindowMeter{calendar: &zonedCalendar{limit.Calendar, location}}
		default:
			(*meters)[i] = first.clone()
		}
		c.codeMeter((*meters)[i])
		if (*meters)[i].windowLength() == 0 {
			c.failDecoding("limit %d without an interval", i)
		}
	}
}

// codeSince codes in which generations the meters began, of which the first form knew nothing.
func (m *limiterExtra) codeSince(c *stateCodec) {
	if c.reading {
		m.meterSince = new(generations)
	}
	for i := range m.meters {
		if c.version > 1 {
			c.codeUint64(&m.meterSince[i])
		}
	}
}

// codeFields reads what there is besides one limit first: the meter of that is still unused then.
func (l *limiterCore) codeFields(c *stateCodec, first limitMeter) {
	// Only a debt needs version 3, a grant 4, and a report of a third party 5: servers that do not know them
	// read all else.
	enough := byte(2)
	switch {
	case l.reports() != nil:
		enough = 5
	case l.extra != nil && l.extra.shares != nil:
		enough = 4
	case l.totalDebt() > 0:
		enough = 3
	}
	if l.extra.closing() != nil {
		enough = 5 // which they must not take for an open one
	}
	c.codeEarlierVersion(enough, 5)
	l.commandCounts.codeFields(c)
	several := l.created != 0 && l.extra.needsEncoding()
	c.codeBool(&several)
	if several && c.reading {
		l.extra = new(limiterExtra)
	}
	if several {
		l.extra.codeFields(c, first)
	}
	c.codeMeter(first)
	if c.version > 1 {
		l.codeChunks(c, first)
	}
	// The fourth format is only of limiters with shares; the fifth says whether there are any.
	shared := c.version == 4 || l.extra != nil && l.extra.shares != nil
	if c.version > 4 {
		c.codeBool(&shared)
	}
	if c.version > 3 && shared {
		l.codeShares(c)
	}
	if c.version > 4 {
		l.codeReports(c)
	}
	// Encode writes neither of these. They are looked for last, when all that they compare has been read.
	if several && l.created == 0 {
		c.failDecoding("several limits or reservations, but never used")
	}
	if l.created != 0 && (l.extra == nil || l.extra.meters == nil) && first.windowLength() == 0 {
		c.failDecoding("limit without an interval")
	}
}

// needsEncoding reports whether there is anything besides chunks, shares and reports that a stored form has
// to tell. m may be nil.
func (m *limiterExtra) needsEncoding() bool {
	return m != nil && (m.meters != nil || m.reservations != nil || m.generation != 0 || m.lastNumber != 0 ||
		m.closed != nil)
}
