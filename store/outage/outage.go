// Package outage stands between a gate and a store that may become unreachable. It answers by rule what
// the store cannot, and asks a store that is away no more than now and then, so that not every request
// takes as long as one may.
package outage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
)

// A Keeper is the store that may become unreachable: a gate.Store, whose Apply bounds its time itself. It
// may be a gate.SlowStore. Keys for which such a store is not slow do not depend on its being reachable.
type Keeper interface {
	Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(gatehouse.Key, control.State) bool) error
}

// A Config says how an outage is met. The zero value works.
type Config struct {
	// Name is what the store is called in the metrics.
	Name string

	// Timeout is how long one Apply of the store may take; 0 means DefaultTimeout.
	Timeout time.Duration

	// Answer says how commands for a key are answered while the store cannot be reached; it is asked for
	// limiters alone, because what is held must never be granted twice. nil means Refuse for all.
	Answer func(key gatehouse.Key) Answer

	// Servers is how many share the store, for LocalShare; 0 means 1.
	Servers int

	// Names is the most names that LocalShare counts for at once; 0 means memory.DefaultNames.
	Names int

	// Metrics is where the figures are registered; nil leaves them out.
	Metrics prometheus.Registerer

	// Changed is called when the store has become unreachable, with the reason, and when it has become
	// reachable again, with nil. It must be quick. nil means nobody wants to know.
	Changed func(err error)
}

// DefaultTimeout is that of stores that are asked over a network.
const DefaultTimeout = 500 * time.Millisecond

// A Store is a gate.SlowStore. Make one with New.
type Store struct {
	keeper  Keeper
	slow    func(gatehouse.Key) bool // of a gate.SlowStore; nil for any other
	config  Config
	figures *figures
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	local   *memory.Store // counts for LocalShare

	start time.Time
	heard atomic.Int64 // when the store answered last, in ns since start
	away  atomic.Pointer[absence]

	mu     sync.Mutex
	timer  *time.Timer // of the next probe
	probes uint64
	closed bool
	work   sync.WaitGroup
}

// An absence is a time in which the store cannot be reached.
type absence struct {
	since time.Time
	err   error // why, without the key of the command that found out
}

// New returns a store that answers by config what keeper cannot. Close ends it, and leaves keeper to its
// owner.
func New(keeper Keeper, config Config) *Store {
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	config.Servers = max(config.Servers, 1)
	s := &Store{keeper: keeper, config: config, start: time.Now()}
	if slow, ok := keeper.(interface{ Slow(gatehouse.Key) bool }); ok {
		s.slow = slow.Slow
	}
	s.local = memory.New(memory.Config{Names: config.Names})
	s.breaker = s.newBreaker()
	s.figures = newFigures(s)
	return s
}

// Apply puts the queue to the store, or answers it by rule when that is unreachable.
func (s *Store) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if key.Kind.Limiter() && slices.ContainsFunc(queue, own) {
		return s.takeOwn(ctx, key, queue)
	}
	err := s.ask(ctx, key, queue)
	if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		return err
	}
	return s.byRule(ctx, key, queue, err)
}

// ask puts the queue to the store, unless it is known to be away.
func (s *Store) ask(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if s.slow != nil && !s.slow(key) {
		return s.keeper.Apply(ctx, key, queue)
	}
	if err := s.unreachable(key); err != nil {
		return err
	}
	began := s.elapsed()
	err := s.keeper.Apply(ctx, key, queue)
	ended := s.elapsed()
	s.figures.seconds.Observe((ended - began).Seconds())
	s.judge(err, began, ended)
	return err
}

// Slow reports whether the store may take longer than a moment for this key.
func (s *Store) Slow(key gatehouse.Key) bool { return s.slow != nil && s.slow(key) }

// Watch implements gate.Store.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) { return s.keeper.Watch(key, wake) }

// rangeTimeouts is how many times as long as a command it may take to list names, of which there are many.
const rangeTimeouts = 10

// Range implements gate.Store. It is refused at once while the store is known to be away.
func (s *Store) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	if away := s.away.Load(); away != nil {
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: names cannot be listed: %w", kind, away.err)
	}
	bounded, cancel := context.WithTimeout(ctx, rangeTimeouts*s.config.Timeout)
	defer cancel()
	err := s.keeper.Range(bounded, kind, after, visit)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return gatehouse.Errorf(gatehouse.CodeUnavailable,
			"%s: listing names took longer than %s", kind, rangeTimeouts*s.config.Timeout)
	}
	return err
}

// Away returns since when the store is unreachable, and why; the zero time and nil when it is reachable as
// far as is known.
func (s *Store) Away() (since time.Time, err error) {
	if away := s.away.Load(); away != nil {
		return away.since, away.err
	}
	return time.Time{}, nil
}

func (s *Store) elapsed() time.Duration { return time.Since(s.start) }
