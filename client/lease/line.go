package lease

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Source is an amount that changes, such as a [Resource]. Limiters follow it.
type Source interface {
	// Capacity returns the amount now; -1 means unlimited.
	Capacity() float64

	// Changed returns a channel that is closed when Capacity next changes.
	Changed() <-chan struct{}

	// Done returns a channel that is closed when the amount will be 0 from now on.
	Done() <-chan struct{}
}

// A Claim is a Source that accepts how much is wanted of it. A [Resource] is one.
type Claim interface {
	Source

	// Want asks for another amount.
	Want(wants float64) error
}

// A Waiter lets its callers through when there is capacity for them. All limiters of this package are
// Waiters, and so is any other type with this method.
type Waiter interface {
	// Wait returns nil when the caller may go on, and an error when it may not, such as when ctx ended.
	Wait(ctx context.Context) error
}

// A line is where callers wait that cannot go at once, in order of arrival. Only the first of them tries,
// each time that it may have become possible.
type line struct {
	source  Source
	waiting atomic.Int64 // callers
	closed  atomic.Bool
	done    chan struct{} // closed by close

	mu    sync.Mutex
	queue list.List // of chan struct{}: signals to be first, and then to try again
}

func newLine(source Source) *line { return &line{source: source, done: make(chan struct{})} }

// close ends all waiting, for good.
func (l *line) close() {
	if !l.closed.Swap(true) {
		close(l.done)
	}
}

// hasEnded reports whether the line was closed or the source has ended.
func (l *line) hasEnded() bool { return l.closed.Load() || isClosed(l.source.Done()) }

// checkOpen returns why this caller may not go on, whatever the capacity: its context or the line has ended.
func (l *line) checkOpen(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return contextError(ctx)
	}
	if l.hasEnded() {
		return ErrClosed
	}
	return nil
}

// contextError is the error of a caller whose context ended first.
func contextError(ctx context.Context) error {
	return gatehouse.Errorf(gatehouse.CodeTimeout, "wait for capacity: %w", ctx.Err())
}

// forever is how long to wait for something that only a change of capacity can bring.
const forever = time.Duration(math.MaxInt64)

// An admitter decides for the first in line: a RateLimiter or a Gauge.
type admitter interface {
	// tryAdmit reports whether the first in line goes now, and if not, after how long to try again. arrived
	// is when that caller joined the line.
	tryAdmit(arrived time.Time) (ok bool, again time.Duration)

	// stopWaiting is called when the first in line leaves, admitted or not.
	stopWaiting()
}

// waitInLine returns nil as soon as the caller is first in line and the admitter lets it through.
func (l *line) waitInLine(ctx context.Context, d admitter) error {
	arrived, first := time.Now(), make(chan struct{}, 1)
	ticket := l.joinLine(first)
	defer l.leaveLine(ticket)
	// First wait to be first. The capacity does not matter before, so its changes are not followed here.
	select {
	case <-first:
	case <-ctx.Done():
		return contextError(ctx)
	case <-l.done:
		return ErrClosed
	case <-l.source.Done():
		return ErrClosed
	}
	// Only the first in line can have something reserved, so only it has something to undo. This runs before
	// the deferred leaveLine, which lets the next caller be first.
	defer d.stopWaiting()
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		// The channel is fetched before the amount is looked at: a change in between closes it, and is not
		// missed.
		changed := l.source.Changed()
		ok, again := d.tryAdmit(arrived)
		if ok {
			return nil
		}
		timer.Reset(again)
		select {
		case <-timer.C:
		case <-changed:
		// A Gauge's holder has released one.
		case <-first:
		case <-ctx.Done():
			return contextError(ctx)
		case <-l.done:
			return ErrClosed
		case <-l.source.Done():
			return ErrClosed
		}
	}
}

// joinLine appends a caller to the line.
func (l *line) joinLine(first chan struct{}) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	ticket := l.queue.PushBack(first)
	l.waiting.Add(1)
	if l.queue.Front() == ticket {
		// The channel has room for one, so this does not block with the lock held.
		first <- struct{}{}
	}
	return ticket
}

// leaveLine removes a caller from the line, and lets the next be first.
func (l *line) leaveLine(ticket *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasFirst := l.queue.Front() == ticket
	l.queue.Remove(ticket)
	l.waiting.Add(-1)
	// All others still have somebody in front of them.
	if wasFirst {
		l.wakeFirstLocked()
	}
}

// wakeFirst makes the first in line try again, if there is one.
func (l *line) wakeFirst() {
	// The usual case, without the lock. A caller that joins right after this look tries once before it
	// waits, and so sees what has changed.
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeFirstLocked()
}

// wakeFirstLocked is wakeFirst for callers that hold the lock.
func (l *line) wakeFirstLocked() {
	if front := l.queue.Front(); front != nil {
		select {
		case front.Value.(chan struct{}) <- struct{}{}:
		default: // a signal is waiting for it already
		}
	}
}
