package simulate

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed report.svg
var pictureText string

// The places of the panels in the picture, in pixels. The template has the same.
const (
	panelLeft  = 92
	panelRight = 1092
	amountTop  = 92
	amountHigh = 300
	shareTop   = 436
	shareHigh  = 100
	laneTop    = 580 // of the first line of events; 44 below the shares
	laneHigh   = 22
	axisHigh   = 48

	// roomAbove is how far the panel of amounts goes beyond the capacity. Wants above that are cut off,
	// because they would press everything else together.
	roomAbove = 1.6
	// manyEvents are as many lines through the picture as still let it be seen.
	manyEvents = 24
)

// The colours of the areas; the template has the others.
const (
	leasedColour = "#0072b2"
	shareColour  = "#009e73"
	safeColour   = "#9b5fb8"
)

// A picture is what the template draws, with all positions.
type picture struct {
	*RunReport
	Excess string
	Height int

	Legend                  []legendEntry
	AmountMarks, ShareMarks []shape
	Areas                   []area // what is drawn later covers what is drawn before
	Boxes                   []shape
	Wants, Capacity         string // curves
	CutOff                  *cutOff
	Shares                  area
	EventLines              []float64
	Lanes, Happened         []shape
	TimeY                   float64
	TimeMarks               []shape
	TimeUnit                string

	top  float64 // the amount at the upper edge
	safe bool    // something was used without a lease
}

// A shape is something at a place, with a size or a name where it has one.
type shape struct {
	X, Y, Width, Height float64
	Name                string
}

// A legendEntry says what a colour stands for.
type legendEntry struct {
	X                  float64
	Colour, Name, Dash string
}

// An area is a curve and the space below it.
type area struct{ Area, Line, Colour string }

// A cutOff says how much is wanted where that exceeds the panel.
type cutOff struct {
	X, Most float64
	Anchor  string
}

// SVG draws wants, leases and capacity over time, what share of the possible was handed out, and when
// what happened.
func (r *RunReport) SVG() []byte {
	p := &picture{RunReport: r, Excess: "never above the capacity"}
	if n := int(r.Figures["over"]); n > 0 {
		most := 100 * (r.Figures["peak"] - 1)
		p.Excess = fmt.Sprintf("%s above the capacity, by %.1f%% at most", countNoun(n, "time"), most)
	}
	p.findScale()
	p.addLegend()
	p.addCurves()
	p.addCutOff()
	p.addEvents()
	p.addTimeMarks()
	return []byte(r.fillTemplate(pictureText, p))
}

// findScale finds what has to fit into the panel of amounts, and marks both panels.
func (p *picture) findScale() {
	highest, wants := 0.0, 0.0
	for _, b := range p.series.bins {
		if b.seconds > 0 {
			highest = max(highest, b.capacity/b.seconds, b.most, (b.leased+b.safe)/b.seconds)
			p.safe = p.safe || b.safe > 0
			wants = max(wants, b.wants/b.seconds)
		}
	}
	// Wants may be far above what there is: they are shown up to roomAbove.
	p.top = max(min(max(highest, wants)*1.05, highest*roomAbove), 1e-9)
	// A low panel has room for fewer marks.
	p.AmountMarks = panel{amountTop, amountHigh, groupThousands}.marks(p.top, axisStep(p.top, 5))
	percent := func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	p.ShareMarks = panel{shareTop, shareHigh, percent}.marks(1, axisStep(1, 2))
}

// x returns the horizontal position of an instant.
func (p *picture) x(at time.Duration) float64 {
	return panelLeft + float64(at)/float64(p.Duration)*(panelRight-panelLeft)
}

