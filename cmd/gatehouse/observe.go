package main

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/prometheus/client_golang/prometheus"
)

// newObserver returns what is told of all decisions, and registers its metrics.
func newObserver(p *servePlan, metrics prometheus.Registerer) *decisions.Recorder {
	config := decisions.Config{Kept: p.settings.decisions, Now: time.Now}
	rules := p.file.Rules
	for i := range rules {
		config.Rules = append(config.Rules, rules[i].Match)
	}
	config.RuleOf = func(key gatehouse.Key) int { return rules.Index(key) }
	o := decisions.New(config)
	metrics.MustRegister(o)
	return o
}
