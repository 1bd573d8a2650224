package main

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of a shared store follow what its parts report.
func TestSharedStoreMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	observe, count := registerApplySeconds(registry, "redis"), registerRuleCommands(registry, "redis")
	circuit := breaker.New(deadStore{}, breaker.Config{Timeout: 1})
	t.Cleanup(circuit.Close)
	registerReachable(registry, "redis", circuit)
	want := func(refuse, allow, calls, reachable float64) {
		t.Helper()
		for name, want := range map[string]float64{
			"gatehouse_store_unreachable_commands_total refuse":      refuse,
			"gatehouse_store_unreachable_commands_total allow":       allow,
			"gatehouse_store_unreachable_commands_total local-share": 0,
			"gatehouse_store_reachable":                              reachable,
			"gatehouse_store_apply_seconds":                          calls,
		} {
			if got, ok := gatherValues(t, registry)[name]; !ok || got != want {
				t.Errorf("%s = %v, %t, want %v", name, got, ok, want)
			}
		}
	}
	want(0, 0, 0, 1)
	observe(time.Millisecond)
	count(fallback.Refuse, 3)
	count(fallback.Allow, 2)
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	if err := (&control.Change{Key: gatehouse.Key{}, Turns: turns}).ApplyTo(circuit); err == nil {
		t.Error("a dead store granted a command, want an error")
	}
	want(3, 2, 1, 0)
}

// A deadStore never responds.
type deadStore struct{ breaker.ProbedStore }

func (deadStore) Apply(c *control.Change) {
	c.Done(gatehouse.Errorf(gatehouse.CodeUnavailable, "dead"))
}

func (deadStore) Answered(time.Duration) bool { return false }

// gatherValues returns the values of all metrics by their names and rules, of a histogram its count.
func gatherValues(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			if labels := m.GetLabel(); labels[0].GetName() == "rule" {
				name += " " + labels[0].GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}
