package outage

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/prometheus/client_golang/prometheus"
)

// No label of a metric holds a name, so that their number is bounded.

// fastest is the upper bound, in seconds, of the first of the buckets, each of which is twice as wide as the
// one before; there are enough for the longest time that a store is usually given.
const fastest, buckets = 0.0001, 15

// register makes the breaker's figures.
func (b *Breaker) register(metrics prometheus.Registerer, name string) {
	labels := prometheus.Labels{"store": name}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gatehouse_store_apply_seconds", ConstLabels: labels,
		Help:    "How long the store took for one batch of commands, lost races and failures included.",
		Buckets: prometheus.ExponentialBuckets(fastest, 2, buckets),
	})
	b.seconds = seconds
	if metrics == nil {
		return
	}
	metrics.MustRegister(seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_store_reachable", ConstLabels: labels,
		Help: "1 while the store answers as far as is known, 0 while it is only probed.",
	}, func() float64 {
		if b.away.Load() != nil {
			return 0
		}
		return 1
	}))
}

// register makes the counters of what is answered by rule.
func (s *Fallback) register() {
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_store_unreachable_commands_total",
		Help: "Commands that were answered by an on-unreachable rule because the store was not reached.",

		ConstLabels: prometheus.Labels{"store": s.config.Name},
	}, []string{"rule"})
	for a := range answers {
		s.byRule[a] = byRule.WithLabelValues(a.String())
	}
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(byRule)
	}
}

// count notes that a queue was answered by rule.
func (s *Fallback) count(rule FallbackRule, queue []control.Turn) {
	n := 0
	for i := range queue {
		if queue[i].Command.Op != gatehouse.OpUndo {
			n++
		}
	}
	s.byRule[rule].Add(float64(n))
}
