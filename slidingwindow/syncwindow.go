package slidingwindow

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A SyncWindow counts together with those of other processes that have the same key. When an exchange is due,
// it pushes what it counted and reads what they counted. Its own lock guards it.
type SyncWindow struct {
	windowCounts              // of the current window
	last         windowCounts // of the window that was current before

	mu       sync.Mutex
	key      string
	source   uint64
	syncer   Synchronizer
	group    *syncGroup // of syncer, if it is one of this package
	position int        // in group.windows, guarded by the group's lock
	grid     windowGrid // of the limiter, with a size of 0 if there is none
	limit    int64      // of the limiter

	pace           syncPace
	previousReads  int8 // how often the previous window is still to be read
	exact          bool // every decision is exchanged, before and after
	previousUnread bool // the previous window has not been read at all
	previousOnly   bool // the exchange under way is for the previous window alone
	previousRead   bool // it was read, and the next exchange need not do so again
	stopped        bool
	replied        chan struct{} // closed when the exchange under way ends; nil if none waits for it

	callers callerActivity
	ahead   readAhead
	foreign sync.Mutex // held during a call of a Synchronizer of another package
	// decisionLock holds one thing during a whole decision if exact.
	decisionLock chan struct{}
}

// A readAhead is what was read of a window before the first call in it.
type readAhead struct {
	start, total, previous int64
}

// readsOfPrevious is how often a plain store is asked for the previous window: once when a window begins, and
// once an interval later, when others have pushed what they had not pushed by then. An Exchanger is asked
// each time, as that takes no additional round trip.
const readsOfPrevious = 2

// NewSyncWindow returns a window that shares its counts under key through syncer, and the function
// that ends that. It calls syncer.Start.
func NewSyncWindow(key string, syncer Synchronizer) (*SyncWindow, StopFunc) {
	w := &SyncWindow{
		key: key, source: rand.Uint64(), syncer: syncer, group: syncGroupOf(syncer),
		previousReads: readsOfPrevious, previousUnread: true,
	}
	syncer.Start()
	// A synchronizer of another package is stopped once for this window, as it was started.
	if w.group == nil {
		return w, sync.OnceFunc(syncer.Stop)
	}
	w.exact = w.group.blocking && w.group.interval == 0
	w.decisionLock = make(chan struct{}, 1)
	w.group.addWindow(w)
	return w, func() { w.group.stopWindows([]*SyncWindow{w}) }
}

// Start returns the beginning of the window.
func (w *SyncWindow) Start() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.windowCounts.Start()
}

// Count returns how many events there were in the window, as far as known here.
func (w *SyncWindow) Count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// AddCount counts n more events, which are pushed with the next exchange. The count stays between 0 and the
// largest int64.
func (w *SyncWindow) AddCount(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addOwn(n)
}

// Reset makes it the window that begins at s, with c events in it that others know of. What was counted in
// the window that ends and not pushed yet is pushed with the next exchange.
func (w *SyncWindow) Reset(s time.Time, c int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// For the same window only the count is set.
	if start := unixNano(s); start != w.start {
		w.turnTo(start)
	}
	w.windowCounts = windowCounts{LocalWindow: LocalWindow{start: w.start, count: max(c, 0)}}
}

// Sync exchanges counts with the others, if that is due at now.
func (w *SyncWindow) Sync(now time.Time) {
	at := unixNano(now)
	w.mu.Lock()
	due := w.isDue(at)
	w.mu.Unlock()
	if due {
		w.exchangeCounts(at)
	}
}

// setLimiter makes it the window of a limiter.
func (w *SyncWindow) setLimiter(g windowGrid, limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grid, w.limit = g, limit
}

// turnTo goes on to a later window.
func (w *SyncWindow) turnTo(start int64) {
	w.last = w.windowCounts
	w.windowCounts = windowCounts{LocalWindow: LocalWindow{start: start}}
	w.previousReads, w.previousUnread = readsOfPrevious, true
	// What was read ahead may be of this window, or of the previous one if no call came in that.
	switch w.ahead.start {
	case start:
		w.count, w.total = w.ahead.total, w.ahead.total
		w.learnPrevious(start-w.grid.size, w.ahead.previous)
	case start - w.grid.size:
		w.learnPrevious(start-w.grid.size, w.ahead.total)
	}
}

// learnPrevious applies the store's total of the previous window.
func (w *SyncWindow) learnPrevious(start, total int64) {
	if w.last.start != start {
		if total == 0 {
			return // what is there serves if the clock has jumped ahead and comes back
		}
		w.last = windowCounts{LocalWindow: LocalWindow{start: start}}
	}
	w.last.total = max(w.last.total, total)
	w.last.count = w.cappedCount(w.last.count, addSaturating(w.last.unpushed(), total))
}

// cappedCount returns the count of the previous window after the store has reported more of it: not beyond
// the limit. If all processes knew how far beyond it they went together, all would begin late in the next
// window, at the same moment, and exceed it even more.
func (w *SyncWindow) cappedCount(before, now int64) int64 { return max(before, min(now, w.limit)) }

// restorePrevious goes back to the previous window, with its counts from before the clock jumped ahead.
func (w *SyncWindow) restorePrevious(older int64) {
	w.windowCounts = w.last
	w.last = windowCounts{LocalWindow: LocalWindow{start: w.start - w.grid.size, count: older}}
	w.previousReads, w.previousUnread = readsOfPrevious, true
}

// relabelCounts gives the counts the start of an earlier window. Others have them under the old start, so
// they count as confirmed.
func (w *SyncWindow) relabelCounts(start int64) {
	previous := int64(0)
	// Counts of an older window have no weight any more.
	if w.last.start == w.start-w.grid.size {
		previous = w.last.count
	}
	w.last = windowCounts{LocalWindow: LocalWindow{start: start - w.grid.size, count: previous}}
	w.windowCounts = windowCounts{LocalWindow: LocalWindow{start: start, count: w.count}}
	w.previousReads, w.previousUnread = readsOfPrevious, true
}

// keepTime returns for how long counts are needed: in the next window they still have weight.
func (w *SyncWindow) keepTime() time.Duration {
	return time.Duration(addSaturating(w.grid.size, w.grid.size))
}
