package simulate

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The picture's measures, in pixels.
const (
	svgWidth   = 1120
	svgLeft    = 92
	svgRight   = 28
	svgTop     = 92
	amountHigh = 300 // of the panel of amounts
	shareHigh  = 100 // of the panel of shares
	laneHigh   = 22  // of a line of events
	panelGap   = 44
	axisHigh   = 48

	// roomAbove is how far the panel of amounts goes beyond the capacity. Wants above that are cut off,
	// because they would press everything else together.
	roomAbove = 1.6
)

// The colours can be told apart without seeing red or green.
const (
	wantsColour    = "#d98200"
	leasedColour   = "#0072b2"
	capacityColour = "#333333"
	overColour     = "#c1121f"
	shareColour    = "#009e73"
	safeColour     = "#9b5fb8"
	eventColour    = "#374151"
	quietColour    = "#6b7280"
	gridColour     = "#e5e7eb"
)

// A picture is an SVG that is being drawn.
type picture struct {
	strings.Builder
	report *RunReport
	top    float64 // the amount at the upper edge
	kinds  []string
	height int
	safe   bool // something was used without a lease
}

// SVG draws wants, leases and capacity over time, what share of the possible was handed out, and when
// what happened.
func (r *RunReport) SVG() []byte {
	p := &picture{report: r}
	p.findScale()
	// The picture is as high as its lanes need, so the scale must be known first.
	lanes := len(p.kinds) * laneHigh
	// Without events there are no lanes, and no gap for them.
	p.height = svgTop + amountHigh + panelGap + shareHigh + axisHigh
	if lanes > 0 {
		p.height += lanes + panelGap
	}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" fill="%s" role="img">`,
		svgWidth, p.height, svgWidth, p.height, capacityColour)
	p.printf(`<title>%s</title>`, html.EscapeString(r.Title))
	p.printf(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	p.drawHeader()
	p.drawAmounts(svgTop)
	y := svgTop + amountHigh + panelGap
	p.drawShares(y)
	y += shareHigh
	if lanes > 0 {
		y += panelGap
		p.drawLanes(y)
		y += lanes
	}
	p.drawTimeAxis(y)
	p.printf("</svg>")
	return []byte(p.String())
}

func (p *picture) printf(format string, args ...any) {
	p.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// findScale finds what has to fit into the picture.
func (p *picture) findScale() {
	highest, wants := 0.0, 0.0
	for _, b := range p.report.series.bins {
		if b.seconds > 0 {
			highest = max(highest, b.capacity/b.seconds, b.most, (b.leased+b.safe)/b.seconds)
			p.safe = p.safe || b.safe > 0
			wants = max(wants, b.wants/b.seconds)
		}
	}
	// Wants may be far above what there is: they are shown up to roomAbove.
	p.top = max(min(max(highest, wants)*1.05, highest*roomAbove), 1e-9)
	for _, e := range p.report.Events[1:] {
		if !slices.Contains(p.kinds, e.Do) {
			p.kinds = append(p.kinds, e.Do)
		}
	}
	slices.Sort(p.kinds)
}

// x returns the horizontal position of an instant.
func (p *picture) x(at time.Duration) float64 {
	return svgLeft + float64(at)/float64(p.report.Duration)*(svgWidth-svgLeft-svgRight)
}

// drawHeader writes the title, the main statistics and the legend.
func (p *picture) drawHeader() {
	r := p.report
	p.printf(`<text x="%d" y="28" font-size="17" font-weight="600">%s</text>`,
		svgLeft, html.EscapeString(r.Scenario+": "+r.Title))
	over := "never above the capacity"
	if n := int(r.Figures["over"]); n > 0 {
		most := 100 * (r.Figures["peak"] - 1)
		over = fmt.Sprintf("%s above the capacity, by %.1f%% at most", countNoun(n, "time"), most)
	}
	p.printf(`<text x="%d" y="48" fill="%s">%s handed out after %s, %s; %s, %s, seed %d</text>`,
		svgLeft, quietColour, unitShare.formatValue(r.Figures["handed_out"]), shortTime(r.From), over,
		countNoun(r.Servers, "server"), countNoun(r.Clients, "client"), r.Seed)
	p.drawLegend()
}

// drawLegend says what the colours stand for.
func (p *picture) drawLegend() {
	x := svgLeft
	for _, entry := range []struct{ colour, name, dash string }{
		{capacityColour, "capacity", "6 4"}, {wantsColour, "wanted", ""},
		{leasedColour, "held by leases", ""}, {safeColour, "used without, on top", ""},
		{overColour, "above the capacity", ""}, {shareColour, "handed out of what could be", ""},
	} {
		// What does not occur in the picture is left out.
		if entry.colour == safeColour && !p.safe {
			continue
		}
		p.printf(`<line x1="%d" y1="68" x2="%d" y2="68" stroke="%s" stroke-width="3" stroke-dasharray="%s"/>`,
			x, x+24, entry.colour, entry.dash)
		p.printf(`<text x="%d" y="72">%s</text>`, x+30, entry.name)
		// A letter is about 6.5 pixels wide; SVG cannot measure text.
		x += 56 + 13*len(entry.name)/2
	}
}

// countNoun returns "1 server" or "13 servers".
func countNoun(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return groupThousands(float64(n)) + " " + what
}

// A curve is a line through the bins of the run.
type curve []struct{ x, y float64 }

// newCurve makes a curve in a panel; value returns the height for each bin.
func (p *picture) newCurve(y, high int, top float64, value func(b *seriesBin) float64) curve {
	var c curve
	s := p.report.series
	for i := range s.bins {
		b := &s.bins[i]
		// A run shorter than the picture is wide leaves bins empty.
		if b.seconds == 0 {
			continue
		}
		// A bit above the top is allowed, so that the line leaves the panel visibly; the clip path hides the
		// rest.
		v := min(max(value(b)/top, 0), 1.02)
		// The value is drawn in the middle of its bin, the last of which may end after the run.
		middle := min(time.Duration(i)*s.width+s.width/2, p.report.Duration)
		c = append(c, struct{ x, y float64 }{p.x(middle), float64(y+high) - v*float64(high)})
	}
	return c
}

// svgPath returns the curve as SVG path data.
func (c curve) svgPath() string {
	var d strings.Builder
	for i, at := range c {
		// Inner points of a straight piece are left out, to keep the file small.
		if i > 0 && i+1 < len(c) && looksFlat(c[i-1].y, at.y) && looksFlat(at.y, c[i+1].y) {
			continue // in the middle of a straight piece
		}
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(d.Len(), 1)], at.x, at.y)
	}
	return d.String()
}

