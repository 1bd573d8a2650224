package slidingwindow

import (
	"sync/atomic"
	"time"
)

// A round is the windows with one interval. Now and then those are exchanged whose callers have not
// seen to it.
type round struct {
	windows map[*SyncWindow]struct{}
	next    time.Time // when it is looked at, by monotonic
}

// roundsPerInterval is how often the windows of a round are looked at. With an exchange due a quarter
// of an interval after callers should have made it, an idle window is exchanged within one and a half.
const roundsPerInterval = 4

// shortestRound is the least time between two looks.
const shortestRound = time.Millisecond

// idleWindows is for how many windows nobody may call until a window is not exchanged any more. The
// first decision after that is made without knowing what others did; an exchange follows it at once.
const idleWindows = 16

// A watch is what is known about a window's callers.
type watch struct {
	on        atomic.Bool // the courier looks at this window
	exchanged int64       // when an exchange began last, by wallClock
	asked     int64       // when a caller made one begin, by wallClock
	skew      int64       // by how much the callers' time was ahead of wallClock
}

// called notes that a caller's call at now makes an exchange begin.
func (w *watch) called(now, wall int64) {
	w.exchanged, w.asked, w.skew = wall, wall, now-wall
}

// watch has the courier look at a window.
func (c *courier) watch(w *SyncWindow) {
	if w.watch.on.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.watch.on.Store(true)
	interval := w.share.interval
	r := c.rounds[interval]
	if r == nil {
		r = &round{windows: map[*SyncWindow]struct{}{}, next: monotonic().Add(period(interval))}
		if c.rounds == nil {
			c.rounds = map[time.Duration]*round{}
		}
		c.rounds[interval] = r
		c.arm()
	}
	r.windows[w] = struct{}{}
}

// period is the time between two looks at windows with this interval.
func period(interval time.Duration) time.Duration {
	return max(interval/roundsPerInterval, shortestRound)
}

// arm sets the timer for the round that is next. It is called with the lock held.
func (c *courier) arm() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	var next time.Time
	for _, r := range c.rounds {
		if next.IsZero() || r.next.Before(next) {
			next = r.next
		}
	}
	if !next.IsZero() {
		c.timer = time.AfterFunc(next.Sub(monotonic()), c.look)
	}
}

// look submits the exchanges of windows that nobody calls.
func (c *courier) look() {
	wall, now := wallClock(), monotonic()
	c.mu.Lock()
	var windows []*SyncWindow
	for interval, r := range c.rounds {
		if r.next.After(now) {
			continue
		}
		r.next = now.Add(period(interval))
		for w := range r.windows {
			windows = append(windows, w)
		}
	}
	c.arm()
	c.mu.Unlock()
	var due []delivery
	for _, w := range windows {
		e, state := w.idle(wall)
		switch state {
		case idleDue:
			due = append(due, delivery{w.share, e})
		case idleOver:
			c.drop(w)
		}
	}
	if len(due) > 0 {
		c.submit(due...)
	}
}

// drop looks at a window no more, unless it was called again meanwhile.
func (c *courier) drop(w *SyncWindow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.watch.on.Load() {
		c.remove(w)
	}
}

// forget looks at a window no more.
func (c *courier) forget(w *SyncWindow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.watch.on.Store(false)
	c.remove(w)
}

func (c *courier) remove(w *SyncWindow) {
	interval := w.share.interval
	r := c.rounds[interval]
	if r == nil {
		return
	}
	delete(r.windows, w)
	if len(r.windows) == 0 {
		delete(c.rounds, interval)
		c.arm()
	}
}

// An idleState says what is to be done about a window.
type idleState int

const (
	idleNot  idleState = iota // its callers see to it
	idleDue                   // nobody has for longer than an interval
	idleOver                  // nobody has for long
)

// idle begins an exchange if no caller has for longer than an interval.
func (w *SyncWindow) idle(wall int64) (e errand, state idleState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if quiet := wall - w.watch.asked; quiet/idleWindows > max(w.grid.size, int64(w.share.interval)) {
		w.watch.on.Store(false)
		return e, idleOver
	}
	due := max(w.share.interval, leastPause)
	if w.pace.failures > 0 {
		due = max(due, time.Duration(w.pace.wait))
	}
	age := wall - w.watch.exchanged
	if w.stopped || w.pace.busy || age >= 0 && age < int64(due+due/roundsPerInterval) {
		return e, idleNot
	}
	w.watch.exchanged, w.pace.busy = wall, true
	return errand{w, w.pushesAt(wall + w.watch.skew)}, idleDue
}

// pushesAt are what an exchange consists of when the callers' time, of which none of them has told,
// must be now: if other windows than the known ones then matter, it reads those ahead.
func (w *SyncWindow) pushesAt(now int64) []Push {
	if w.grid.size == 0 {
		return w.pushes()
	}
	start := w.grid.floor(now)
	if start <= w.start {
		return w.pushes()
	}
	if w.ahead.start != start {
		w.ahead = ahead{start: start}
	}
	previous := start - w.grid.size
	pushes := []Push{w.push(&tally{LocalWindow: LocalWindow{start: start}})}
	if w.unpushed() > 0 || previous == w.start {
		pushes = append(pushes, w.push(&w.tally))
	}
	if previous != w.start {
		pushes = append(pushes, w.push(&tally{LocalWindow: LocalWindow{start: previous}}))
	}
	return pushes
}

// learn takes the answer to a push that read ahead.
func (a *ahead) learn(p *Push, size int64) {
	switch p.Start {
	case a.start:
		a.total = max(a.total, p.Total)
	case a.start - size:
		a.previous = max(a.previous, p.Total)
	}
}
