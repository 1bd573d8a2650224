package doorman

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
)

// A result is how a call ended.
type result int

const (
	resultAnswered result = iota
	resultRedirected
	resultInvalid
	resultExhausted
	resultUnavailable
	resultTimeout
	resultInternal
	resultUnreceived // it never arrived whole
	numResults
)

var resultNames = [numResults]string{
	"answered", "redirected", "invalid", "exhausted", "unavailable", "timeout", "internal", "unreceived",
}

var codeResults = [...]result{
	gatehouse.CodeInternal:    resultInternal,
	gatehouse.CodeInvalid:     resultInvalid,
	gatehouse.CodeExhausted:   resultExhausted,
	gatehouse.CodeUnavailable: resultUnavailable,
	gatehouse.CodeTimeout:     resultTimeout,
}

func resultOf(to redirect, err error) result {
	switch {
	case err != nil:
		return codeResults[gatehouse.CodeOf(err)]
	case to.there:
		return resultRedirected
	}
	return resultAnswered
}

// metrics are the server's figures: those that doorman has, by the same names, and some of our own.
type metrics struct {
	requests, errors [numRPCs]prometheus.Counter
	durations        [numRPCs]prometheus.Observer
	results          [numRPCs][numResults]prometheus.Counter
	panics, refused  prometheus.Counter
	leftOut          prometheus.Counter // resources
	parent           *prometheus.CounterVec
}

// count notes a call that has ended.
func (m *metrics) count(method rpc, r result, took time.Duration) {
	m.requests[method].Inc()
	m.results[method][r].Inc()
	if r > resultRedirected {
		m.errors[method].Inc()
	}
	m.durations[method].Observe(took.Seconds())
}

// parentAnswered notes a question to the parent that has ended.
func (m *metrics) parentAnswered(err error) {
	if err != nil {
		m.parent.WithLabelValues("failed").Inc()
		return
	}
	m.parent.WithLabelValues("answered").Inc()
}

func newMetrics(s *Server) *metrics {
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gatehouse_capacity_" + name, Help: help})
	}
	requests := vector("doorman_server_requests", "Capacity requests, by method.", "method")
	failures := vector("doorman_server_request_errors", "Capacity requests answered with an error.", "method")
	results := vector("gatehouse_capacity_answers_total",
		"Capacity requests, by method and how they ended.", "method", "result")
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "doorman_server_request_durations", Help: "Seconds that capacity requests took to decide.",
		Buckets: prometheus.DefBuckets,
	}, []string{"method"})
	m := &metrics{
		panics:  counter("panics_total", "Capacity requests at which the server stumbled."),
		refused: counter("refused_connections_total", "gRPC connections beyond the limit."),
		leftOut: counter("refused_resources_total", "Resources that a limit left without an answer."),
		parent: vector("gatehouse_capacity_parent_answers_total",
			"Questions to the parent, by how they ended.", "result"),
	}
	for method, name := range rpcNames {
		m.requests[method] = requests.WithLabelValues(name)
		m.errors[method] = failures.WithLabelValues(name)
		m.durations[method] = durations.WithLabelValues(name)
		for r, result := range resultNames {
			m.results[method][r] = results.WithLabelValues(name, result)
		}
	}
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(requests, failures, results, durations, m.panics, m.refused, m.leftOut,
			m.parent,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "gatehouse_capacity_connections", Help: "Open gRPC connections.",
			}, func() float64 { return float64(s.conns.count()) }), newGauges(s))
	}
	return m
}
