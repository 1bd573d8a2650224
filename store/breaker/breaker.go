// Package breaker stands before a store that servers share. It stops sending commands to a store that does
// not respond, so that they fail at once instead of after a timeout, and probes it in the background.
package breaker

import (
	"cmp"
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
)

// A ProbedStore is a store that servers share, as store/cas makes it. It bounds the time of each change
// itself.
type ProbedStore interface {
	Apply(c *control.Change)
	ApplyJoint(c *control.JointChange)
	Watch(key gatehouse.Key, wake func()) (stop func())
	Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error

	// Answered reports whether the store has answered anything in the last time of this length.
	Answered(within time.Duration) bool

	// Now and Latest are the store's time, or somewhat before and somewhat after.
	Now() time.Time
	Latest() time.Time
}

// A Config says when a breaker opens, and what it reports. The zero value works.
type Config struct {
	// Timeout is how long one Apply of the store may take; 0 means DefaultTimeout.
	Timeout time.Duration

	// Observe is called with how long each call of the store took, lost races and failures included. It must
	// be quick, and safe to be called from several goroutines. A nil Observe is not called.
	Observe func(took time.Duration)

	// Changed is called when the store has become unreachable, with the reason, and when it has become
	// reachable again, with nil. It must be quick. A nil Changed is not called.
	Changed func(err error)
}

// DefaultTimeout is that of stores that are asked over a network.
const DefaultTimeout = 500 * time.Millisecond

// A Breaker is a ProbedStore that fails at once while the store behind it is known to be unreachable. Make
// one with New.
//
//	             a slow call failed, and nothing was answered since it began
//	┌────────┐ ─────────────────────────────────────────────────────────────▶ ┌──────┐ ──┐ probe fails
//	│ closed │                                                                │ open │   │
//	└────────┘ ◀───────────────────────────────────────────────────────────── └──────┘ ◀─┘
//	             a probe is answered; then the pending undos are sent
//
// While the breaker is open no command is sent to the store. A name whose commands fail does not open it as
// long as other names are answered, even if the answer is that another server was faster. Calls that fail at
// once never open it, because they cost no time.
type Breaker struct {
	ProbedStore
	config Config

	start       time.Time
	lastReply   atomic.Int64                // when the store answered last, in ns since start
	unreachable atomic.Pointer[absentStore] // nil while the breaker is closed

	mu           sync.Mutex
	timer        *time.Timer // of the next probe
	probes       uint64
	pendingUndos []deferredUndo
	closed       bool
	work         sync.WaitGroup
}

// An absentStore is a time in which the store cannot be reached.
type absentStore struct {
	since time.Time
	err   error // why, without the key of the command that found out
}

// probeAfter is the shortest time between a failure and the next probe. The time is random up to twice that,
// so that servers do not probe together.
const probeAfter = 250 * time.Millisecond

// slowShare is the share of its time budget, as a divisor, from which on a failed call has cost time.
const slowShare = 2

// New returns a breaker in front of a store. Close ends it, and leaves the store to its owner.
func New(shared ProbedStore, config Config) *Breaker {
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	return &Breaker{ProbedStore: shared, config: config, start: time.Now()}
}

// Apply applies the change to the store, or fails at once if that is known to be unreachable.
func (b *Breaker) Apply(c *control.Change) {
	// No undos are kept of a change that is viewed: that is about limiters, whose grants come back with time.
	absent := b.unreachable.Load()
	if absent != nil && (c.View != nil || b.keepUndos(c.Key, c.Turns)) {
		away := time.Since(absent.since).Round(time.Millisecond)
		c.Done(gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store has not responded for %s: %w",
			c.Key, away, absent.err))
		return
	}
	c.Done = b.judged(c.Done)
	b.ProbedStore.Apply(c)
}

// rangeTimeouts is how many times as long as a command it may take to list names, of which there are many.
const rangeTimeouts = 10

