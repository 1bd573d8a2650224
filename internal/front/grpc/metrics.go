package grpc

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// A callEntry is a way in for requests, which has metrics of its own.
type callEntry int

// The entries: gRPC, and JSON at the HTTP listener.
const (
	overGRPC callEntry = iota
	overHTTP
	numEntries
)

// ops are the methods as the label op spells them.
var ops = [numRPCs]string{"discover", "get", "get_server", "release"}

func outcomeOf(to redirect, err error) telemetry.RequestOutcome {
	if err == nil && to.notMaster {
		return telemetry.Redirected
	}
	return telemetry.OutcomeOf(gatehouse.Granted, err)
}

// metrics are the server's metrics: those that every protocol has, those of doorman under its names, and
// some of our own.
type metrics struct {
	*telemetry.Protocol // gRPC
	series              [numEntries][numRPCs]*telemetry.Series
	requests, errors    [numRPCs]prometheus.Counter
	durations           [numRPCs]prometheus.Observer
	panics              prometheus.Counter
	leftOut             prometheus.Counter // resources
	refusedCalls, slow  prometheus.Counter
	parent              *prometheus.CounterVec
}

// countCall counts a call that has ended.
func (m *metrics) countCall(
	from callEntry, method rpc, outcome telemetry.RequestOutcome, took time.Duration,
) {
	m.series[from][method].Count(outcome, 1, took)
	m.requests[method].Inc()
	// doorman counts a redirect as an answer, not as an error.
	if outcome != telemetry.Redirected && outcome != telemetry.RequestOutcome(gatehouse.Granted) {
		m.errors[method].Inc()
	}
	m.durations[method].Observe(took.Seconds())
}

// countParentRequest counts a request to the parent that has ended.
func (m *metrics) countParentRequest(err error) {
	m.parent.WithLabelValues(outcomeOf(redirect{}, err).String()).Inc()
}

func newMetrics(s *Server) *metrics {
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gatehouse_capacity_" + name, Help: help})
	}
	// Names that doorman has keep them, so that its dashboards and alerts go on working.
	requests := vector("doorman_server_requests", "Capacity requests, by method.", "method")
	failures := vector("doorman_server_request_errors", "Capacity requests that failed.", "method")
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "doorman_server_request_durations", Help: "Seconds that capacity requests took.",
		Buckets: prometheus.DefBuckets,
	}, []string{"method"})
	m := &metrics{
		Protocol: telemetry.New(s.config.Metrics, telemetry.GRPC),
		panics:   counter("panics_total", "Capacity requests that failed inside the server."),
		refusedCalls: counter("refused_calls_total",
			"gRPC calls that were refused because of the limit over all connections."),
		leftOut: counter("refused_resources_total",
			"Resources left out of a response because of a limit."),
		parent: vector("gatehouse_capacity_parent_requests_total",
			"Requests to the parent, by outcome.", "outcome"),
	}
	m.slow = m.Cuts("slow")
	// Calls in JSON count as the protocol HTTP, whose other metrics the HTTP front has.
	overJSON := telemetry.New(s.config.Metrics, telemetry.HTTP)
	// Counted at the scrape, by a function, so that opening a connection costs nothing here.
	m.Connections(s.config.Metrics, func() int64 { return int64(s.conns.openCount()) })
	// Looked up once for all: a lookup by labels takes longer than the count itself.
	for method, name := range rpcNames {
		m.requests[method] = requests.WithLabelValues(name)
		m.errors[method] = failures.WithLabelValues(name)
		m.durations[method] = durations.WithLabelValues(name)
		m.series[overGRPC][method] = m.Series(telemetry.Capacity, ops[method])
		m.series[overHTTP][method] = overJSON.Series(telemetry.Capacity, ops[method])
	}
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(requests, failures, durations, m.panics, m.leftOut,
			m.parent, m.refusedCalls, newGauges(s))
	}
	return m
}
