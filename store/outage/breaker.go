package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/prometheus/client_golang/prometheus"
)

// A ProbedStore is a store that servers share, as store/cas makes it. Its calls bound their time themselves.
type ProbedStore interface {
	RemoteStore

	// View is Apply, and shows the state after it.
	View(ctx context.Context, key gatehouse.Key, queue []control.Turn,
		view func(now time.Time, state control.State)) error

	// Answered reports whether the store has answered anything in the last time of this length.
	Answered(within time.Duration) bool

	// Now and Latest are the store's time, or somewhat before and somewhat after.
	Now() time.Time
	Latest() time.Time
}

// A BreakerConfig says when a breaker opens, and who is told. The zero value works.
type BreakerConfig struct {
	// Name is what the store is called in the metrics.
	Name string

	// Timeout is how long one Apply of the store may take; 0 means DefaultTimeout.
	Timeout time.Duration

	// Metrics is where the figures are registered; nil leaves them out.
	Metrics prometheus.Registerer

	// Changed is called when the store has become unreachable, with the reason, and when it has become
	// reachable again, with nil. It must be quick. nil means nobody wants to know.
	Changed func(err error)
}

// DefaultTimeout is that of stores that are asked over a network.
const DefaultTimeout = 500 * time.Millisecond

// A Breaker is a Shared store that fails at once while the one behind it is known to be away. Make one with
// NewBreaker.
//
// It opens when a call has failed that took its time, and the store has answered nothing since that call
// began, not even that another server was faster. So one name whose commands fail opens nothing while others
// are answered, and what fails at once, which costs nobody any time, never does. While it is open no command
// goes to the store: it is probed in the background, and the first answer closes the breaker.
type Breaker struct {
	ProbedStore
	config  BreakerConfig
	seconds prometheus.Observer

	start time.Time
	heard atomic.Int64            // when the store answered last, in ns since start
	away  atomic.Pointer[absence] // nil while the breaker is closed

	mu     sync.Mutex
	timer  *time.Timer // of the next probe
	probes uint64
	owed   []debt
	closed bool
	work   sync.WaitGroup
}

// An absence is a time in which the store cannot be reached.
type absence struct {
	since time.Time
	err   error // why, without the key of the command that found out
}

// of is the error of a command for a key during the absence.
func (a *absence) of(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store has not answered for %s: %w",
		key, time.Since(a.since).Round(time.Millisecond), a.err)
}

// probeAfter is how long after a failure the store is probed again; up to twice that, so that servers do not
// do so together.
const probeAfter = 250 * time.Millisecond

// slowShare is the share of its time budget, as a divisor, from which on a failed call has cost time.
const slowShare = 2

// NewBreaker returns a breaker in front of a store. Close ends it, and leaves the store to its owner.
func NewBreaker(shared ProbedStore, config BreakerConfig) *Breaker {
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	b := &Breaker{ProbedStore: shared, config: config, start: time.Now()}
	b.register(config.Metrics, config.Name)
	return b
}

// Apply puts the queue to the store, unless that is known to be away.
func (b *Breaker) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	if away := b.away.Load(); away != nil && b.owe(key, queue) {
		return away.of(key)
	}
	return b.call(func() error { return b.ProbedStore.Apply(ctx, key, queue) })
}

// ApplyAsync is Apply without a goroutine of the caller's.
func (b *Breaker) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	if away := b.away.Load(); away != nil && b.owe(key, queue) {
		done(away.of(key))
		return
	}
	began := time.Since(b.start)
	b.ProbedStore.ApplyAsync(key, queue, func(err error) {
		b.learn(err, began)
		done(err)
	})
}

// View is Apply, and shows the state after it.
func (b *Breaker) View(
	ctx context.Context, key gatehouse.Key, queue []control.Turn,
	view func(now time.Time, state control.State),
) error {
	if away := b.away.Load(); away != nil {
		return away.of(key)
	}
	return b.call(func() error { return b.ProbedStore.View(ctx, key, queue, view) })
}

// call makes one call of the store, and learns from how it ends.
func (b *Breaker) call(work func() error) error {
	began := time.Since(b.start)
	err := work()
	b.learn(err, began)
	return err
}

// learn learns from the end of a call.
func (b *Breaker) learn(err error, began time.Duration) {
	ended := time.Since(b.start)
	b.seconds.Observe((ended - began).Seconds())
	b.judge(err, began, ended)
}

// rangeTimeouts is how many times as long as a command it may take to list names, of which there are many.
const rangeTimeouts = 10

// Range visits the controllers of one kind. It fails at once while the store is known to be away.
func (b *Breaker) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	if away := b.away.Load(); away != nil {
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: names cannot be listed: %w", kind, away.err)
	}
	longest := rangeTimeouts * b.config.Timeout
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := b.ProbedStore.Range(bounded, kind, after, visit)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case bounded.Err() != nil:
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: listing names took longer than %s: %w",
			kind, longest, err)
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: names cannot be listed: %w", kind, err)
}

// Away returns since when the store is unreachable, and why; the zero time and nil when it is reachable as
// far as is known.
func (b *Breaker) Away() (since time.Time, err error) {
	if away := b.away.Load(); away != nil {
		return away.since, away.err
	}
	return time.Time{}, nil
}

// judge finds out whether the store is away.
func (b *Breaker) judge(err error, began, ended time.Duration) {
	switch code := gatehouse.CodeOf(err); {
	case code == gatehouse.CodeTimeout: // of the caller: the store may not have been asked
		return
	case code != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict):
		b.heard.Store(int64(ended))
		return
	}
	switch took := ended - began; {
	case took < b.config.Timeout/slowShare, b.heard.Load() > int64(began), b.Answered(took):
		return
	}
	b.leave(err)
}

// leave notes that the store is away, if no other call was first, and begins to probe it.
func (b *Breaker) leave(err error) {
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	if !b.away.CompareAndSwap(nil, &absence{since: time.Now(), err: err}) {
		return
	}
	if b.config.Changed != nil {
		b.config.Changed(err)
	}
	b.arm()
}

// arm has the store probed after a while.
func (b *Breaker) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.work.Add(1)
	b.timer = time.AfterFunc(probeAfter+rand.N(probeAfter), func() {
		defer b.work.Done()
		b.probe()
	})
}

// probeNames is how many names are probed in turn: in a cluster they are on different machines.
const probeNames = 64

// probe asks the store about a name that does not exist, which changes nothing.
func (b *Breaker) probe() {
	b.probes++
	name := "gatehouse/probe/" + strconv.FormatUint(b.probes%probeNames, 10)
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: name}
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	err := b.ProbedStore.Apply(context.Background(), key, turns)
	if gatehouse.CodeOf(err) == gatehouse.CodeUnavailable {
		b.arm()
		return
	}
	b.heard.Store(int64(time.Since(b.start)))
	b.away.Store(nil)
	if b.config.Changed != nil {
		b.config.Changed(nil)
	}
	b.pay()
}

// Close ends probing. Nobody may use the store after it.
func (b *Breaker) Close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil && b.timer.Stop() {
		b.work.Done()
	}
	b.mu.Unlock()
	b.work.Wait()
}
