package resp

import (
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's figures. No label holds a name, so that their number is bounded.
type metrics struct {
	waits, hangups, refused, faults, cuts prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gatehouse_resp_" + name, Help: help})
	}
	m := &metrics{
		waits: counter("waits_total", "RESP commands that had to wait in line."),
		hangups: counter("hangups_total",
			"RESP commands whose client went away before the answer; what they were granted was taken back."),
		refused: counter("refused_connections_total", "RESP connections beyond the limit."),
		faults:  counter("faults_total", "RESP connections closed because they sent what is no command."),
		cuts: counter("cuts_total",
			"RESP connections closed because half a command stayed half, or answers were not taken."),
	}
	if s.config.Metrics == nil {
		return m
	}
	s.config.Metrics.MustRegister(m.waits, m.hangups, m.refused, m.faults, m.cuts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_resp_connections",
			Help: "Open RESP connections, waiting and idle ones included.",
		}, func() float64 { return float64(s.open.Load()) }),
		collector{s, prometheus.NewDesc("gatehouse_resp_answers_total",
			"RESP answers, by kind of controller, operation and outcome.",
			[]string{"kind", "op", "outcome"}, nil)})
	return m
}

// A result is an outcome, or the code of an error.
const (
	resultInternal = int(gatehouse.Exhausted) + 1 + iota
	resultUnavailable
	resultTimeout
	numResults
)

var results = [...]int{
	gatehouse.CodeInternal:    resultInternal,
	gatehouse.CodeInvalid:     int(gatehouse.Invalid),
	gatehouse.CodeExhausted:   int(gatehouse.Exhausted),
	gatehouse.CodeUnavailable: resultUnavailable,
	gatehouse.CodeTimeout:     resultTimeout,
}

// resultName is a result in one word.
func resultName(result int) string {
	switch result {
	case resultInternal:
		return gatehouse.CodeInternal.String()
	case resultUnavailable:
		return gatehouse.CodeUnavailable.String()
	case resultTimeout:
		return gatehouse.CodeTimeout.String()
	}
	return gatehouse.Outcome(result).String() // #nosec G115 -- an outcome
}

// tallies count one event loop's answers. Loops that counted together would slow one another down.
type tallies struct {
	answers [gatehouse.Kinds][gatehouse.OpUndo][numResults]atomic.Uint64

	// Answers of one sort in a row are counted here first.
	sort *atomic.Uint64
	row  uint64
}

// count notes one answer; d counts when err is nil.
func (t *tallies) count(kind gatehouse.Kind, op gatehouse.Op, d *gatehouse.Decision, err error) {
	var result int
	if err == nil {
		result = int(d.Outcome)
	} else {
		result = results[gatehouse.CodeOf(err)]
	}
	if sort := &t.answers[kind][op][result]; sort != t.sort {
		t.flush()
		t.sort = sort
	}
	t.row++
}

// flush shows what was counted.
func (t *tallies) flush() {
	if t.row > 0 {
		t.sort.Add(t.row)
		t.row = 0
	}
}

// A collector tells what the loops have counted, as far as it is not nothing.
type collector struct {
	server *Server
	desc   *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for kind := range gatehouse.Kinds {
		for op := range gatehouse.OpUndo {
			c.collect(to, gatehouse.Kind(kind), op) // #nosec G115 -- a kind
		}
	}
}

func (c collector) collect(to chan<- prometheus.Metric, kind gatehouse.Kind, op gatehouse.Op) {
	for result := range numResults {
		if n := c.sum(kind, op, result); n > 0 {
			to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n),
				kind.String(), op.String(), resultName(result))
		}
	}
}

// sum adds up what all loops have counted.
func (c collector) sum(kind gatehouse.Kind, op gatehouse.Op, result int) (n uint64) {
	c.server.loops.Range(func(_, l any) bool {
		n += l.(*loop).tallies.answers[kind][op][result].Load()
		return true
	})
	return n
}
