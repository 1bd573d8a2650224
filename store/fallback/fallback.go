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

// A RemoteStore is a gate.Store that may become unreachable.
type RemoteStore interface {
	Apply(c *control.Change)
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
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

// A Store is a gate.Store that answers by rule while the store behind it is unreachable. Make one with New.
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

// Apply applies the change to the store, or answers it by rule if that is unreachable.
func (s *Store) Apply(c *control.Change) {
	if c.Key.Kind.Limiter() && slices.ContainsFunc(c.Turns, isOwnUndo) {
		s.applyOwnUndos(c)
		return
	}
	done := c.Done
	c.Done = func(err error) { done(s.fallBack(c.Key, c.Turns, err)) }
	s.RemoteStore.Apply(c)
}

// fallBack answers a queue by rule if err says that the store is unreachable. A store that only let other
// servers go first is not.
func (s *Store) fallBack(key gatehouse.Key, queue []control.Turn, err error) error {
	if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict) {
		return err
	}
	return s.applyRule(key, queue, err)
}
