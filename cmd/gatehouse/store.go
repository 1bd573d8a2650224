package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// An openedStore is a store, and what the server needs to know about it.
type openedStore struct {
	gate.Store
	logName      string          // its address for logs, without a password
	firstTicket  control.Ticket  // of this server; 0 if no other server uses the store
	countNames   func() int      // returns how many names it keeps
	countHolders func() int      // returns how many holders it has; nil when that is not known
	healthLine   func() string   // returns its line in health checks; nil for none
	close        func() error    // may be called after the last command
	failed       <-chan struct{} // closed when the store cannot go on; nil if that cannot happen
	err          func() error    // returns why it failed, once failed is closed
}

// wantStore describes the values of --store.
const wantStore = "memory, disk:DIR, redis://HOST, rediss://HOST or etcd://HOST,HOST"

// checkStore returns what is wrong with a value of --store, or "". It opens no store and connects to none.
func checkStore(store string) (fault string) {
	kind, rest, _ := strings.Cut(store, ":")
	// Also for a folder that cannot be read, the error is left to opening: it may be mounted by then.
	switch {
	case store == "memory":
		return ""
	case kind == "disk" && rest != "":
		// A directory that does not exist is made when the store is opened.
		if info, err := os.Stat(rest); err == nil && !info.IsDir() {
			return "is " + store + ", which is no directory"
		}
		return ""
	case kind == "disk":
		return "is disk: without a directory, want disk:DIR"
	case isShared(kind):
		if err := checkShared(store); err != nil {
			return "is no address: " + err.Error()
		}
		return ""
	}
	return fmt.Sprintf("is %q, want %s", withoutPassword(store), wantStore)
}

// A storeOpener opens the store that the settings name.
type storeOpener struct {
	*settings
	rules   config.Rules
	servers int // how many share the store; 0 when the settings do not say
	memory  *weight.Total
	metrics *prometheus.Registry
	log     *slog.Logger

	vanished func(gatehouse.Key) // is told of each record that a shared store has lost
}

// openStore opens the store. The settings have been checked before.
func (o *storeOpener) openStore(ctx context.Context) (*openedStore, error) {
	kind, rest, _ := strings.Cut(o.store, ":")
	switch {
	case isShared(kind):
		return o.openSharedStore(ctx)
	case kind == "disk":
		ignoreFileLimit() // so that a full file is an error of the store, and not the end of the process
		store, err := disk.Open(rest, disk.Config{
			Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory, Log: o.log,
		})
		if err != nil {
			return nil, err
		}
		registerDiskMetrics(o.metrics, store)
		return &openedStore{
			Store: store, logName: o.store, countNames: store.Len, countHolders: store.Holders,
			close: store.Close, failed: store.Failed(), err: store.Err,
		}, nil
	default: // memory
		store := memory.New(memory.Config{Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory})
		return &openedStore{
			Store: store, logName: o.store, countNames: store.Len, countHolders: store.Holders,
			close: func() error { return nil },
		}, nil
	}
}

// watchFailure waits until the store cannot go on, and returns why, or until ctx ends. For a store that does
// not fail, receiving from the nil channel blocks forever, and only ctx ends it.
func (s *openedStore) watchFailure(ctx context.Context) error {
	select {
	case <-s.failed:
		return s.err()
	case <-ctx.Done():
		return nil
	}
}

// registerSharedMetrics registers the statistics of a store that servers share. Their names are public, and
// do not follow the names of the fields.
func registerSharedMetrics(metrics prometheus.Registerer, kind string, store *cas.Store) {
	metrics = storeMetrics(metrics, kind)
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
		// Asked at each scrape, as the store keeps these numbers anyway.
		telemetry.Counter(metrics, "gatehouse_store_"+f.name+"_total", f.help,
			func() uint64 { return f.value(store.Stats()) })
	}
}

// storeMetrics returns where metrics get the label store.
func storeMetrics(metrics prometheus.Registerer, kind string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"store": kind}, metrics)
}

// The first upper bound of the histogram of calls, in seconds, and how many bounds there are. Each is twice
// the one before, so that the last is longer than stores are usually given.
const fastestCall, callBuckets = 0.0001, 15

// registerApplySeconds registers the histogram of how long calls of a shared store take, and returns what
// observes one.
func registerApplySeconds(metrics *prometheus.Registry, kind string) (observe func(took time.Duration)) {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "gatehouse_store_apply_seconds",
		Help:    "Seconds that the store took for a batch of commands, including lost races and failures.",
		Buckets: prometheus.ExponentialBuckets(fastestCall, 2, callBuckets),
	})
	storeMetrics(metrics, kind).MustRegister(seconds)
	return func(took time.Duration) { seconds.Observe(took.Seconds()) }
}

// registerReachable registers whether a shared store can be reached.
func registerReachable(metrics *prometheus.Registry, kind string, circuit *breaker.Breaker) {
	telemetry.Gauge(storeMetrics(metrics, kind), "gatehouse_store_reachable",
		"1 while the store responds as far as is known, 0 while it is only probed.", func() int {
			_, err := circuit.Away()
			return telemetry.Truth(err == nil)
		})
}

// registerRuleCommands registers the counters of commands that got their response by rule, and returns what
// counts them.
func registerRuleCommands(
	metrics *prometheus.Registry, kind string,
) (count func(rule fallback.Answer, commands int)) {
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_store_unreachable_commands_total",
		Help: "Commands decided by an on-unreachable rule because the store was unreachable.",
	}, []string{"rule"})
	storeMetrics(metrics, kind).MustRegister(byRule)
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
		telemetry.Gauge(metrics, "gatehouse_holders", "Holders of all semaphores and locks.", holders)
	}
}

// registerDiskMetrics registers the statistics of a store on disk.
func registerDiskMetrics(metrics *prometheus.Registry, store *disk.Store) {
	// Each function takes the statistics again when it is scraped, so that two values of one scrape may be
	// some commands apart.
	to := storeMetrics(metrics, "disk")
	telemetry.Counter(to, "gatehouse_store_commits_total", "Transactions that were synced to the disk.",
		func() uint64 { return store.Statistics().Commits })
	telemetry.Counter(to, "gatehouse_store_records_total", "Records written by these transactions.",
		func() uint64 { return store.Statistics().Records })
	telemetry.Gauge(to, "gatehouse_store_flush_seconds",
		"Seconds that the last write of the limiters' counts took.",
		func() float64 { return store.Statistics().Flush.Seconds() })
	telemetry.Gauge(to, "gatehouse_store_full",
		"1 while commands that need room are refused because the disk is full.",
		func() int { return telemetry.Truth(store.Statistics().Full) })
}
