// Package lazy decides about rate limits at the speed of memory, in front of a store that many servers share.
//
// What it lets through is counted here and told to the store each interval, and what the others have let
// through is learnt by the same round trip. Between two of them k servers do not know of one another, so that
// they may let through more than the limit: no more than the k-1 others can within an interval, and never
// more than k times the limit. In chunks it lets nothing through that it has not taken from the store before.
package lazy

import (
	"context"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Shared is the store behind, as store/swap makes it.
type Shared interface {
	Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error
	View(ctx context.Context, key gatehouse.Key, queue []control.Turn,
		view func(now time.Time, state control.State)) error
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error

	// Now is the store's time, or somewhat before; Latest is that, or somewhat after.
	Now() time.Time
	Latest() time.Time
}

// A Rule says how a name is decided about.
type Rule struct {
	// Interval is the time between two exchanges with the store, at least a millisecond; 0 means that the
	// store decides each time.
	Interval time.Duration

	// Chunk is how many are taken from the store at once, to be let through here; 0 means that what was
	// let through is told later. It is for token buckets and fixed windows; with other limiters the store
	// decides each time.
	Chunk int64
}

// A Config says how a store is used.
type Config struct {
	// Rule is asked for each command; it must be quick.
	Rule func(key gatehouse.Key) Rule

	// Names is the most names that are decided about here; others are left to the store. 0 means
	// DefaultNames.
	Names int
}

// DefaultNames needs about 100 MiB.
const DefaultNames = 100_000

// maxStale is for how many intervals an exchange may fail until the store counts as away; at least stale.
const (
	maxStale = 3
	stale    = time.Second
)

// A Store is a gate.Store. Make one with New.
type Store struct {
	shared Shared
	config Config

	mu     sync.Mutex
	names  map[gatehouse.Key]*name
	rounds map[time.Duration]*round
	closed bool
	work   sync.WaitGroup
}

// New returns a store in front of shared, which stays its owner's. Close ends it.
func New(shared Shared, config Config) *Store {
	if config.Names == 0 {
		config.Names = DefaultNames
	}
	return &Store{
		shared: shared, config: config,
		names: make(map[gatehouse.Key]*name), rounds: make(map[time.Duration]*round),
	}
}

// Slow tells a gate whether Apply takes a round trip.
func (s *Store) Slow(key gatehouse.Key) bool {
	rule := s.rule(key)
	return rule.Interval == 0 || rule.Chunk > 0
}

// rule is how a name is decided about; the zero one leaves it to the store.
func (s *Store) rule(key gatehouse.Key) Rule {
	if !key.Kind.Limiter() {
		return Rule{}
	}
	rule := s.config.Rule(key)
	if rule.Chunk > 0 && key.Kind != gatehouse.TokenBucket && key.Kind != gatehouse.FixedWindow {
		return Rule{}
	}
	return rule
}

// Watch implements gate.Store.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) { return s.shared.Watch(key, wake) }

// Range implements gate.Store. What was let through here since the last exchange does not show.
func (s *Store) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	return s.shared.Range(ctx, kind, after, visit)
}

// Apply implements gate.Store.
func (s *Store) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	rule := s.rule(key)
	if rule.Interval == 0 {
		return s.shared.Apply(ctx, key, queue)
	}
	n := s.name(key)
	if n == nil {
		return s.shared.Apply(ctx, key, queue)
	}
	if rule.Chunk > 0 {
		return n.fromChunk(ctx, rule, queue)
	}
	return n.atOnce(ctx, rule, queue)
}

// name is what is known of a name; nil when there are too many.
func (s *Store) name(key gatehouse.Key) *name {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[key]
	if n == nil && len(s.names) < s.config.Names && !s.closed {
		n = &name{store: s, key: key}
		s.names[key] = n
	}
	return n
}

// Close tells the store what it has not been told, and returns what is left over.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	due := make([]*name, 0, len(s.names))
	for _, n := range s.names {
		due = append(due, n)
	}
	for _, r := range s.rounds {
		if r.timer.Stop() {
			s.work.Done()
		}
	}
	s.mu.Unlock()
	s.work.Wait()
	s.exchange(due, true)
}
