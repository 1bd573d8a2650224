package outage

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/prometheus/client_golang/prometheus"
)

// figures are what a store tells of itself. No label holds a name.
type figures struct {
	seconds prometheus.Observer
	byRule  [answers]prometheus.Counter
}

// fastest is the upper bound, in seconds, of the first of the buckets, each of which is twice as wide as the
// one before; there are enough for the longest time that a store is usually given.
const fastest, buckets = 0.0001, 15

func newFigures(s *Store) *figures {
	labels := prometheus.Labels{"store": s.config.Name}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gatehouse_store_apply_seconds", ConstLabels: labels,
		Help:    "How long the store took for one batch of commands, lost races and failures included.",
		Buckets: prometheus.ExponentialBuckets(fastest, 2, buckets),
	})
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_store_unreachable_commands_total", ConstLabels: labels,
		Help: "Commands that were answered by an on-unreachable rule because the store was not reached.",
	}, []string{"rule"})
	f := &figures{seconds: seconds}
	for a := range answers {
		f.byRule[a] = byRule.WithLabelValues(a.String())
	}
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(seconds, byRule, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_store_reachable", ConstLabels: labels,
			Help: "1 while the store answers as far as is known, 0 while it is only probed.",
		}, s.reachable))
	}
	return f
}

// reachable is the gauge of that name.
func (s *Store) reachable() float64 {
	if s.away.Load() != nil {
		return 0
	}
	return 1
}

// count notes that a queue was answered by rule.
func (f *figures) count(rule Answer, queue []control.Turn) {
	n := 0
	for i := range queue {
		if queue[i].Command.Op != gatehouse.OpUndo {
			n++
		}
	}
	f.byRule[rule].Add(float64(n))
}