// looksFlat reports whether two heights look the same.
func looksFlat(a, b float64) bool { return math.Abs(a-b) < 0.05 }

// areaPath returns the area between the curve and another below it.
func (c curve) areaPath(below curve) string {
	// There along the curve, and back along the one below.
	back := slices.Clone(below)
	slices.Reverse(back)
	return append(slices.Clone(c), back...).svgPath() + "Z"
}

// baseline returns a curve along the bottom of a panel.
func (c curve) baseline(y int) curve {
	floor := slices.Clone(c)
	for i := range floor {
		floor[i].y = float64(y)
	}
	return floor
}

// drawCurve draws a curve, and colours the area between it and another.
func (p *picture) drawCurve(c, below curve, colour string) {
	p.printf(`<path d="%s" fill="%s" fill-opacity="0.16" stroke="none"/>`, c.areaPath(below), colour)
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.7"/>`, c.svgPath(), colour)
}

// drawAmounts draws the panel of capacity, wants and leases.
func (p *picture) drawAmounts(y int) {
	p.drawGrid(y, amountHigh, p.top, groupThousands)
	p.drawAxisLabel(y, amountHigh, "amount, in units of capacity")
	p.drawEventMarks(y)
	p.printf(`<clipPath id="amounts"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`,
		svgLeft, y, svgWidth-svgLeft-svgRight, amountHigh)
	p.printf(`<g clip-path="url(#amounts)" fill="none" stroke-linejoin="round">`)
	amount := func(value func(b *seriesBin) float64) curve {
		return p.newCurve(y, amountHigh, p.top, func(b *seriesBin) float64 { return value(b) / b.seconds })
	}
	// What is drawn later covers what is drawn before: areas first, then the excess, lines last.
	leased := amount(func(b *seriesBin) float64 { return b.leased })
	if p.safe {
		p.drawCurve(amount(func(b *seriesBin) float64 { return b.leased + b.safe }), leased, safeColour)
	}
	p.drawCurve(leased, leased.baseline(y+amountHigh), leasedColour)
	p.drawOvers(y)
	wants := amount(func(b *seriesBin) float64 { return b.wants })
	p.printf(`<path d="%s" stroke="%s" stroke-width="1.7"/>`, wants.svgPath(), wantsColour)
	capacity := amount(func(b *seriesBin) float64 { return b.capacity })
	p.printf(`<path d="%s" stroke="%s" stroke-width="1.6" stroke-dasharray="6 4"/>`,
		capacity.svgPath(), capacityColour)
	p.printf(`</g>`)
	p.drawCutOff(y)
}

// drawCutOff writes how much is wanted where that exceeds the panel.
func (p *picture) drawCutOff(y int) {
	most, at := 0.0, time.Duration(0)
	for i, b := range p.report.series.bins {
		if v := b.wants / b.seconds; b.seconds > 0 && v > most {
			most, at = v, time.Duration(i)*p.report.series.width
		}
	}
	// Everything fits, so there is nothing to say.
	if most <= p.top {
		return
	}
	// The text grows towards the middle of the picture, where there is room for it.
	anchor := "start"
	if at > p.report.Duration/2 {
		anchor = "end"
	}
	p.printf(`<text x="%.1f" y="%d" text-anchor="%s" fill="%s">wanted: up to %s ↑</text>`,
		p.x(at), y-6, anchor, wantsColour, groupThousands(math.Round(most)))
}

// drawOvers marks where more was held than there is.
func (p *picture) drawOvers(y int) {
	s := p.report.series
	// Even a short and small excess must be visible, so the marks have a least size.
	width := max(1.5, p.x(s.width)-p.x(0))
	for i, b := range s.bins {
		if !b.over {
			continue
		}
		// From the capacity line up to the highest amount within the bin.
		high := (b.most - b.capacity/b.seconds) / p.top * amountHigh
		base := float64(y+amountHigh) - b.capacity/b.seconds/p.top*amountHigh
		p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`,
			p.x(time.Duration(i)*s.width), base-max(2, high), width, max(2, high), overColour)
	}
}

// drawShares draws the panel of what was handed out of what could be.
func (p *picture) drawShares(y int) {
	p.drawGrid(y, shareHigh, 1, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) })
	p.drawAxisLabel(y, shareHigh, "handed out")
	line := p.newCurve(y, shareHigh, 1, func(b *seriesBin) float64 { return ratio(b.handedOut, b.possible) })
	p.drawCurve(line, line.baseline(y+shareHigh), shareColour)
}

// groupThousands writes a number with commas between thousands, and no more digits than it needs.
func groupThousands(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}
