package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// ticks are the possible distances between two marks of the time axis.
var ticks = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
	10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour,
}

// maxTicks is how many marks fit side by side.
const maxTicks = 13

// axisStep returns a round distance between the marks of an axis: 1, 2 or 5 with zeros.
func axisStep(top float64, count int) float64 {
	raw := top / float64(count)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5} {
		if raw <= f*unit {
			return f * unit
		}
	}
	return 10 * unit
}

// A panel is a part of the picture with an axis of its own. write formats an amount of it.
type panel struct {
	y, high int
	write   func(float64) string
}

// marks returns those of the panel's axis, one at each multiple of by up to the top.
func (p panel) marks(top, by float64) []shape {
	var all []shape
	// Multiples and not sums of the step, so that rounding does not push the last one off.
	for i := 0; float64(i)*by <= top*1.0001; i++ {
		v := float64(i) * by
		// SVG counts downwards, amounts grow upwards.
		all = append(all, shape{Y: float64(p.y+p.high) - v/top*float64(p.high), Name: p.write(v)})
	}
	return all
}

// addEvents shows what happened: a lane for each kind of event, with a bar as long as the event.
func (p *picture) addEvents() {
	events := p.Events[1:] // the first is the start, which needs no mark
	var kinds []string
	for _, e := range events {
		if !slices.Contains(kinds, e.Do) {
			kinds = append(kinds, e.Do)
		}
	}
	slices.Sort(kinds)
	middle := func(lane int) float64 { return float64(laneTop + lane*laneHigh + laneHigh/2) }
	for i, kind := range kinds {
		p.Lanes = append(p.Lanes, shape{Y: middle(i), Name: kind})
	}
	for _, e := range events {
		from, to := p.x(e.At), p.x(min(e.At+e.For, p.Duration))
		title := fmt.Sprintf("%s %s %s", shortTime(e.At), e.Do, e.Where)
		bar := shape{X: from, Y: middle(slices.Index(kinds, e.Do)), Width: to - from, Name: title}
		p.Happened = append(p.Happened, bar)
		// Too many lines would hide the curves. The lanes show the events in any case.
		if len(events) <= manyEvents {
			p.EventLines = append(p.EventLines, from)
		}
	}
	p.TimeY = shareTop + shareHigh
	if len(kinds) > 0 {
		p.TimeY = float64(laneTop + len(kinds)*laneHigh)
	}
	p.Height = int(p.TimeY) + axisHigh
}

// addTimeMarks adds those of the axis of time, below everything.
func (p *picture) addTimeMarks() {
	// The smallest distance whose marks fit side by side.
	by := ticks[len(ticks)-1]
	if i := slices.IndexFunc(ticks, func(t time.Duration) bool { return p.Duration/t <= maxTicks }); i >= 0 {
		by = ticks[i]
	}
	unit, name := timeUnit(by)
	p.TimeUnit = name
	// Marks begin at the start of the run, also when measuring begins later.
	for at := time.Duration(0); at <= p.Duration; at += by {
		text := groupThousands(float64(at) / float64(unit))
		p.TimeMarks = append(p.TimeMarks, shape{X: p.x(at), Name: text})
	}
}

// timeUnit returns the unit in which marks are whole numbers.
func timeUnit(by time.Duration) (unit time.Duration, name string) {
	switch {
	case by >= 24*time.Hour:
		return 24 * time.Hour, "days"
	case by >= time.Hour:
		return time.Hour, "hours"
	case by >= time.Minute:
		return time.Minute, "minutes"
	default:
		return time.Second, "seconds"
	}
}
