package slidingwindow

import (
	"fmt"
	"sync"
	"time"
)

// A Limiter lets a number of events pass in a window of time. It is safe for use by many goroutines. Make one
// with NewLimiter.
type Limiter struct {
	windowGrid
	clock anchoredClock

	// mu guards what follows and the window. It is the window's own lock if that has one.
	mu    *sync.Mutex
	limit int64
	older int64 // the count before previous, as it was when the window turned last

	// current and previous are where the counts are. For a Window of another package, current is a
	// copy made for one call.
	current  *LocalWindow
	previous *LocalWindow

	// One of these is not nil, unless the window is a LocalWindow.
	shared  *SyncWindow
	strict  *StrictWindow
	foreign Window

	own struct {
		sync.Mutex
		current, previous LocalWindow
	}
}

// NewLimiter returns a limiter that lets limit events pass in size, and the function that ends the
// exchange of its counts. It panics for a size of 0 or less, and for a newWindow that returns none.
func NewLimiter(size time.Duration, limit int64, newWindow NewWindow) (*Limiter, StopFunc) {
	checkSize(size)
	window, stop := newWindow()
	if window == nil {
		panic("slidingwindow: newWindow returned no window, want one")
	}
	if stop == nil {
		stop = func() {}
	}
	l := &Limiter{windowGrid: newWindowGrid(size), limit: limit}
	l.mu, l.current, l.previous = &l.own.Mutex, &l.own.current, &l.own.previous
	// The limiter works on the counts inside the windows of this package, under their lock if they have one.
	// Others are only used through the interface.
	switch window := window.(type) {
	case *LocalWindow:
		l.current = window
	case *SyncWindow:
		window.setLimiter(l.windowGrid, limit)
		l.shared, l.mu = window, &window.mu
		l.current, l.previous = &window.LocalWindow, &window.last.LocalWindow
	case *StrictWindow:
		window.mu.Lock()
		window.grid = l.windowGrid
		window.mu.Unlock()
		l.strict, l.mu, l.current = window, &window.mu, &window.LocalWindow
	default:
		l.foreign = window
	}
	return l, stop
}

func checkSize(size time.Duration) {
	if size <= 0 {
		panic(fmt.Sprintf("slidingwindow: a limiter's size is %v, want more than 0", size))
	}
}

// Size returns the length of the window.
func (l *Limiter) Size() time.Duration { return time.Duration(l.size) }

// Limit returns how many events pass in one window.
func (l *Limiter) Limit() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// SetLimit sets how many events pass in one window, from the next decision on. Counts are kept.
func (l *Limiter) SetLimit(newLimit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = newLimit
	if l.shared != nil {
		l.shared.limit = newLimit
	}
}

// Err returns why the last exchange with the store failed, and nil when it went well. While a
// SyncWindow's exchange fails, the limiter decides by what it knows. While a StrictWindow's does, it
// lets nothing pass beyond what it has taken.
func (l *Limiter) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shared != nil:
		return l.shared.pace.err
	case l.strict != nil:
		return l.strict.lastError()
	default:
		return nil
	}
}

// Allow is AllowN for one event now.
func (l *Limiter) Allow() bool { return l.allowAt(l.clock.now(), 1) }

// AllowN reports whether n events may happen at now: all of them or none. If so they are counted. An n
// of 0 passes if the estimate is within the limit, an n below 0 never does.
func (l *Limiter) AllowN(now time.Time, n int64) bool { return l.allowAt(unixNano(now), n) }

func (l *Limiter) allowAt(now, n int64) bool {
	switch {
	case n < 0:
		return false
	case l.strict != nil:
		return l.strict.allowStrict(l, now, n)
	case l.shared != nil:
		return l.allowShared(now, n)
	case l.foreign != nil:
		return l.allowForeign(now, n)
	}
	l.mu.Lock()
	l.turnTo(now)
	ok := l.fits(now, n)
	if ok {
		l.current.count += n
	}
	l.mu.Unlock()
	return ok
}

