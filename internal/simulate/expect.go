package simulate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// An expectation is a statistic and what it should be, such as "handed_out from 100s to 300s >= 94%".
type expectation struct {
	text      string
	statistic string
	of        string        // the name of a group of clients
	from, to  time.Duration // from -1: where the measuring begins; to 0: the end
	compare   string
	value     float64
}

// A statistic is a number measured over a part of the run.
type statistic struct {
	unit  valueUnit
	value func(m *intervalMeter) float64
}

// A valueUnit says how a statistic is written.
type valueUnit int

const (
	unitShare   valueUnit = iota // 94%
	unitCount                    // 3
	unitSeconds                  // 1m30s, kept as seconds
)

// statistics are all that can be expected. The report explains them.
var statistics = map[string]statistic{
	"handed_out":  {unitShare, func(m *intervalMeter) float64 { return ratio(m.given, m.possible) }},
	"of_capacity": {unitShare, func(m *intervalMeter) float64 { return ratio(m.leased, m.capacity) }},
	"useful":      {unitShare, func(m *intervalMeter) float64 { return ratio(m.useful, m.possible) }},
	"satisfied":   {unitShare, func(m *intervalMeter) float64 { return ratio(m.satisfied, m.wanted) }},
	"lowest":      {unitShare, func(m *intervalMeter) float64 { return m.lowest }},
	"peak":        {unitShare, func(m *intervalMeter) float64 { return m.peak }},
	"safe_peak":   {unitShare, func(m *intervalMeter) float64 { return m.safePeak }},
	"over":        {unitCount, func(m *intervalMeter) float64 { return float64(m.over.count) }},
	"over_time":   {unitSeconds, func(m *intervalMeter) float64 { return m.over.time.Seconds() }},
	"brief":       {unitCount, func(m *intervalMeter) float64 { return float64(m.brief.count) }},
	"brief_time":  {unitSeconds, func(m *intervalMeter) float64 { return m.brief.time.Seconds() }},
	"settled":     {unitSeconds, func(m *intervalMeter) float64 { return m.settled.Seconds() }},
	"first_lease": {unitSeconds, func(m *intervalMeter) float64 { return m.firstLease.Seconds() }},
	"zero_grants": {unitCount, func(m *intervalMeter) float64 { return float64(m.zeroGrants) }},
}

var expectationForm = regexp.MustCompile(
	`^([a-z_]+)(?: of (\S+))?(?: from (\S+))?(?: to (\S+))? (<=|>=|==) (\S+)$`)

func (r *scenarioReader) readExpectation(node *yaml.Node, s *Scenario) {
	var e expectation
	readValue(r, &e, parseExpectation)(node)
	s.expectations = append(s.expectations, e)
}

func parseExpectation(text string) (expectation, error) {
	e := expectation{text: text, from: -1}
	// The groups of the expression are: statistic, group of clients, from, to, comparison, value.
	part := expectationForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if part == nil {
		return e, fmt.Errorf("%q is no expectation, want one such as handed_out from 100s >= 94%%", text)
	}
	e.statistic, e.of, e.compare = part[1], part[2], part[5]
	figure, known := statistics[e.statistic]
	if !known {
		return e, fmt.Errorf("%q is no figure, want one of %s", e.statistic, joinKeys(statistics))
	}
	// The others are about the tree as a whole.
	if e.of != "" && e.statistic != "satisfied" {
		return e, fmt.Errorf("%q is of %s, want that for satisfied alone", text, e.of)
	}
	var err error
	// The defaults stay where a time is left out: -1 for the beginning, 0 for the end.
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
	e.value, err = figure.unit.parseValue(part[6])
	return e, err
}

func (u valueUnit) parseValue(text string) (float64, error) {
	switch u {
	case unitShare:
		return parseShare(text)
	case unitSeconds:
		d, err := parseTime(text)
		return d.Seconds(), err
	default:
		return parseNumber(text)
	}
}

// formatValue writes a value as parseValue reads it.
func (u valueUnit) formatValue(value float64) string {
	switch u {
	case unitShare:
		return fmt.Sprintf("%.2f%%", 100*value)
	case unitSeconds:
		return shortTime(time.Duration(value * float64(time.Second)))
	default:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
}

// shortTime writes a time as people do: to the tenth of a second, and 1m40s for 1m40.0s.
func shortTime(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// holdsFor reports whether what was measured is what was expected.
func (e *expectation) holdsFor(measured float64) bool {
	// The value was read from a percentage, and so is rounded.
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

// ratio returns part/whole. Of nothing, everything was given: it is 1 for a whole of 0.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 1
	}
	return part / whole
}