// addLegend says what the colours stand for.
func (p *picture) addLegend() {
	x := panelLeft
	for _, e := range []legendEntry{
		{0, "#333333", "capacity", "6 4"}, {0, "#d98200", "wanted", ""},
		{0, leasedColour, "held by leases", ""}, {0, safeColour, "used without, on top", ""},
		{0, "#c1121f", "above the capacity", ""}, {0, shareColour, "handed out of what could be", ""},
	} {
		// What does not occur in the picture is left out.
		if e.Colour == safeColour && !p.safe {
			continue
		}
		e.X = float64(x)
		p.Legend = append(p.Legend, e)
		// A letter is about 6.5 pixels wide; SVG cannot measure text.
		x += 56 + 13*len(e.Name)/2
	}
}

// countNoun returns "1 server" or "13 servers".
func countNoun(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return groupThousands(float64(n)) + " " + what
}

// addCurves adds what is drawn in the two panels.
func (p *picture) addCurves() {
	amount := func(value func(b *seriesBin) float64) curve {
		mean := func(b *seriesBin) float64 { return value(b) / b.seconds }
		return p.newCurve(amountTop, amountHigh, p.top, mean)
	}
	leased := amount(func(b *seriesBin) float64 { return b.leased })
	if p.safe {
		used := amount(func(b *seriesBin) float64 { return b.leased + b.safe })
		p.Areas = append(p.Areas, used.area(leased, safeColour))
	}
	p.Areas = append(p.Areas, leased.area(leased.baseline(amountTop+amountHigh), leasedColour))
	p.addBoxes()
	p.Wants = amount(func(b *seriesBin) float64 { return b.wants }).svgPath()
	p.Capacity = amount(func(b *seriesBin) float64 { return b.capacity }).svgPath()
	share := func(b *seriesBin) float64 { return ratio(b.given, b.possible) }
	line := p.newCurve(shareTop, shareHigh, 1, share)
	p.Shares = line.area(line.baseline(shareTop+shareHigh), shareColour)
}

// A curve is a line through the bins of the run.
type curve []struct{ x, y float64 }

// newCurve makes a curve in a panel; value returns the height for each bin.
func (p *picture) newCurve(y, high int, top float64, value func(b *seriesBin) float64) curve {
	var c curve
	s := p.series
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
		middle := min(time.Duration(i)*s.width+s.width/2, p.Duration)
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

// area returns the area between the curve and another below it.
func (c curve) area(below curve, colour string) area {
	// There along the curve, and back along the one below.
	back := slices.Clone(below)
	slices.Reverse(back)
	return area{append(slices.Clone(c), back...).svgPath() + "Z", c.svgPath(), colour}
}

// baseline returns a curve along the bottom of a panel.
func (c curve) baseline(y int) curve {
	floor := slices.Clone(c)
	for i := range floor {
		floor[i].y = float64(y)
	}
	return floor
}

// addCutOff says how much is wanted where that exceeds the panel.
func (p *picture) addCutOff() {
	most, at := 0.0, time.Duration(0)
	for i, b := range p.series.bins {
		if v := b.wants / b.seconds; b.seconds > 0 && v > most {
			most, at = v, time.Duration(i)*p.series.width
		}
	}
	// Everything fits, so there is nothing to say.
	if most <= p.top {
		return
	}
	// The text grows towards the middle of the picture, where there is room for it.
	p.CutOff = &cutOff{p.x(at), math.Round(most), "start"}
	if at > p.Duration/2 {
		p.CutOff.Anchor = "end"
	}
}

// addBoxes marks where more was held than there is.
func (p *picture) addBoxes() {
	// Even a short and small excess must be visible, so the marks have a least size.
	width := max(1.5, p.x(p.series.width)-p.x(0))
	for i, b := range p.series.bins {
		if !b.over {
			continue
		}
		// From the capacity line up to the highest amount within the bin.
		high := max(2, (b.most-b.capacity/b.seconds)/p.top*amountHigh)
		base := float64(amountTop+amountHigh) - b.capacity/b.seconds/p.top*amountHigh
		p.Boxes = append(p.Boxes, shape{p.x(time.Duration(i) * p.series.width), base - high, width, high, ""})
	}
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
