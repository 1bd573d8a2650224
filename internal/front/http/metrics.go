package http

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the server's metrics: those of every protocol, and responses by status. No label holds a name,
// so the number of series is bounded.
type metrics struct {
	*telemetry.Protocol
	registry *prometheus.Registry
	requests *telemetry.Shard
	statuses *prometheus.CounterVec
	byStatus [lastStatus - firstStatus + 1]atomic.Pointer[statusCounter]
}

// A statusCounter counts the responses with one status. It is made at the first of them.
type statusCounter struct{ prometheus.Counter }

const firstStatus, lastStatus = 200, 503

func newMetrics(s *Server) *metrics {
	if s.config.Metrics == nil {
		s.config.Metrics = prometheus.NewRegistry()
	}
	registry := s.config.Metrics
	m := &metrics{
		registry: registry, Protocol: telemetry.New(registry, telemetry.HTTP),
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_http_responses_total",
			Help: "HTTP responses by status, including those of pages and to refused connections.",
		}, []string{"status"}),
	}
	m.requests = m.Shard() // one for all: to find out which goroutine asks would cost more than it saves
	m.Connections(registry, s.open.Load)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gatehouse_build_info", Help: "Version of the server, as a label; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": s.config.Version},
	})
	info.Set(1)
	registry.MustRegister(m.statuses, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	telemetry.Gauge(registry, "gatehouse_waiting",
		"Requests that wait in line (in the queue of a name) now.", s.config.Gate.Waiting)
	if s.config.Names != nil {
		telemetry.Gauge(registry, "gatehouse_names",
			"Names of controllers in memory, including those at rest.", s.config.Names)
	}
	return m
}

// countResponse counts a response.
func (m *metrics) countResponse(status int) {
	// WithLabelValues takes a lock and a hash for each call, so its result is kept. Two goroutines may both
	// store it, which is the same counter.
	slot := &m.byStatus[status-firstStatus]
	counter := slot.Load()
	if counter == nil {
		counter = &statusCounter{m.statuses.WithLabelValues(strconv.Itoa(status))}
		slot.Store(counter)
	}
	counter.Inc()
}

// countMalformed counts a request to a controller that could not be read. kind and op are 0 if they were not
// read either.
func (m *metrics) countMalformed(kind gatehouse.Kind, op gatehouse.Op, since time.Duration) {
	m.requests.Of(kind, op).Count(telemetry.RequestOutcome(gatehouse.Invalid), 1, m.Now()-since)
}
