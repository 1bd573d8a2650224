package simulate

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// A RunReport is what was measured in one run. The same scenario and seed give the same report.
type RunReport struct {
	Scenario string `json:"scenario"`
	Title    string `json:"title"`
	Seed     uint64 `json:"seed"`
	Servers  int    `json:"servers"`
	Clients  int    `json:"clients"`

	Duration time.Duration `json:"duration_ns"`
	From     time.Duration `json:"measured_from_ns"` // what Figures begin with

	Figures      map[string]float64  `json:"figures"` // shares of 1, numbers and seconds
	Counts       Counts              `json:"counts"`
	Overs        []Over              `json:"over_capacity"` // of the whole run
	Briefs       []Over              `json:"brief"`         // while responses were on their way
	Shortages    []Shortage          `json:"shortages"`     // of the whole run
	Events       []RecordedEvent     `json:"events"`
	Expectations []ExpectationResult `json:"expectations"`

	series *timeSeries
}

// Counts are of the whole run.
type Counts struct {
	Requests    uint64 `json:"requests"` // sent, by clients and servers
	Answers     uint64 `json:"answers"`  // received from a master
	Redirects   uint64 `json:"redirects"`
	Failures    uint64 `json:"failures"` // no server, or no master known
	ZeroGrants  uint64 `json:"zero_grants"`
	Samples     int    `json:"samples"`
	SamplesOver int    `json:"samples_over"` // capacity
}

// An Over is a time in which clients held more than the capacity.
type Over struct {
	At   time.Duration `json:"at_ns"`
	For  time.Duration `json:"for_ns"`
	Most float64       `json:"most"` // above the capacity
}

// A Shortage sums up the times when clients of servers held more than the servers' parents gave them.
type Shortage struct {
	Level string        `json:"level"`
	Where string        `json:"where"` // the server that lacked most
	Times int           `json:"times"`
	For   time.Duration `json:"for_ns"` // in all
	Most  float64       `json:"most"`
}

// A RecordedEvent is something that happened, and how long it took to recover.
type RecordedEvent struct {
	At      time.Duration `json:"at_ns"`
	Do      string        `json:"do"`
	Where   string        `json:"where,omitempty"`
	For     time.Duration `json:"for_ns,omitempty"`
	Settled time.Duration `json:"settled_ns"` // how long it took to recover for good
	Open    bool          `json:"open"`       // not recovered when the next one happened
}

// An ExpectationResult is an expectation and what was measured.
type ExpectationResult struct {
	Text     string `json:"text"`
	Measured string `json:"measured"`
	Holds    bool   `json:"holds"`
}

// Run runs a scenario with a seed.
func Run(s *Scenario, seed uint64) *RunReport {
	w := newWorld(s, seed)
	w.runEvents()
	m := w.measure
	// The run's end closes the time of the last event.
	m.settleLastEvent()
	r := &RunReport{
		Scenario: s.Name, Title: s.Title, Seed: seed, Servers: len(w.nodes), Clients: len(w.clients),
		Duration: s.duration, From: s.measureFrom, Counts: w.counts, Figures: make(map[string]float64),
		Overs: nonNilList(m.meters[1].over.list), Briefs: nonNilList(m.meters[1].brief.list),
		Events:    m.events,
		Shortages: nonNilList(w.sumShortages()), Expectations: []ExpectationResult{}, series: m.series,
	}
	r.Counts.Samples, r.Counts.SamplesOver = m.samples, m.samplesOver
	for name, f := range statistics {
		r.Figures[name] = finiteOrZero(f.value(m.meters[0]))
	}
	// The first two meters are those of the report and of the whole run.
	for i, e := range s.expectations {
		f := statistics[e.statistic]
		measured := finiteOrZero(f.value(m.meters[i+2]))
		result := ExpectationResult{e.text, f.unit.formatValue(measured), e.holdsFor(measured)}
		r.Expectations = append(r.Expectations, result)
	}
	return r
}

// sumShortages sums up the shortages of each level.
func (w *world) sumShortages() []Shortage {
	var all []Shortage
	for i := range w.scenario.levels {
		sum := Shortage{Level: w.scenario.levels[i].name}
		for _, n := range w.nodes {
			// The root has no parent that could give it less.
			if n.parent == nil || n.level != sum.Level {
				continue
			}
			// Counts the time up to the end of the run.
			n.shortage.advanceTo(w.now)
			sum.Times += n.shortage.count
			sum.For += n.shortage.time
			// The worst server of the level is named.
			if n.shortage.most > sum.Most {
				sum.Most, sum.Where = n.shortage.most, n.name
			}
		}
		if sum.Times > 0 {
			all = append(all, sum)
		}
	}
	return all
}

// nonNilList copies a list. The copy is never nil, which JSON would show as null.
func nonNilList[T any](list []T) []T { return append([]T{}, list...) }

// finiteOrZero replaces what JSON cannot express: the time of what never happened.
func finiteOrZero(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	return x
}

// Holds reports whether all expectations are met.
func (r *RunReport) Holds() bool {
	return !slices.ContainsFunc(r.Expectations, func(e ExpectationResult) bool { return !e.Holds })
}

// JSON returns the report for programs. Times are nanoseconds.
func (r *RunReport) JSON() []byte {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // all its values can be written
	}
	return append(text, '\n')
}
