package bouncer

import (
	"strconv"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the server's figures. No label holds a name, so that their number is bounded.
type metrics struct {
	registry *prometheus.Registry
	vec      *prometheus.CounterVec
	answers  [gatehouse.Kinds][gatehouse.OpUndo][lastStatus - firstStatus + 1]atomic.Pointer[answers]
	waits    prometheus.Counter
	hangups  prometheus.Counter
}

// answers counts answers of one kind, operation and status. It is made at the first.
type answers struct{ prometheus.Counter }

const firstStatus, lastStatus = 200, 503

func newMetrics(s *Server) *metrics {
	if s.config.Metrics == nil {
		s.config.Metrics = prometheus.NewRegistry()
	}
	m := &metrics{
		registry: s.config.Metrics,
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_waits_total",
			Help: "Requests that had to wait in line.",
		}),
		hangups: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_hangups_total",
			Help: "Requests whose client went away before the answer; what they were granted was taken back.",
		}),
	}
	m.vec = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_http_answers_total",
		Help: "HTTP answers, by kind of controller, operation and status.",
	}, []string{"kind", "op", "status"})
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gatehouse_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": s.config.Version},
	})
	info.Set(1)
	m.registry.MustRegister(m.vec, m.waits, m.hangups, info,
		gauge("gatehouse_waiting", "Requests that wait in line now.",
			func() float64 { return float64(s.config.Gate.Waiting()) }),
		gauge("gatehouse_http_connections", "Open connections, waiting and idle ones included.",
			func() float64 { return float64(s.open.Load()) }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.config.Names != nil {
		m.registry.MustRegister(gauge("gatehouse_names", "Names of controllers that are kept.",
			func() float64 { return float64(s.config.Names()) }))
	}
	return m
}

// count notes one answer; kind and op are 0 when it is no controller's.
func (m *metrics) count(kind gatehouse.Kind, op gatehouse.Op, status int) {
	slot := &m.answers[kind][op][status-firstStatus]
	counter := slot.Load()
	if counter == nil {
		counter = &answers{m.vec.WithLabelValues(kind.String(), op.String(), strconv.Itoa(status))}
		slot.Store(counter)
	}
	counter.Inc()
}
