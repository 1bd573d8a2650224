package slidingwindow

import (
	"fmt"
	"sync"
	"time"
)

// A StrictWindow takes from a store before it lets anything pass. All processes together never let more than
// the limit pass in a fixed window, whatever their clocks say and however the store fails, as long as it does
// not lose counts.
//
// It takes a chunk at once and spends it without asking. What k processes have taken and not spent is refused
// to the others: at most k chunks of each window are wasted. What is left of a chunk when its window ends is
// given back when the next one is taken. Chunks of 1 waste nothing and ask the store each time. While the
// store fails, nothing passes beyond what was taken.
//
// Its key must not be that of a SyncWindow, and all processes must use the same size.
type StrictWindow struct {
	LocalWindow // the count is what passed here
	grid        windowGrid
	mu          sync.Mutex
	key         string
	store       Datastore
	chunk       int64

	left   int64 // taken and not spent
	taken  int64 // in this window, and not given back
	totals storeTotals

	forgot    bool // the store lost what was taken in this window
	stopped   bool
	leftovers []leftover
	request   *chunkRequest
	pace      syncPace
}

// storeTotals are what the store replied when it was asked last.
type storeTotals struct {
	asked    bool  // the store was asked in this window
	total    int64 // what all had taken in this window
	previous int64 // and in the one before
}

// A leftover is a part of a chunk that is to be given back.
type leftover struct{ start, n int64 }

// mostLeftovers is how many are kept while a store fails. Older ones no longer have weight in any window.
const mostLeftovers = 4

// pausesPerWindow is the part of a window for which a store that had nothing left is not asked again. By then
// others may have given back what they took beyond the limit.
const pausesPerWindow = 100

// NewStrictWindow returns a window that takes chunks from store under key, and the function that gives
// back what is left. After that nothing passes. It panics for a chunk below 1.
func NewStrictWindow(key string, store Datastore, chunk int64) (*StrictWindow, StopFunc) {
	if chunk < 1 {
		panic(fmt.Sprintf("slidingwindow: the chunk of a StrictWindow is %d, want at least 1", chunk))
	}
	w := &StrictWindow{key: key, store: store, chunk: chunk}
	return w, w.stopWindow
}

// Start returns the beginning of the window.
func (w *StrictWindow) Start() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.LocalWindow.Start()
}

// Count returns how many events passed here in the window.
func (w *StrictWindow) Count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// AddCount counts n events without taking them from the store.
func (w *StrictWindow) AddCount(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.LocalWindow.AddCount(n)
}

// Reset makes it the window that begins at s, with c events that passed here.
func (w *StrictWindow) Reset(s time.Time, c int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterWindow(unixNano(s))
	w.count = max(c, 0)
}

// Sync does nothing: the store is asked before events pass and not after.
func (w *StrictWindow) Sync(time.Time) {}

// allowStrict decides by what was taken, and takes more if that does not suffice.
//
//	enough left              -> pass
//	not enough, may take     -> wait for a chunk, then decide again
//	otherwise                -> refuse
func (w *StrictWindow) allowStrict(l *Limiter, now, n int64) bool {
	var giveUp time.Time
	// Again after each chunk: other callers may have spent it, or the window may have turned.
	for {
		w.mu.Lock()
		w.turnTo(now)
		most := l.limit - weightOf(w.totals.previous, w.grid.timeLeft(w.start, now), w.grid.size)
		switch {
		case n > l.limit:
			w.mu.Unlock()
			return false
		case n <= w.left && w.totals.total-w.left <= addSaturating(most, -n):
			w.left -= n
			w.count += n
			w.mu.Unlock()
			return true
		case n <= w.left || !w.mayTake(now, n, most):
			w.mu.Unlock()
			return false
		}
		if w.request == nil {
			w.request = newChunkRequest(w, now, n, l.limit)
			go w.request.fetchChunk() // ends when the store has answered
		}
		f := w.request
		w.mu.Unlock()
		// Others may spend each chunk that comes, so the timeout is for all requests together.
		if giveUp.IsZero() {
			giveUp = monotonicNow().Add(storeTimeout)
		}
		if !f.awaitChunk(giveUp) {
			return false
		}
	}
}