// allowShared decides as allowAt does and exchanges counts, but never while it holds the lock.
func (l *Limiter) allowShared(now, n int64) bool {
	w := l.shared
	// In exact mode the decisions of this process follow one another, each between two exchanges. A caller
	// that could not get its turn in time decides without the store.
	asks := !w.exact || w.lockDecision()
	if w.exact && asks {
		defer w.unlockDecision()
	}
	l.mu.Lock()
	l.turnTo(now)
	if asks && w.asksFirst(now) {
		w.askStore(now)
		// The lock was released meanwhile, and another caller may have turned the window.
		l.turnTo(now)
	}
	ok := l.fits(now, n)
	if ok {
		w.addOwn(n)
	}
	due := asks && w.isDue(now)
	l.mu.Unlock()
	if due {
		w.exchangeCounts(now)
	}
	return ok
}

// allowForeign decides with a Window of another package, which expects all calls under the lock.
func (l *Limiter) allowForeign(now, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.Reset(l.foreign.Start(), l.foreign.Count())
	start := l.current.start
	l.turnTo(now)
	// The foreign window is reset only when the window turns: it may count what happens elsewhere.
	if l.current.start != start {
		l.foreign.Reset(l.current.Start(), l.current.Count())
	}
	ok := l.fits(now, n)
	if ok {
		l.foreign.AddCount(n)
	}
	l.foreign.Sync(timeOf(now))
	return ok
}

// fits reports whether n more events, 0 or more, are within the limit.
func (l *Limiter) fits(now, n int64) bool {
	if l.limit < l.current.count {
		return false
	}
	// No overflow: the count is never negative, and at most the limit here.
	room := l.limit - l.current.count
	if n > room {
		return false
	}
	previous := l.previousCount()
	// It fits even at full weight, so the division can be saved.
	if previous <= room-n {
		return true
	}
	return weightOf(previous, l.timeLeft(l.current.start, now), l.size) <= room-n
}

// previousCount returns the count of the window just before the current one.
func (l *Limiter) previousCount() int64 {
	if l.previous.start != l.current.start-l.size {
		return 0
	}
	return l.previous.count
}

// turnTo makes the window that holds now the current one.
//
// A time before the current window is taken for its first instant: calls that overtake one another do not
// turn it back. Only a time more than a whole window before it means that the clock was set back, or that it
// had jumped ahead.
func (l *Limiter) turnTo(now int64) {
	if uint64(now-l.current.start) < uint64(l.size) {
		return
	}
	start, current := l.windowStart(now), l.current.start
	switch {
	case start > current:
		l.turnForward(start)
	case now < current && uint64(current)-uint64(now) > uint64(l.size):
		l.turnBack(start)
	}
}

func (l *Limiter) turnForward(start int64) {
	l.older = l.previousCount()
	if l.shared != nil {
		l.shared.turnTo(start)
		return
	}
	*l.previous, *l.current = *l.current, LocalWindow{start: start}
}

// turnBack goes to an earlier window. No count is lost on the way, so that a clock that jumps lets nothing
// pass twice.
func (l *Limiter) turnBack(start int64) {
	moved := l.current.count
	before, gap := l.previous.start, uint64(l.current.start)-uint64(l.previous.start)
	// The previous window is later than the one to go to, or so close to the current one that the clock did
	// not jump when it turned. So the clock was set back, and the counts of now are kept under an earlier
	// name. Otherwise the clock had jumped ahead and comes back: the window of before is current again.
	if before > start || gap/2 < uint64(l.size) {
		l.relabelWindow(start)
		return
	}
	l.restoreWindow()
	if start > before {
		l.turnForward(start)
	}
	l.current.AddCount(moved)
}

// relabelWindow gives the counts the start of an earlier window: the clock was set back.
func (l *Limiter) relabelWindow(start int64) {
	if l.shared != nil {
		l.shared.relabelCounts(start)
		return
	}
	*l.previous = LocalWindow{start: start - l.size, count: l.previousCount()}
	l.current.start = start
}

// restoreWindow goes back to the window that was current before the clock jumped ahead.
func (l *Limiter) restoreWindow() {
	if l.shared != nil {
		l.shared.restorePrevious(l.older)
		return
	}
	*l.current = *l.previous
	*l.previous = LocalWindow{start: l.current.start - l.size, count: l.older}
}
