package simulate

import (
	"encoding/json"
	"math"
	"time"
)

// A Report is what was measured in one run. The same scenario and seed give the same report.
type Report struct {
	Scenario string `json:"scenario"`
	Title    string `json:"title"`
	Seed     uint64 `json:"seed"`
	Servers  int    `json:"servers"`
	Clients  int    `json:"clients"`

	Duration time.Duration `json:"duration_ns"`
	From     time.Duration `json:"measured_from_ns"` // what Figures begin with

	Figures      map[string]float64 `json:"figures"` // shares of 1, numbers and seconds
	Counts       Counts             `json:"counts"`
	Overs        []Over             `json:"over_capacity"` // of the whole run
	Briefs       []Over             `json:"brief"`         // while answers were on their way
	Shortages    []Shortage         `json:"shortages"`     // of the whole run
	Events       []Event            `json:"events"`
	Expectations []Outcome          `json:"expectations"`

	series *series
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

// A Shortage sums up when clients of servers held more than the servers' parents gave them.
type Shortage struct {
	Level string        `json:"level"`
	Where string        `json:"where"` // the server that lacked most
	Times int           `json:"times"`
	For   time.Duration `json:"for_ns"` // in all
	Most  float64       `json:"most"`
}

// An Event is something that happened, and how long it took to recover.
type Event struct {
	At      time.Duration `json:"at_ns"`
	Do      string        `json:"do"`
	Where   string        `json:"where,omitempty"`
	For     time.Duration `json:"for_ns,omitempty"`
	Settled time.Duration `json:"settled_ns"` // after so long, for good
	Open    bool          `json:"open"`       // not yet when the next one happened
}

// An Outcome is an expectation and what was measured.
type Outcome struct {
	Text     string `json:"text"`
	Measured string `json:"measured"`
	Holds    bool   `json:"holds"`
}

// Run runs a scenario with a seed.
func Run(s *Scenario, seed uint64) *Report {
	w := newWorld(s, seed)
	w.run()
	m := w.measure
	m.settle()
	r := &Report{
		Scenario: s.Name, Title: s.Title, Seed: seed, Servers: len(w.nodes), Clients: len(w.clients),
		Duration: s.duration, From: s.from, Counts: w.counts, Figures: make(map[string]float64),
		Overs: listed(m.meters[1].over.list), Briefs: listed(m.meters[1].brief.list), Events: m.events,
		Shortages: listed(w.shortages()), Expectations: []Outcome{}, series: m.series,
	}
	r.Counts.Samples, r.Counts.SamplesOver = m.samples, m.samplesOver
	for name, f := range figures {
		r.Figures[name] = finite(f.value(m.meters[0]))
	}
	for i, e := range s.expected {
		f := figures[e.figure]
		measured := finite(f.value(m.meters[i+2]))
		r.Expectations = append(r.Expectations, Outcome{e.text, f.unit.write(measured), e.holds(measured)})
	}
	return r
}

// shortages sums up by level.
func (w *world) shortages() []Shortage {
	var all []Shortage
	for i := range w.scenario.levels {
		sum := Shortage{Level: w.scenario.levels[i].name}
		for _, n := range w.nodes {
			if n.parent == nil || n.level != sum.Level {
				continue
			}
			n.shortage.advance(w.now)
			sum.Times += n.shortage.count
			sum.For += n.shortage.time
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

// listed is a list that JSON shows as one, if it is empty.
func listed[T any](list []T) []T { return append([]T{}, list...) }

// finite keeps what never happened within what JSON can say.
func finite(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	return x
}

// Holds reports whether all expectations are met.
func (r *Report) Holds() bool {
	for _, e := range r.Expectations {
		if !e.Holds {
			return false
		}
	}
	return true
}

// JSON is the report for programs. Times are nanoseconds.
func (r *Report) JSON() []byte {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // all its values can be written
	}
	return append(text, '\n')
}