// turnTo enters the window that holds now. A time before the current window is taken for its first instant,
// unless it lies more than a window before it. Nothing passes twice in either case, because the store has the
// count of what was taken.
func (w *StrictWindow) turnTo(now int64) {
	if uint64(now-w.start) < uint64(w.grid.size) {
		return
	}
	start := w.grid.windowStart(now)
	if start > w.start || now < w.start && distance(now, w.start) > uint64(w.grid.size) {
		w.enterWindow(start)
	}
}

func (w *StrictWindow) enterWindow(start int64) {
	w.giveBack(leftover{w.start, w.left})
	w.LocalWindow = LocalWindow{start: start}
	w.left, w.taken, w.totals, w.forgot = 0, 0, storeTotals{}, false
	// The pause was for a window that is used up. One after a failure goes on: the store is the same.
	if w.pace.failures == 0 {
		w.pace.wait = 0
	}
}

// giveBack notes leftovers for the next request.
func (w *StrictWindow) giveBack(rest ...leftover) {
	for _, r := range rest {
		if r.n > 0 {
			w.leftovers = append(w.leftovers, r)
		}
	}
	// The oldest go first: their windows have ended longest ago.
	if excess := len(w.leftovers) - mostLeftovers; excess > 0 {
		w.leftovers = w.leftovers[excess:]
	}
}

// mayTake reports whether the store may still have what is missing for n, if it may give away most.
func (w *StrictWindow) mayTake(now, n, most int64) bool {
	if w.stopped || w.forgot || w.request != nil && w.request.late {
		return false
	}
	resting := w.pace.wait > 0 && distance(now, w.pace.begun) < uint64(w.pace.wait)
	usedUp := w.totals.asked && w.totals.total > addSaturating(most, w.left-n)
	// During a pause after a failure the store is not asked at all. During one after an empty store it is
	// asked if the limit has risen, or the previous window weighs less, so that there may be some left.
	return !resting || !usedUp && w.pace.failures == 0
}

// knownCounts returns the counts as far as known here: all that was taken, except for what can be spent here.
func (w *StrictWindow) knownCounts() (current, previous int64) {
	if !w.totals.asked {
		return w.count, 0
	}
	return w.totals.total - w.left, w.totals.previous
}

// lastError returns why the store could not be asked last. It is called with the lock held.
func (w *StrictWindow) lastError() error {
	if w.request != nil && w.request.late {
		return errLate
	}
	return w.pace.err
}

// stopWindow gives back what is left.
func (w *StrictWindow) stopWindow() {
	w.mu.Lock()
	// The stop function may be called again.
	if w.stopped {
		w.mu.Unlock()
		return
	}
	w.stopped = true
	f := w.request
	w.mu.Unlock()
	// A chunk on its way must be given back, too. If it does not come in time it is wasted.
	if f != nil && !f.awaitChunk(f.due) {
		return
	}
	w.mu.Lock()
	w.giveBack(leftover{w.start, w.left})
	rest := w.leftovers
	w.left, w.leftovers = 0, nil
	w.mu.Unlock()
	if len(rest) > 0 {
		// What the store does not take is wasted: the limit is kept, and nothing more could be done.
		callInTime(w.store, nil, func() { _, _ = w.returnAll(rest) })
	}
}

// returnAll gives leftovers back, and returns those that were not tried. None is tried twice: an Add that
// failed may have been carried out, and what is given back twice passes twice.
func (w *StrictWindow) returnAll(rest []leftover) ([]leftover, error) {
	// In order, so that what remains after an error are the last ones.
	for i, r := range rest {
		if _, err := w.store.Add(w.key, r.start, -r.n); err != nil {
			return rest[i+1:], err
		}
	}
	return nil, nil
}
