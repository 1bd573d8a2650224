package simulate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// An expectation is one figure and what it should be, such as "handed_out from 100s to 300s >= 94%".
type expectation struct {
	text     string
	figure   string
	of       string        // the name of a group of clients
	from, to time.Duration // from -1: where the measuring begins; to 0: the end
	compare  string
	value    float64
}

// A figure is something measured over a part of the run.
type figure struct {
	unit  unit
	value func(m *meter) float64
}

// A unit says how a figure is written.
type unit int

const (
	share  unit = iota // 94%
	times              // 3
	lapses             // 1m30s, kept as seconds
)

// figures are all that can be expected. The report explains them.
var figures = map[string]figure{
	"handed_out":  {share, func(m *meter) float64 { return ratio(m.given, m.possible) }},
	"of_capacity": {share, func(m *meter) float64 { return ratio(m.leased, m.capacity) }},
	"useful":      {share, func(m *meter) float64 { return ratio(m.useful, m.possible) }},
	"satisfied":   {share, func(m *meter) float64 { return ratio(m.satisfied, m.wanted) }},
	"lowest":      {share, func(m *meter) float64 { return m.lowest }},
	"peak":        {share, func(m *meter) float64 { return m.peak }},
	"safe_peak":   {share, func(m *meter) float64 { return m.safePeak }},
	"over":        {times, func(m *meter) float64 { return float64(m.over.count) }},
	"over_time":   {lapses, func(m *meter) float64 { return m.over.time.Seconds() }},
	"brief":       {times, func(m *meter) float64 { return float64(m.brief.count) }},
	"brief_time":  {lapses, func(m *meter) float64 { return m.brief.time.Seconds() }},
	"settled":     {lapses, func(m *meter) float64 { return m.settled.Seconds() }},
	"first_lease": {lapses, func(m *meter) float64 { return m.firstLease.Seconds() }},
	"zero_grants": {times, func(m *meter) float64 { return float64(m.zeroGrants) }},
}

var expectationForm = regexp.MustCompile(
	`^([a-z_]+)(?: of (\S+))?(?: from (\S+))?(?: to (\S+))? (<=|>=|==) (\S+)$`)

func (r *reader) expectation(node *yaml.Node, s *Scenario) {
	var e expectation
	value(r, &e, parseExpectation)(node)
	s.expected = append(s.expected, e)
}

func parseExpectation(text string) (expectation, error) {
	e := expectation{text: text, from: -1}
	part := expectationForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if part == nil {
		return e, fmt.Errorf("%q is no expectation, want one such as handed_out from 100s >= 94%%", text)
	}
	e.figure, e.of, e.compare = part[1], part[2], part[5]
	figure, known := figures[e.figure]
	if !known {
		return e, fmt.Errorf("%q is no figure, want one of %s",
			e.figure, strings.Join(slices.Sorted(maps.Keys(figures)), ", "))
	}
	if e.of != "" && e.figure != "satisfied" {
		return e, fmt.Errorf("%q is of %s, want that for satisfied alone", text, e.of)
	}
	var err error
	for i, to := range []*time.Duration{&e.from, &e.to} {
		if part[3+i] == "" {
			continue
		}
		*to, err = parseTime(part[3+i])
		if err != nil {
			return e, err
		}
	}
	if e.to != 0 && e.to <= max(e.from, 0) {
		return e, fmt.Errorf("%q ends at %v, want that after its beginning", text, e.to)
	}
	e.value, err = figure.unit.parse(part[6])
	return e, err
}

func (u unit) parse(text string) (float64, error) {
	switch u {
	case share:
		return parseShare(text)
	case lapses:
		d, err := parseTime(text)
		return d.Seconds(), err
	default:
		return parseNumber(text)
	}
}

// write is a figure as it is read.
func (u unit) write(value float64) string {
	switch u {
	case share:
		return fmt.Sprintf("%.2f%%", 100*value)
	case lapses:
		return shortTime(time.Duration(value * float64(time.Second)))
	default:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
}

// shortTime is a time as people write it: to the tenth of a second, and 1m40s for 1m40.0s.
func shortTime(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// holds reports whether what was measured is what was expected.
func (e *expectation) holds(measured float64) bool {
	const rounding = 1e-9
	switch e.compare {
	case "<=":
		return measured <= e.value+rounding
	case ">=":
		return measured >= e.value-rounding
	default:
		return measured >= e.value-rounding && measured <= e.value+rounding
	}
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 1
	}
	return part / whole
}
