package outage

import (
	"github.com/prometheus/client_golang/prometheus"
)

// No label of a metric holds a name, so that their number is bounded.

// fastest is the upper bound, in seconds, of the first of the buckets, each of which is twice as wide as the
// one before; there are enough for the longest time that a store is usually given.
const fastest, buckets = 0.0001, 15

// registerMetrics makes the breaker's metrics. Without a registerer they count all the same.
func (b *Breaker) registerMetrics(metrics prometheus.Registerer, name string) {
	labels := prometheus.Labels{"store": name}
	// Made before the check below, because recordResult observes it whether or not it is registered.
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
		if b.unreachable.Load() != nil {
			return 0
		}
		return 1
	}))
}
