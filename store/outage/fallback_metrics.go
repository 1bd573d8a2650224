package outage

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/prometheus/client_golang/prometheus"
)

// registerMetrics makes the counters of commands that are answered by rule.
func (s *Fallback) registerMetrics() {
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_store_unreachable_commands_total",
		Help: "Commands that were answered by an on-unreachable rule because the store was not reached.",

		ConstLabels: prometheus.Labels{"store": s.config.Name},
	}, []string{"rule"})
	for a := range ruleCount {
		s.byRule[a] = byRule.WithLabelValues(a.String())
	}
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(byRule)
	}
}

// countByRule counts the commands of a queue that is answered by rule. Undos are not commands of a client.
func (s *Fallback) countByRule(rule FallbackRule, queue []control.Turn) {
	n := 0
	for i := range queue {
		if queue[i].Command.Op != gatehouse.OpUndo {
			n++
		}
	}
	s.byRule[rule].Add(float64(n))
}
