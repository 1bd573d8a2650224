// Package outage stands between a gate and a store that may become unreachable. A Breaker asks a store that
// is away no more than now and then, so that not every request takes as long as one may. A Store answers by
// rule what cannot be asked.
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

// A FallbackConfig says by which rules is answered. The zero value refuses.
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

	// Metrics is where the figures are registered; nil leaves them out.
	Metrics prometheus.Registerer
}

// A Fallback is a gate.AsyncStore that answers by rule what its keeper cannot. Make one with New.
type Fallback struct {
	RemoteStore
	config FallbackConfig
	local  *memory.Store // counts for LocalShare
	byRule [answers]prometheus.Counter
}

// NewFallback returns a store in front of keeper, which stays its owner's. It needs no closing.
func NewFallback(keeper RemoteStore, config FallbackConfig) *Fallback {
	config.Servers = max(config.Servers, 1)
	s := &Fallback{RemoteStore: keeper, config: config, local: memory.New(memory.Config{Names: config.Names})}
	s.register()
	return s
}

// Apply puts the queue to the store, or answers it by rule when that is unreachable.
func (s *Fallback) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if key.Kind.Limiter() && slices.ContainsFunc(queue, own) {
		return s.takeOwn(ctx, key, queue)
	}
	return s.answered(ctx, key, queue, s.RemoteStore.Apply(ctx, key, queue))
}

// ApplyAsync is Apply without a goroutine of the caller's.
func (s *Fallback) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	ctx := context.Background()
	if key.Kind.Limiter() && slices.ContainsFunc(queue, own) {
		go func() { done(s.takeOwn(ctx, key, queue)) }()
		return
	}
	s.RemoteStore.ApplyAsync(key, queue, func(err error) { done(s.answered(ctx, key, queue, err)) })
}

// answered answers by rule what the store has not. One that answers, but to others first, is not away.
func (s *Fallback) answered(ctx context.Context, key gatehouse.Key, queue []control.Turn, err error) error {
	if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict) {
		return err
	}
	return s.answer(ctx, key, queue, err)
}
