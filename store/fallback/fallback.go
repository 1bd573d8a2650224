// Package fallback stands between a gate and a store that may become unreachable. While it is, commands of
// limiters are answered by rule.
package fallback

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/memory"
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

// A Config says by which rules commands are answered. The zero value refuses all.
type Config struct {
	// Rule says how commands for a key are answered while the store cannot be reached; it is asked for
	// limiters alone, because what is held must never be granted twice. nil means Refuse for all.
	Rule func(key gatehouse.Key) Answer

	// Latest is the time of the store or somewhat later, as far as is known while it is away; the zero
	// time means that it is not known. nil means that it is this machine's.
	Latest func() time.Time

	// Servers is how many share the store, for LocalShare; 0 means 1.
	Servers int

	// Names is the most names that LocalShare counts for at once; 0 means memory.DefaultNames.
	Names int

	// Count is called when a rule answers commands, with how many there are; undos are not counted. It must
	// be quick, and safe to be called from several goroutines. A nil Count is not called.
	Count func(rule Answer, commands int)
}

// A Store is a gate.AsyncStore that answers by rule while the store behind it is unreachable. Make one
// with New.
type Store struct {
	RemoteStore
	config Config
	local  *memory.Store // counts for LocalShare
}

// New returns a store in front of remote, which the caller still has to close. It needs no closing.
func New(remote RemoteStore, config Config) *Store {
	config.Servers = max(config.Servers, 1)
	local := memory.New(memory.Config{Names: config.Names})
	return &Store{RemoteStore: remote, config: config, local: local}
}

// Apply applies the queue to the store, or answers it by rule if that is unreachable.
func (s *Store) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if key.Kind.Limiter() && slices.ContainsFunc(queue, isOwnUndo) {
		return s.applyOwnUndos(ctx, key, queue)
	}
	return s.fallBack(ctx, key, queue, s.RemoteStore.Apply(ctx, key, queue))
}

// ApplyAsync is Apply with a callback.
func (s *Store) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
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
func (s *Store) fallBack(ctx context.Context, key gatehouse.Key, queue []control.Turn, err error) error {
	if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict) {
		return err
	}
	return s.applyRule(ctx, key, queue, err)
}