// Range visits the controllers of one kind. It fails at once while the store is known to be away.
func (b *Breaker) Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error {
	if absent := b.unreachable.Load(); absent != nil {
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: names cannot be listed: %w", kind, absent.err)
	}
	// The result is not judged: a listing that is slow because there are many names says nothing about
	// whether commands are answered.
	longest := rangeTimeouts * b.config.Timeout
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := b.ProbedStore.Range(bounded, kind, after, visit)
	switch {
	case err == nil || ctx.Err() != nil: // the caller's own context has ended
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
	if absent := b.unreachable.Load(); absent != nil {
		return absent.since, absent.err
	}
	return time.Time{}, nil
}

// judgeResult opens the breaker if a result means that the store is unreachable. began and ended are since
// b.start.
func (b *Breaker) judgeResult(err error, began, ended time.Duration) {
	switch code := gatehouse.CodeOf(err); {
	case code == gatehouse.CodeTimeout:
		// The caller's context has ended. The store may not even have been asked.
		return
	case code != gatehouse.CodeUnavailable || errors.Is(err, cas.ErrConflict):
		b.lastReply.Store(int64(ended))
		return
	}
	// The call failed. It opens the breaker only if it cost time, and no other call was answered since it
	// began, be it one of this breaker or one that the store makes for itself.
	switch took := ended - began; {
	case took < b.config.Timeout/slowShare, b.lastReply.Load() > int64(began), b.Answered(took):
		return
	}
	b.openBreaker(err)
}

// openBreaker opens the breaker, if no other call was first, and schedules the first probe.
func (b *Breaker) openBreaker(err error) {
	// The error begins with the key of the command that failed, which other commands must not repeat.
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	// Many calls fail together. Only the first may report the outage and start a probe.
	if !b.unreachable.CompareAndSwap(nil, &absentStore{since: time.Now(), err: err}) {
		return
	}
	if b.config.Changed != nil {
		b.config.Changed(err)
	}
	b.scheduleProbe()
}

// scheduleProbe probes the store after a while, unless the breaker is closed for good.
func (b *Breaker) scheduleProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.work.Add(1)
	b.timer = time.AfterFunc(probeAfter+rand.N(probeAfter), func() {
		defer b.work.Done()
		b.probeStore()
	})
}

// probeNames is how many names are probed in turn: in a cluster they are on different machines.
const probeNames = 64

// probeStore asks the store for the statistics of a name that does not exist, which changes nothing. Any
// answer but CodeUnavailable closes the breaker.
func (b *Breaker) probeStore() {
	b.probes++
	name := "gatehouse/probe/" + strconv.FormatUint(b.probes%probeNames, 10)
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: name}
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	err := (&control.Change{Key: key, Turns: turns}).ApplyTo(b.ProbedStore)
	if gatehouse.CodeOf(err) == gatehouse.CodeUnavailable {
		b.scheduleProbe()
		return
	}
	b.lastReply.Store(int64(time.Since(b.start)))
	b.unreachable.Store(nil)
	if b.config.Changed != nil {
		b.config.Changed(nil)
	}
	b.sendPendingUndos()
}

// Close ends probing. The breaker must not be used after it.
func (b *Breaker) Close() {
	b.mu.Lock()
	b.closed = true
	// A timer that was stopped in time will not call Done itself.
	if b.timer != nil && b.timer.Stop() {
		b.work.Done()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// maxPendingUndos bounds how many undos are remembered. What the others would undo ends when it expires.
const maxPendingUndos = 10_000

// A deferredUndo is an undo that is sent once the store responds again, because a command that would have
// undone something, or has left something behind, was not sent.
type deferredUndo struct {
	key   gatehouse.Key
	turn  control.Turn
	joint []control.Part // instead, if it is of a grant over several names
}

// keepUndos remembers the undos of a queue that is not sent to the store: those in the queue, and those of
// commands at a barrier, which the store still counts as waiting. It reports false, and remembers nothing, if
// the store has come back: then the queue must be sent.
func (b *Breaker) keepUndos(key gatehouse.Key, queue []control.Turn) (away bool) {
	// Once more under the lock: sendPendingUndos empties the list under it after the breaker has closed, and
	// an undo that came later would never be sent.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unreachable.Load() == nil {
		return false
	}
	for i := range queue {
		turn := &queue[i]
		arrived := key.Kind == gatehouse.Barrier && turn.Ticket != 0
		// A ticket that waits at a barrier may have been counted there by an earlier try, and would go on
		// counting. An undo without a grant ends that.
		switch {
		case len(b.pendingUndos) == maxPendingUndos:
		case turn.Op == gatehouse.OpUndo && turn.Granted != nil:
			one := deferredUndo{key: key, turn: control.UndoOf(turn, turn.Granted)}
			b.pendingUndos = append(b.pendingUndos, one)
		case arrived && (turn.Op == gatehouse.OpWait || turn.Op == gatehouse.OpUndo):
			b.pendingUndos = append(b.pendingUndos, deferredUndo{key: key, turn: control.UndoOf(turn, nil)})
		}
	}
	return true
}

// sendPendingUndos sends the pending undos, until the store is unreachable again. Errors are ignored: the
// store itself repeats an undo of which it does not know whether it took effect.
func (b *Breaker) sendPendingUndos() {
	for {
		b.mu.Lock()
		if len(b.pendingUndos) == 0 || b.closed || b.unreachable.Load() != nil {
			b.mu.Unlock()
			return
		}
		// One at a time, and by way of the breaker as any other: a store that goes away meanwhile opens it,
		// which ends the loop and keeps the rest.
		one := b.pendingUndos[0]
		b.pendingUndos = b.pendingUndos[1:]
		b.mu.Unlock()
		if one.joint != nil {
			b.sendJoint(one.joint)
			continue
		}
		_ = (&control.Change{Key: one.key, Turns: []control.Turn{one.turn}}).ApplyTo(b)
	}
}
