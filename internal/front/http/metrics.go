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

// metrics are the server's figures: those of every protocol, and responses by status. No label holds a name,
// so that their number is bounded.
type metrics struct {
	*telemetry.Protocol
	registry *prometheus.Registry
	requests *telemetry.Shard
	statuses *prometheus.CounterVec
	byStatus [lastStatus - firstStatus + 1]atomic.Pointer[statusCounter]
}

// statusCounter counts those of one status. It is made at the first.
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
			Help: "HTTP responses by status, those of pages and to refused connections included.",
		}, []string{"status"}),
	}
	m.requests = m.Shard()
	m.Connections(registry, s.open.Load)
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gatehouse_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": s.config.Version},
	})
	info.Set(1)
	registry.MustRegister(m.statuses, info,
		gauge("gatehouse_waiting", "Requests that wait in line now.",
			func() float64 { return float64(s.config.Gate.Waiting()) }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.config.Names != nil {
		registry.MustRegister(gauge("gatehouse_names", "Names of controllers that are kept.",
			func() float64 { return float64(s.config.Names()) }))
	}
	return m
}

// countResponse notes a response.
func (m *metrics) countResponse(status int) {
	slot := &m.byStatus[status-firstStatus]
	counter := slot.Load()
	if counter == nil {
		counter = &statusCounter{m.statuses.WithLabelValues(strconv.Itoa(status))}
		slot.Store(counter)
	}
	counter.Inc()
}

// countMalformed notes a request for a controller that could not be read. What it did not say is 0.
func (m *metrics) countMalformed(kind gatehouse.Kind, op gatehouse.Op, since time.Duration) {
	m.requests.Of(kind, op).Count(telemetry.Outcome(gatehouse.Invalid), 1, m.Now()-since)
}
