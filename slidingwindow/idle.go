package slidingwindow

import (
	"sync/atomic"
	"time"
)

// intervalWindows are the windows with one interval. From time to time those are exchanged whose callers have
// not done so.
type intervalWindows struct {
	windows map[*SyncWindow]struct{}
	next    time.Time // when it is looked at, by monotonic
}

// sweepsPerInterval is how often per interval these windows are checked. An exchange is due a quarter of an
// interval after callers should have made it, so an idle window is exchanged within one and a half.
const sweepsPerInterval = 4

// minSweepPeriod is the least time between two sweeps.
const minSweepPeriod = time.Millisecond

// idleWindows is the number of windows without a call after which a window is not exchanged any more. The
// first decision after that is made without knowing what others did; an exchange follows it at once.
const idleWindows = 16

// callerActivity is what is known about a window's callers.
type callerActivity struct {
	on          atomic.Bool // the background syncer watches this window
	exchangedAt int64       // when an exchange began last, by wallClock
	calledAt    int64       // when a caller made one begin, by wallClock
	skew        int64       // by how much the callers' time was ahead of wallClock
}

// noteExchange notes that a caller's call at now makes an exchange begin.
func (w *callerActivity) noteExchange(now, wall int64) {
	w.exchangedAt, w.calledAt, w.skew = wall, wall, now-wall
}

// watchWindow makes the syncer watch a window.
func (c *backgroundSyncer) watchWindow(w *SyncWindow) {
	// Nearly always so, and then without the lock that all windows of the process share.
	if w.callers.on.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.callers.on.Store(true)
	interval := w.group.interval
	r := c.intervals[interval]
	if r == nil {
		r = &intervalWindows{windows: map[*SyncWindow]struct{}{}}
		r.next = monotonicNow().Add(sweepPeriod(interval))
		if c.intervals == nil {
			c.intervals = map[time.Duration]*intervalWindows{}
		}
		c.intervals[interval] = r
		c.armTimer()
	}
	r.windows[w] = struct{}{}
}

// sweepPeriod returns the time between two sweeps of windows with this interval.
func sweepPeriod(interval time.Duration) time.Duration {
	return max(interval/sweepsPerInterval, minSweepPeriod)
}

// armTimer sets the timer for the next sweep. It is called with the lock held.
func (c *backgroundSyncer) armTimer() {
	// A timer that has fired already may run sweepIdle once too often, which finds nothing to do.
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	var next time.Time
	for _, r := range c.intervals {
		if next.IsZero() || r.next.Before(next) {
			next = r.next
		}
	}
	if !next.IsZero() {
		c.timer = time.AfterFunc(next.Sub(monotonicNow()), c.sweepIdle)
	}
}

// sweepIdle submits the exchanges of windows that are not called.
func (c *backgroundSyncer) sweepIdle() {
	wall, now := wallClock(), monotonicNow()
	c.mu.Lock()
	var windows []*SyncWindow
	for interval, r := range c.intervals {
		if r.next.After(now) {
			continue
		}
		r.next = now.Add(sweepPeriod(interval))
		for w := range r.windows {
			windows = append(windows, w)
		}
	}
	c.armTimer()
	c.mu.Unlock()
	// The windows' locks are taken without the syncer's: a caller holds its window's lock when it calls
	// watchWindow.
	var due []syncJob
	for _, w := range windows {
		e, over := w.idleExchange(wall)
		if over {
			c.unwatch(w, false)
		}
		if len(e.pushes) > 0 {
			due = append(due, syncJob{w.group, e})
		}
	}
	if len(due) > 0 {
		c.submitJobs(due...)
	}
}

// unwatch stops watching a window: one that is stopped in any case, and one that is idle unless it was called
// again meanwhile.
func (c *backgroundSyncer) unwatch(w *SyncWindow, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stopped {
		w.callers.on.Store(false)
	}
	interval := w.group.interval
	r := c.intervals[interval]
	if r == nil || w.callers.on.Load() {
		return
	}
	delete(r.windows, w)
	// Without windows there is no timer either, so an unused package costs nothing.
	if len(r.windows) == 0 {
		delete(c.intervals, interval)
		c.armTimer()
	}
}

// idleExchange begins an exchange if no caller has done so for longer than an interval; otherwise the request
// has no pushes. over says that no caller has for so long that the window is to be left alone.
func (w *SyncWindow) idleExchange(wall int64) (e storeRequest, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if quiet := wall - w.callers.calledAt; quiet/idleWindows > max(w.grid.size, int64(w.group.interval)) {
		w.callers.on.Store(false)
		return e, true
	}
	// After failures the longer pause holds here, too.
	due := max(w.group.interval, minPause)
	if w.pace.failures > 0 {
		due = max(due, time.Duration(w.pace.wait))
	}
	age := wall - w.callers.exchangedAt
	// A negative age means that the wall clock was set back; then the exchange is made.
	if w.stopped || w.pace.busy || age >= 0 && age < int64(due+due/sweepsPerInterval) {
		return e, false
	}
	w.callers.exchangedAt, w.pace.busy = wall, true
	return storeRequest{w, w.pushesAt(wall + w.callers.skew)}, false
}

// pushesAt returns the pushes of an exchange at now, which is what the callers' clock must show although none
// has called. If that lies in a later window than the known ones, the exchange reads ahead.
func (w *SyncWindow) pushesAt(now int64) []Push {
	if w.grid.size == 0 {
		return w.makePushes()
	}
	start := w.grid.windowStart(now)
	if start <= w.start {
		return w.makePushes()
	}
	// What was read ahead of another window is of no use any more.
	if w.ahead.start != start {
		w.ahead = readAhead{start: start}
	}
	// The window has turned for all others, but not here: only a caller turns it. So the exchange reads the
	// new window and the one before it, and pushes what was counted here in the old one.
	previous := start - w.grid.size
	pushes := []Push{w.makePush(&windowCounts{LocalWindow: LocalWindow{start: start}})}
	if w.unpushed() > 0 || previous == w.start {
		pushes = append(pushes, w.makePush(&w.windowCounts))
	}
	if previous != w.start {
		pushes = append(pushes, w.makePush(&windowCounts{LocalWindow: LocalWindow{start: previous}}))
	}
	return pushes
}

// applyReply applies the reply to a push that read ahead.
func (a *readAhead) applyReply(p *Push, size int64) {
	switch p.Start {
	case a.start:
		a.total = max(a.total, p.Total)
	case a.start - size:
		a.previous = max(a.previous, p.Total)
	}
}
