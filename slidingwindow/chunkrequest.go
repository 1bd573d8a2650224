package slidingwindow

import "time"

// A chunkRequest is on its way to the store for a chunk. All callers that need it wait for it together.
type chunkRequest struct {
	window    *StrictWindow
	start     int64 // of the window it is for
	now       int64
	need      int64 // what must be had for a request to pass
	available func(previous int64) int64
	totals    storeTotals
	taken     int64
	leftovers []leftover

	call *storeCall
	due  time.Time // by monotonic
	done chan struct{}
	late bool

	// The result.
	got    int64
	forgot bool
	usedUp bool
}

// newChunkRequest prepares a request for n events at now. It is called with the lock held.
func newChunkRequest(w *StrictWindow, now, n, limit int64) *chunkRequest {
	f := &chunkRequest{
		window: w, start: w.start, now: now, need: n - w.left, totals: w.totals, taken: w.taken,
		leftovers: w.leftovers, due: monotonicNow().Add(storeTimeout), done: make(chan struct{}),
	}
	// The closure keeps the time of the first caller. Others that wait for the chunk decide by their own.
	left, size := w.grid.timeLeft(w.start, now), w.grid.size
	f.available = func(previous int64) int64 { return limit - weightOf(previous, left, size) }
	w.leftovers = nil
	w.pace.begun = now
	return f
}

// awaitChunk waits until the chunk is here, or until giveUp, and reports whether it came.
func (f *chunkRequest) awaitChunk(giveUp time.Time) bool {
	if patience := giveUp.Sub(monotonicNow()); patience > 0 && closesWithin(f.done, patience) {
		return true
	}
	// This caller has waited for earlier requests as well, so its time is over before that of the request.
	if monotonicNow().Before(f.due) {
		return false
	}
	f.window.mu.Lock()
	f.late = true
	call := f.call
	f.window.mu.Unlock()
	if call != nil {
		processSyncer.markLate(call)
	}
	return false
}

// fetchChunk asks the store and adds what it got to the window.
func (f *chunkRequest) fetchChunk() {
	w := f.window
	call, ok := processSyncer.beginCall(w.store, nil)
	err := errStillWaiting
	// The call is published under the lock: a waiting caller marks it as late.
	if ok {
		w.mu.Lock()
		f.call = call
		w.mu.Unlock()
		err = f.askStore()
		processSyncer.finishCall(call)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(f.done)
	w.request = nil
	f.deliverChunk(err)
}

// deliverChunk adds the result to the window. It is called with the lock held.
func (f *chunkRequest) deliverChunk(err error) {
	w := f.window
	w.giveBack(f.leftovers...)
	// The pause after the last failure is over; endExchange sets the next one if this was another.
	w.pace.wait = 0
	w.pace.endExchange(err, 0)
	if w.start != f.start { // the window has ended meanwhile
		w.giveBack(leftover{f.start, f.got})
		return
	}
	w.left += f.got
	w.taken += f.got
	w.totals, w.forgot = f.totals, f.forgot
	// The store answered that nothing is left. That is no failure, but asking again at once would be
	// pointless.
	if f.usedUp && err == nil {
		w.pace.wait = max(w.grid.size/pausesPerWindow, int64(time.Millisecond))
	}
}

// askStore does what has to be done at the store: it gives back leftovers, reads how the last window ended if
// that is not known, and takes a chunk.
func (f *chunkRequest) askStore() (err error) {
	w := f.window
	f.leftovers, err = w.returnAll(f.leftovers)
	if err != nil {
		return err
	}
	if !f.totals.asked {
		f.totals.previous, err = w.store.Get(w.key, f.start-w.grid.size)
		if err != nil {
			return err
		}
	}
	// What may be taken falls with the weight of the previous window, which is known only now.
	most := f.available(max(f.totals.previous, 0))
	// The last answer said that nothing is left. Others may have given back since, so it is read again before
	// this request adds to the count in vain.
	if f.totals.asked && f.totals.total > addSaturating(most, -f.need) {
		f.totals.total, err = w.store.Get(w.key, f.start)
		if err != nil {
			return err
		}
	}
	// From here on the totals are of this window, and a failure below does not make them invalid.
	f.totals.asked = true
	if f.totals.total > addSaturating(most, -f.need) {
		f.usedUp = true
		return nil
	}
	return f.takeChunk(most)
}

// takeChunk adds a chunk to the count, which must not exceed most. What goes beyond was not there to be taken
// and is given back, and so is everything if the rest does not suffice.
//
// To add first and give back later is what makes processes safe against each other with Add alone: of two
// that add at once, each sees a total that includes the other's part or comes before it.
func (f *chunkRequest) takeChunk(most int64) (err error) {
	w := f.window
	// At least what the caller needs, at most a chunk, and no more than there seems to be.
	want := max(f.need, min(w.chunk, most-f.totals.total))
	f.totals.total, err = w.store.Add(w.key, f.start, want)
	if err != nil {
		return err
	}
	if f.totals.total < addSaturating(f.taken, want) {
		// The total is less than what this process alone has taken, so the store has lost counts. How much of
		// the window is left cannot be known: nothing is taken until it ends.
		f.forgot = true
		return nil
	}
	// Others may have added since the total was read.
	beyond := min(max(addSaturating(f.totals.total, -most), 0), want)
	if want-beyond < f.need {
		beyond, f.usedUp = want, true
	}
	f.got = want - beyond
	if beyond == 0 {
		return nil
	}
	f.totals.total -= beyond
	total, err := w.store.Add(w.key, f.start, -beyond)
	if err != nil {
		return err // as with leftovers, there is no second attempt
	}
	f.totals.total = total
	return nil
}
