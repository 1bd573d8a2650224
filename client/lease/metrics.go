package lease

import (
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests by server and method, under the names that doorman's client uses. A nil *metrics
// counts nothing.
type metrics struct {
	requests, failures *prometheus.CounterVec
	durations          *prometheus.HistogramVec
}

// newMetrics registers the metrics, or reuses those of another client in this process.
func newMetrics(to prometheus.Registerer) (*metrics, error) {
	if to == nil {
		return nil, nil
	}
	labels := []string{"server", "method"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "doorman_client_requests", Help: "Requests sent to servers of capacity.",
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "doorman_client_request_errors", Help: "Requests to servers of capacity that failed.",
		}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "doorman_client_request_durations", Help: "Seconds that requests took.",
		}, labels),
	}
	// Several clients of one process may share a registry; each then counts in the same metrics.
	err := errors.Join(registerOrReuse(to, &m.requests),
		registerOrReuse(to, &m.failures), registerOrReuse(to, &m.durations))
	if err != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "metrics: %w", err)
	}
	return m, nil
}

// registerOrReuse registers a metric. If the same one is registered already, it stores that one in *metric.
func registerOrReuse[M prometheus.Collector](to prometheus.Registerer, metric *M) error {
	err := to.Register(*metric)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		// A collector of another type under this name is the user's mistake, and stays an error.
		if same, ok := known.ExistingCollector.(M); ok {
			*metric = same
			return nil
		}
	}
	return err
}

// startRequest counts a request. The caller calls end when the request has ended.
func (m *metrics) startRequest(server, method string) (end func()) {
	if m == nil {
		return func() {}
	}
	m.requests.WithLabelValues(server, method).Inc()
	duration := m.durations.WithLabelValues(server, method)
	begun := time.Now()
	return func() { duration.Observe(time.Since(begun).Seconds()) }
}

func (m *metrics) countFailure(server, method string) {
	if m != nil {
		m.failures.WithLabelValues(server, method).Inc()
	}
}
