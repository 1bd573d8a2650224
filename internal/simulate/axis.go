package simulate

import (
	"fmt"
	"html"
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

const (
	maxTicks     = 13 // marks that fit side by side
	manyEvents   = 24 // lines through the picture that still let it be seen
	amountSteps  = 5  // marks of an axis of amounts, about
	labelOffset  = 68 // from the panel to the name of its axis
	numberOffset = 8
)

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

// drawGrid draws the axis of a panel, and the lines behind it. write formats a mark.
func (p *picture) drawGrid(y, high int, top float64, write func(float64) string) {
	// A low panel has room for fewer marks.
	count := amountSteps
	if high < amountHigh {
		count = 2
	}
	by := axisStep(top, count)
	// Marks are multiples and not sums of the step, so that rounding does not push the last one off.
	for i := 0; ; i++ {
		v := float64(i) * by
		if v > top*1.0001 {
			break
		}
		// SVG counts downwards, amounts grow upwards.
		at := float64(y+high) - v/top*float64(high)
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>`,
			svgLeft, at, svgWidth-svgRight, at, gridColour)
		p.printf(`<text x="%d" y="%.1f" text-anchor="end" fill="%s">%s</text>`,
			svgLeft-numberOffset, at+4, quietColour, write(v))
	}
}

// drawAxisLabel writes the name of an axis, along it.
func (p *picture) drawAxisLabel(y, high int, name string) {
	x, middle := svgLeft-labelOffset, y+high/2
	p.printf(`<text x="%d" y="%d" text-anchor="middle" fill="%s" transform="rotate(-90 %d %d)">%s</text>`,
		x, middle, quietColour, x, middle, name)
}

// drawEventMarks draws lines through the picture where something happened, if they are few.
func (p *picture) drawEventMarks(y int) {
	events := p.report.Events[1:]
	// Too many lines would hide the curves. The lanes show the events in any case.
	if len(events) > manyEvents {
		return
	}
	bottom := y + amountHigh + panelGap + shareHigh
	for _, e := range events {
		p.printf(`<path d="M%.1f %dV%d" stroke="%s" stroke-opacity="0.45" stroke-dasharray="2 4"/>`,
			p.x(e.At), y, bottom, quietColour)
	}
}

// drawLanes shows what happened: a lane for each kind of event, with a bar as long as the event.
func (p *picture) drawLanes(y int) {
	p.printf(`<text x="%d" y="%d" fill="%s">what happened</text>`, svgLeft, y-12, quietColour)
	for i, kind := range p.kinds {
		middle := y + i*laneHigh + laneHigh/2
		p.printf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s"/>`,
			svgLeft, middle, svgWidth-svgRight, middle, gridColour)
		p.printf(`<text x="%d" y="%d" text-anchor="end">%s</text>`, svgLeft-numberOffset, middle+4, kind)
	}
	// The first event is the start, which needs no mark.
	for _, e := range p.report.Events[1:] {
		i := slices.Index(p.kinds, e.Do)
		middle := float64(y + i*laneHigh + laneHigh/2)
		from, to := p.x(e.At), p.x(min(e.At+e.For, p.report.Duration))
		title := fmt.Sprintf("%s %s %s", shortTime(e.At), e.Do, e.Where)
		p.printf(`<g fill="%s"><title>%s</title>`, eventColour, html.EscapeString(title))
		// An event without a duration is a dot alone.
		if to > from {
			p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="6" rx="3" fill-opacity="0.4"/>`,
				from, middle-3, to-from)
		}
		p.printf(`<circle cx="%.1f" cy="%.1f" r="4"/></g>`, from, middle)
	}
}

// drawTimeAxis draws the axis of time, below everything.
func (p *picture) drawTimeAxis(y int) {
	duration := p.report.Duration
	// The smallest distance whose marks fit side by side.
	by := ticks[len(ticks)-1]
	if i := slices.IndexFunc(ticks, func(t time.Duration) bool { return duration/t <= maxTicks }); i >= 0 {
		by = ticks[i]
	}
	unit, name := timeUnit(by)
	p.printf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s"/>`,
		svgLeft, y, svgWidth-svgRight, y, quietColour)
	// Marks begin at the start of the run, also when measuring begins later.
	for at := time.Duration(0); at <= duration; at += by {
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`,
			p.x(at), y, p.x(at), y+5, quietColour)
		p.printf(`<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%s</text>`,
			p.x(at), y+20, quietColour, groupThousands(float64(at)/float64(unit)))
	}
	p.printf(`<text x="%d" y="%d" text-anchor="middle" fill="%s">virtual time, %s</text>`,
		(svgLeft+svgWidth-svgRight)/2, y+38, quietColour, name)
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
