package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
)

// leastPromise is the least that a reservation takes in a form.
const leastPromise = 11

// code leaves out the zone of each calendar, which is that of all of them, and whether there is a
// frontier, which follows from the promises.
func (m *more) code(c *codec, first meter) {
	own := m.meters != nil
	c.bool(&own)
	if c.form > 1 {
		c.uint64(&m.generation)
		c.uint64(&m.from)
		c.uint64(&m.number)
	}
	limits := m.list()
	m.codeLimits(c, &limits, own)
	if own {
		m.codeMeters(c, first, limits, &m.meters)
		m.codeSince(c)
	} else if c.reading {
		m.limits = limits
	}
	n := c.items(len(m.promises), leastPromise)
	if n > maxPromises || n == 0 && !own && m.generation == 0 && m.number == 0 {
		c.fail("%d reservations ahead, want at most %d, and with one limit some", n, maxPromises)
		return
	}
	if c.reading && n > 0 {
		m.promises = make([]promise, n)
	}
	last := int64(0)
	for i := range m.promises {
		m.promises[i].code(c)
		if c.reading && c.form == 1 {
			m.promises[i].number = uint64(i) + 1 // less than any that is made of the time
		}
		if m.promises[i].at < last {
			c.fail("reservations out of order")
		}
		last = m.promises[i].at
		if c.reading {
			m.keys += m.promises[i].keyWeight()
		}
	}
	l := limiter{more: m}
	if n > 0 && !l.scheduled(first) {
		m.codeMeters(c, first, limits, &m.frontier)
	}
}

func (m *more) codeLimits(c *codec, limits *[]gatehouse.Limit, own bool) {
	n := c.items(len(*limits), 3)
	unknown := n == 0 && !own && m.generation != 0 // none was given since the last reset
	if n == 0 && !unknown || n > gatehouse.MaxLimits || n > 1 && !own {
		c.fail("%d limits, want 1 to %d", n, gatehouse.MaxLimits)
		return
	}
	if c.reading && n > 0 {
		*limits = make([]gatehouse.Limit, n)
	}
	for i := range *limits {
		limit := &(*limits)[i]
		c.size(&limit.Size)
		c.byte((*byte)(&limit.Calendar), byte(gatehouse.Month))
		c.duration(&limit.Interval)
		if !own && limit.Calendar != gatehouse.NoCalendar {
			c.fail("one window of the calendar without a meter of its own")
		}
	}
	burst := m.burst - ofSize
	c.upTo(&burst, gatehouse.MaxSize-ofSize)
	if c.reading {
		m.burst = burst + ofSize
	}
	c.duration(&m.guard)
	c.byte((*byte)(&m.mode), byte(gatehouse.ModeClassic))
	c.string(&m.zone)
}

// codeMeters codes a meter for each of the limits.
func (m *more) codeMeters(c *codec, first meter, limits []gatehouse.Limit, meters *[]meter) {
	var location *time.Location
	if c.reading {
		var err error
		location, err = zone.Load(m.zone)
		if err != nil {
			c.fail("%w", err)
		}
		*meters = make([]meter, len(limits))
	}
	for i, limit := range limits {
		switch {
		case !c.reading:
		case limit.Calendar != gatehouse.NoCalendar:
			(*meters)[i] = &fixedWindow{calendar: &calendar{limit.Calendar, location}}
		default:
			(*meters)[i] = first.clone()
		}
		c.meter((*meters)[i])
		if (*meters)[i].length() == 0 {
			c.fail("limit %d without an interval", i)
		}
	}
}

// codeSince codes in which generations the meters began, of which the first form knew nothing.
func (m *more) codeSince(c *codec) {
	if c.reading {
		m.since = make([]uint64, len(m.meters))
	}
	for i := range m.since {
		if c.form > 1 {
			c.uint64(&m.since[i])
		}
	}
}
