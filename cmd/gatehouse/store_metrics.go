package main

import (
	"time"

	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/prometheus/client_golang/prometheus"
)

// registerSharedMetrics registers the statistics of a store that servers share. Their names are public, and
// do not follow the names of the fields.
func registerSharedMetrics(metrics *prometheus.Registry, kind string, store *cas.Store) {
	for _, f := range []struct {
		name, help string
		value      func(cas.TransactionStats) uint64
	}{
		{"swaps", "Round trips to the store that write.",
			func(f cas.TransactionStats) uint64 { return f.Swaps }},
		{"reads", "Round trips to the store that only read.",
			func(f cas.TransactionStats) uint64 { return f.Reads }},
		{"lost", "Changes that were repeated because another server was faster.",
			func(f cas.TransactionStats) uint64 { return f.Conflicts }},
		{"failures", "Batches of commands that failed because the store did not respond.",
			func(f cas.TransactionStats) uint64 { return f.Failures }},
		{"unknown", "Failed batches that may have taken effect.",
			func(f cas.TransactionStats) uint64 { return f.Unknown }},
		{"vanished", "Records that this server knew and the store lost before their time.",
			func(f cas.TransactionStats) uint64 { return f.Vanished }},
		{"clock_steps", "Steps of the store's clock of one second or more.",
			func(f cas.TransactionStats) uint64 { return f.ClockSteps }},
		{"amended",
			"Commands of failed batches that were checked later, and undone if they had taken effect.",
			func(f cas.TransactionStats) uint64 { return f.Undone }},
	} {
		// A counter that reads the store's own: what the store counts is counted once.
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gatehouse_store_" + f.name + "_total", Help: f.help,
			ConstLabels: prometheus.Labels{"store": kind},
		}, func() float64 { return float64(f.value(store.Stats())) }))
	}
}

// The first upper bound of the histogram of calls, in seconds, and how many bounds there are. Each is twice
// the one before, so that the last is longer than stores are usually given.
const fastestCall, callBuckets = 0.0001, 15

// registerApplySeconds registers the histogram of how long calls of a shared store take, and returns what
// observes one.
func registerApplySeconds(metrics *prometheus.Registry, kind string) (observe func(took time.Duration)) {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gatehouse_store_apply_seconds", ConstLabels: prometheus.Labels{"store": kind},
		Help:    "Seconds that the store took for a batch of commands, including lost races and failures.",
		Buckets: prometheus.ExponentialBuckets(fastestCall, 2, callBuckets),
	})
	metrics.MustRegister(seconds)
	return func(took time.Duration) { seconds.Observe(took.Seconds()) }
}

// registerReachable registers whether a shared store can be reached.
func registerReachable(metrics *prometheus.Registry, kind string, circuit *breaker.Breaker) {
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_store_reachable", ConstLabels: prometheus.Labels{"store": kind},
		Help: "1 while the store responds as far as is known, 0 while it is only probed.",
	}, func() float64 {
		if _, err := circuit.Away(); err != nil {
			return 0
		}
		return 1
	}))
}

// registerRuleCommands registers the counters of commands that got their response by rule, and returns what
// counts them.
func registerRuleCommands(
	metrics *prometheus.Registry, kind string,
) (count func(rule fallback.Answer, commands int)) {
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_store_unreachable_commands_total",
		Help: "Commands decided by an on-unreachable rule because the store was unreachable.",

		ConstLabels: prometheus.Labels{"store": kind},
	}, []string{"rule"})
	metrics.MustRegister(byRule)
	var counters [fallback.LocalShare + 1]prometheus.Counter // by rule
	// Each rule is there from the start, as 0: a rate needs a first value.
	for rule := range counters {
		counters[rule] = byRule.WithLabelValues(fallback.Answer(rule).String())
	}
	return func(rule fallback.Answer, commands int) { counters[rule].Add(float64(commands)) }
}

// registerHolderMetric registers the number of holders, unless holders is nil.
func registerHolderMetric(metrics *prometheus.Registry, holders func() int) {
	if holders != nil {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_holders",
			Help: "Holders of all semaphores and locks.",
		}, func() float64 { return float64(holders()) }))
	}
}

// registerDiskMetrics registers the statistics of a store on disk.
func registerDiskMetrics(metrics *prometheus.Registry, store *disk.Store) {
	// Each function takes the statistics again when it is scraped, so that two values of one scrape may be
	// some commands apart.
	labels := prometheus.Labels{"store": "disk"}
	metrics.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gatehouse_store_commits_total", ConstLabels: labels,
			Help: "Transactions that were synced to the disk.",
		}, func() float64 { return float64(store.Statistics().Commits) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gatehouse_store_records_total", ConstLabels: labels,
			Help: "Records written by these transactions.",
		}, func() float64 { return float64(store.Statistics().Records) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_store_flush_seconds", ConstLabels: labels,
			Help: "Seconds that the last write of the limiters' counts took.",
		}, func() float64 { return store.Statistics().Flush.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_store_full", ConstLabels: labels,
			Help: "1 while commands that need room are refused because the disk is full.",
		}, func() float64 {
			if store.Statistics().Full {
				return 1
			}
			return 0
		}))
}
