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
	// Capacity is the amount now; -1 is any amount.
	Capacity() float64

	// Changed returns a channel that is closed when Capacity next changes.
	Changed() <-chan struct{}

	// Done returns a channel that is closed when there will never be any amount again.
	Done() <-chan struct{}
}

// A Claim is a Source that can be told how much is wanted of it. A [Resource] is one.
type Claim interface {
	Source

	// Want asks for another amount.
	Want(wants float64) error
}

// A Waiter lets its callers through when there is capacity for them. The limiters are, and so is anything
// else with this method.
type Waiter interface {
	// Wait returns nil when the caller may go, an error when it may not, such as when ctx ended.
	Wait(ctx context.Context) error
}

// A line is where callers wait that cannot go at once, in order of arrival. The first of them alone tries,
// whenever that may have become possible.
type line struct {
	source  Source
	waiting atomic.Int64 // callers
	closed  atomic.Bool
	done    chan struct{} // closed by close
	once    sync.Once

	mu    sync.Mutex
	queue list.List // of chan struct{}, which tell of being first, and that something changed
}

func newLine(source Source) *line { return &line{source: source, done: make(chan struct{})} }

// close ends all waiting, for good.
func (l *line) close() {
	l.once.Do(func() {
		l.closed.Store(true)
		close(l.done)
	})
}

// hasEnded reports whether the line was closed or the source has ended.
func (l *line) hasEnded() bool {
	if l.closed.Load() {
		return true
	}
	select {
	case <-l.source.Done():
		return true
	default:
		return false
	}
}

// checkOpen says why nobody may go at all any more, or this caller may not.
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

// forever is how long to wait for something that only a change can bring.
const forever = time.Duration(math.MaxInt64)

// A admitter is what a line leads to.
type admitter interface {
	// tryAdmit reports whether the first in line goes now, else after how long to try again. It arrived
	// when it found that it had to wait.
	tryAdmit(arrived time.Time) (ok bool, again time.Duration)

	// stopWaiting is called when the first in line goes away, let through or not.
	stopWaiting()
}

// waitInLine returns nil as soon as the caller is first in line and the door lets it through.
func (l *line) waitInLine(ctx context.Context, d admitter) error {
	arrived, first := time.Now(), make(chan struct{}, 1)
	ticket := l.joinLine(first)
	defer l.leaveLine(ticket)
	select {
	case <-first:
	case <-ctx.Done():
		return contextError(ctx)
	case <-l.done:
		return ErrClosed
	case <-l.source.Done():
		return ErrClosed
	}
	defer d.stopWaiting()
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		changed := l.source.Changed() // before the source is looked at
		ok, again := d.tryAdmit(arrived)
		if ok {
			return nil
		}
		timer.Reset(again)
		select {
		case <-timer.C:
		case <-changed:
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

// joinLine appends to the line.
func (l *line) joinLine(first chan struct{}) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	ticket := l.queue.PushBack(first)
	l.waiting.Add(1)
	if l.queue.Front() == ticket {
		first <- struct{}{}
	}
	return ticket
}

// leaveLine takes out of the line, and lets the next be first.
func (l *line) leaveLine(ticket *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasFirst := l.queue.Front() == ticket
	l.queue.Remove(ticket)
	l.waiting.Add(-1)
	if wasFirst {
		l.wakeFirstLocked()
	}
}

// wakeFirst makes the first in line try again, if somebody waits.
func (l *line) wakeFirst() {
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeFirstLocked()
}

// wakeFirstLocked is call with the lock held.
func (l *line) wakeFirstLocked() {
	if front := l.queue.Front(); front != nil {
		select {
		case front.Value.(chan struct{}) <- struct{}{}:
		default: // it was told already
		}
	}
}
