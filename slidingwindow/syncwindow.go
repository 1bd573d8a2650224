package slidingwindow

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// A SyncWindow counts together with those of other processes that have the same key. It is told what
// they counted, and tells what it counted, when an exchange is due. Its own lock guards it.
type SyncWindow struct {
	tally        // of the current window
	before tally // of the one that was current before

	mu     sync.Mutex
	key    string
	source uint64
	syncer Synchronizer
	share  *sharing // of syncer, if it is one of this package
	place  int      // among the windows of share, whose lock guards it
	grid   grid     // of the limiter, with a size of 0 if there is none
	limit  int64    // of the limiter

	pace    pace
	looks   int8 // how often the window before is still to be read
	exact   bool // every decision is exchanged, before and after
	turned  bool // the window before has not been asked for
	early   bool // the exchange under way is for that alone
	looked  bool // it was, and the next one need not ask again
	stopped bool
	settled chan struct{} // closed when the exchange under way is settled; nil if nobody waits for that

	watch   watch
	ahead   ahead
	foreign sync.Mutex // held during a call of a Synchronizer of somebody else's
	// together holds one thing during a whole decision if exact.
	together chan struct{}
}

// ahead is what was read of a window before the first call in it.
type ahead struct {
	start, total, previous int64
}

// looksBack is how often a plain store is asked for the window before: once when a window begins, and
// once an interval later, when others have told what they had not told by then. An Exchanger is asked
// each time, as that takes no round trip of its own.
const looksBack = 2

// NewSyncWindow returns a window that shares its counts under key through syncer, and the function
// that ends that. It calls syncer.Start.
func NewSyncWindow(key string, syncer Synchronizer) (*SyncWindow, StopFunc) {
	w := &SyncWindow{
		key: key, source: rand.Uint64(), syncer: syncer, share: sharingOf(syncer),
		looks: looksBack, turned: true,
	}
	syncer.Start()
	if w.share == nil {
		return w, sync.OnceFunc(syncer.Stop)
	}
	w.exact = w.share.blocking && w.share.interval == 0
	w.together = make(chan struct{}, 1)
	w.share.add(w)
	return w, func() { w.share.stop([]*SyncWindow{w}) }
}

// Start returns the beginning of the window.
func (w *SyncWindow) Start() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally.Start()
}

// Count returns how many events there were in the window, as far as known here.
func (w *SyncWindow) Count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// AddCount counts n more events, which others will be told of. The count stays between 0 and the
// largest int64.
func (w *SyncWindow) AddCount(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(n)
}

// Reset makes it the window that begins at s, with c events in it that others know of. What was
// counted in the window that ends and not told yet is told with the next exchange.
func (w *SyncWindow) Reset(s time.Time, c int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if start := nanoseconds(s); start != w.start {
		w.turn(start)
	}
	w.tally = tally{LocalWindow: LocalWindow{start: w.start, count: max(c, 0)}}
}

// Sync exchanges counts with the others, if that is due at now.
func (w *SyncWindow) Sync(now time.Time) {
	at := nanoseconds(now)
	w.mu.Lock()
	due := w.due(at)
	w.mu.Unlock()
	if due {
		w.exchange(at)
	}
}

// adopt makes it the window of a limiter.
func (w *SyncWindow) adopt(g grid, limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grid, w.limit = g, limit
}

// turn goes on to a later window.
func (w *SyncWindow) turn(start int64) {
	w.before = w.tally
	w.tally = tally{LocalWindow: LocalWindow{start: start}}
	w.looks, w.turned = looksBack, true
	switch w.ahead.start {
	case start:
		w.count, w.total = w.ahead.total, w.ahead.total
		w.hearPrevious(start-w.grid.size, w.ahead.previous)
	case start - w.grid.size:
		w.hearPrevious(start-w.grid.size, w.ahead.total)
	}
}

// hearPrevious takes the store's total of the window before the current one.
func (w *SyncWindow) hearPrevious(start, total int64) {
	if w.before.start != start {
		if total == 0 {
			return // what is there serves if the clock has jumped ahead and comes back
		}
		w.before = tally{LocalWindow: LocalWindow{start: start}}
	}
	w.before.total = max(w.before.total, total)
	w.before.count = w.heard(w.before.count, plus(w.before.unpushed(), total))
}

// heard is the count of the window before when the store has told more of it: not beyond the limit. If
// all processes knew how far beyond it they went together, all would begin late in the next window, at
// the same moment, and go beyond it further still.
func (w *SyncWindow) heard(before, now int64) int64 { return max(before, min(now, w.limit)) }

// restore goes back to the window before, as its counts were before the clock jumped ahead.
func (w *SyncWindow) restore(older int64) {
	w.tally = w.before
	w.before = tally{LocalWindow: LocalWindow{start: w.start - w.grid.size, count: older}}
	w.looks, w.turned = looksBack, true
}

// relabel gives the counts the name of an earlier window. Others were told of them by their old name.
func (w *SyncWindow) relabel(start int64) {
	previous := int64(0)
	if w.before.start == w.start-w.grid.size {
		previous = w.before.count
	}
	w.before = tally{LocalWindow: LocalWindow{start: start - w.grid.size, count: previous}}
	w.tally = tally{LocalWindow: LocalWindow{start: start, count: w.count}}
	w.looks, w.turned = looksBack, true
}

// keep is for how long counts are worth something: in the next window they still weigh.
func (w *SyncWindow) keep() time.Duration {
	if w.grid.size > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return time.Duration(2 * w.grid.size)
}
