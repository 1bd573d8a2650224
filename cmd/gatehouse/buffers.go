package main

import (
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/prometheus/client_golang/prometheus"
)

// newBudget returns the budget of buffered bytes that all listeners share, and registers its metrics.
func newBudget(most size, metrics *prometheus.Registry) *budget.Budget {
	b := budget.New(int64(most))
	// The budget counts by itself. These only read it, whenever they are scraped.
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_buffered_bytes",
			Help: "Bytes in memory that wait to be sent or were received in part, over all listeners.",
		}, func() float64 { return float64(b.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_buffered_max_bytes",
			Help: "Limit of buffered bytes, set by --max-buffered.",
		}, func() float64 { return float64(b.Most()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gatehouse_buffered_refusals_total",
			Help: "Requests refused and connections closed because too many bytes were buffered.",
		}, func() float64 { return float64(b.Refused()) }))
	return b
}
