package slidingwindow

import "time"

// A chunkRequest is a chunk on its way from the store. All who need it wait for it together.
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

	// What it brings back.
	got    int64
	forgot bool
	usedUp bool
}

// newChunkRequest readies a flight for n at now. It is called with the lock held.
func newChunkRequest(w *StrictWindow, now, n, limit int64) *chunkRequest {
	f := &chunkRequest{
		window: w, start: w.start, now: now, need: n - w.left, totals: w.totals, taken: w.taken,
		leftovers: w.leftovers, due: monotonicNow().Add(storeTimeout), done: make(chan struct{}),
	}
	left, size := w.grid.timeLeft(w.start, now), w.grid.size
	f.available = func(previous int64) int64 { return limit - weightOf(previous, left, size) }
	w.leftovers = nil
	w.pace.begun = now
	return f
}

// awaitChunk waits until the chunk is here, or until the caller gives up, and reports whether it came.
func (f *chunkRequest) awaitChunk(giveUp time.Time) bool {
	if patience := giveUp.Sub(monotonicNow()); patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-f.done:
			return true
		case <-timer.C:
		}
	}
	if monotonicNow().Before(f.due) {
		return false
	}
	f.window.mu.Lock()
	f.late = true
	owed := f.call
	f.window.mu.Unlock()
	if owed != nil {
		processSyncer.markLate(owed)
	}
	return false
}

// fetchChunk asks the store and gives the window what it got.
func (f *chunkRequest) fetchChunk() {
	w := f.window
	owed, ok := processSyncer.beginCall(w.store, nil)
	err := errStillWaiting
	if ok {
		w.mu.Lock()
		f.call = owed
		w.mu.Unlock()
		err = f.askStore()
		processSyncer.finishCall(owed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(f.done)
	w.request = nil
	f.deliverChunk(err)
}

// deliverChunk hands over what the flight brings back. It is called with the lock held.
func (f *chunkRequest) deliverChunk(err error) {
	w := f.window
	w.giveBack(f.leftovers...)
	w.pace.wait = 0
	w.pace.endExchange(err, 0)
	if w.start != f.start { // the window has ended meanwhile
		w.giveBack(leftover{f.start, f.got})
		return
	}
	w.left += f.got
	w.taken += f.got
	w.totals, w.forgot = f.totals, f.forgot
	if f.usedUp && err == nil {
		w.pace.wait = max(w.grid.size/pausesPerWindow, int64(time.Millisecond))
	}
}

// askStore does what there is to do at the store: it gives back leftovers, learns how the last window ended
// if that is not known, and takes a chunk.
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
	most := f.available(max(f.totals.previous, 0))
	if f.totals.asked && f.totals.total > addSaturating(most, -f.need) { // others may have given back
		f.totals.total, err = w.store.Get(w.key, f.start)
		if err != nil {
			return err
		}
	}
	f.totals.asked = true
	if f.totals.total > addSaturating(most, -f.need) {
		f.usedUp = true
		return nil
	}
	return f.takeChunk(most)
}

// takeChunk adds a chunk to the count, which may then be at most so much. What is beyond was not there
// to be taken and is given back, and so is everything if the rest is not what is needed.
func (f *chunkRequest) takeChunk(most int64) (err error) {
	w := f.window
	want := max(f.need, min(w.chunk, most-f.totals.total))
	f.totals.total, err = w.store.Add(w.key, f.start, want)
	if err != nil {
		return err
	}
	if f.totals.total < addSaturating(f.taken, want) {
		f.forgot = true // nobody knows how much of the window is left: nothing
		return nil
	}
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
		return err // as with leftovers, it is not tried again
	}
	f.totals.total = total
	return nil
}
