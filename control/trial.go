package control

import "slices"

// copyForTrial returns the step on a copy of its limiter, for as long as that is not changed itself.
func (l *limiterStep) copyForTrial() limiterStep {
	// All that a trial may write to is copied; large logs only when it does.
	c := *l.limiterCore
	if c.waits != nil {
		c.waits = new(*c.waits)
	}
	if l.extra != nil {
		m := *l.extra
		m.reservations, m.chunks = slices.Clone(m.reservations), slices.Clone(m.chunks)
		if m.meterSince != nil {
			m.meterSince = new(*m.meterSince)
		}
		m.meters, m.projected = copyMeters(m.meters, borrowMeter), copyMeters(m.projected, borrowMeter)
		if m.reports != nil {
			m.reports = new(*m.reports)
			m.reports.adopted = slices.Clone(m.reports.adopted)
		}
		c.extra = &m
	}
	trial := *l
	trial.limiterCore, trial.first = &c, borrowMeter(l.first)
	return trial
}

func copyMeters(meters []limitMeter, one func(limitMeter) limitMeter) []limitMeter {
	var copies []limitMeter
	for _, m := range meters {
		copies = append(copies, one(m))
	}
	return copies
}

// borrowMeter returns a copy of a meter to try something on. Large meters are copied when the copy is
// written to: until then the meter itself must not be.
func borrowMeter(m limitMeter) limitMeter {
	switch m := m.(type) {
	case *slidingLogMeter:
		c := new(*m)
		c.borrowed = true
		return c
	case *paceMeter:
		c := new(*m)
		c.borrowed = true
		return c
	}
	// All others are small.
	return m.clone()
}
