// Package outage stands between a gate and a store that may become unreachable. A Breaker stops sending
// commands to an unreachable store, so that they fail at once instead of after a timeout. A Fallback answers
// such commands by rule.
package outage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// A RemoteStore is a gate.AsyncStore that may become unreachable.
type RemoteStore interface {
	Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
	Slow(key gatehouse.Key) bool
	ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error))
}

// A FallbackConfig says by which rules commands are answered. The zero value refuses all.
type FallbackConfig struct {
	// Name is what the store is called in the metrics.
	Name string

	// Rule says how commands for a key are answered while the store cannot be reached; it is asked for
	// limiters alone, because what is held must never be granted twice. nil means Refuse for all.
	Rule func(key gatehouse.Key) FallbackRule

	// Latest is the time of the store or somewhat later, as far as is known while it is away; the zero
	// time means that it is not known. nil means that it is this machine's.
	Latest func() time.Time

	// Servers is how many share the store, for LocalShare; 0 means 1.
	Servers int

	// Names is the most names that LocalShare counts for at once; 0 means memory.DefaultNames.
	Names int

	// Metrics is where the metrics are registered; nil leaves them out.
	Metrics prometheus.Registerer
}

// A Fallback is a gate.AsyncStore that answers by rule while the store behind it is unreachable. Make one
// with NewFallback.
type Fallback struct {
	RemoteStore
	config FallbackConfig
	local  *memory.Store // counts for LocalShare
	byRule [ruleCount]prometheus.Counter
}

// NewFallback returns a store in front of remote, which the caller still has to close. It needs no closing.
func NewFallback(remote RemoteStore, config FallbackConfig) *Fallback {
	config.Servers = max(config.Servers, 1)
	local := memory.New(memory.Config{Names: config.Names})
	s := &Fallback{RemoteStore: remote, config: config, local: local}
	s.registerMetrics()
	return s
}

// Apply applies the queue to the store, or answers it by rule if that is unreachable.
func (s *Fallback) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if key.Kind.Limiter() && slices.ContainsFunc(queue, isOwnUndo) {
		return s.applyOwnUndos(ctx, key, queue)
	}
	return s.fallBack(ctx, key, queue, s.RemoteStore.Apply(ctx, key, queue))
}

// ApplyAsync is Apply with a callback.
func (s *Fallback) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	ctx := context.Background()
	// applyOwnUndos calls the store and waits for it, which ApplyAsync must not.
	if key.Kind.Limiter() && slices.ContainsFunc(queue, isOwnUndo) {
		go func() { done(s.applyOwnUndos(ctx, key, queue)) }()
		return
	}
	s.RemoteStore.ApplyAsync(key, queue, func(err error) { done(s.fallBack(ctx, key, queue, err)) })
}

// fallBack answers a queue by rule if err says that the store is unreachable. A store that only let other
// servers go first is not.
func (s *Fallback) fallBack(ctx context.Context, key gatehouse.Key, queue []control.Turn, err error) error {
	if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict) {
		return err
	}
	return s.applyRule(ctx, key, queue, err)
}
