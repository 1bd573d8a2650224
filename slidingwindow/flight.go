package slidingwindow

import "time"

// A flight is a chunk on its way from the store. All who need it wait for it together.
type flight struct {
	window    *StrictWindow
	start     int64 // of the window it is for
	now       int64
	need      int64 // what must be had for a request to pass
	most      func(previous int64) int64
	quote     quote
	taken     int64
	leftovers []leftover

	call *call
	due  time.Time // by monotonic
	done chan struct{}
	late bool

	// What it brings back.
	got    int64
	forgot bool
	usedUp bool
}

// newFlight readies a flight for n at now. It is called with the lock held.
func newFlight(w *StrictWindow, now, n, limit int64) *flight {
	f := &flight{
		window: w, start: w.start, now: now, need: n - w.left, quote: w.quote, taken: w.taken,
		leftovers: w.leftovers, due: monotonic().Add(storeTimeout), done: make(chan struct{}),
	}
	left, size := w.grid.left(w.start, now), w.grid.size
	f.most = func(previous int64) int64 { return limit - weighted(previous, left, size) }
	w.leftovers = nil
	w.pace.begun = now
	return f
}

// wait waits until the chunk is here, or until the caller gives up, and reports whether it came.
func (f *flight) wait(giveUp time.Time) bool {
	if patience := giveUp.Sub(monotonic()); patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-f.done:
			return true
		case <-timer.C:
		}
	}
	if monotonic().Before(f.due) {
		return false
	}
	f.window.mu.Lock()
	f.late = true
	owed := f.call
	f.window.mu.Unlock()
	if owed != nil {
		process.overdue(owed)
	}
	return false
}

// take asks the store and gives the window what it got.
func (f *flight) take() {
	w := f.window
	owed, ok := process.begin(w.store, nil)
	err := errOwing
	if ok {
		w.mu.Lock()
		f.call = owed
		w.mu.Unlock()
		err = f.ask()
		process.finish(owed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(f.done)
	w.flight = nil
	f.land(err)
}

// land hands over what the flight brings back. It is called with the lock held.
func (f *flight) land(err error) {
	w := f.window
	w.giveBack(f.leftovers...)
	w.pace.wait = 0
	w.pace.end(err, 0)
	if w.start != f.start { // the window has ended meanwhile
		w.giveBack(leftover{f.start, f.got})
		return
	}
	w.left += f.got
	w.taken += f.got
	w.quote, w.forgot = f.quote, f.forgot
	if f.usedUp && err == nil {
		w.pace.wait = max(w.grid.size/restsPerWindow, int64(time.Millisecond))
	}
}

// ask does what there is to do at the store: it gives back leftovers, learns how the last window ended
// if that is not known, and takes a chunk.
func (f *flight) ask() (err error) {
	w := f.window
	f.leftovers, err = w.giveAll(f.leftovers)
	if err != nil {
		return err
	}
	if !f.quote.asked {
		f.quote.previous, err = w.store.Get(w.key, f.start-w.grid.size)
		if err != nil {
			return err
		}
	}
	most := f.most(max(f.quote.previous, 0))
	if f.quote.asked && f.quote.total > plus(most, -f.need) { // others may have given back
		f.quote.total, err = w.store.Get(w.key, f.start)
		if err != nil {
			return err
		}
	}
	f.quote.asked = true
	if f.quote.total > plus(most, -f.need) {
		f.usedUp = true
		return nil
	}
	return f.takeChunk(most)
}

// takeChunk adds a chunk to the count, which may then be at most so much. What is beyond was not there
// to be taken and is given back, and so is everything if the rest is not what is needed.
func (f *flight) takeChunk(most int64) (err error) {
	w := f.window
	want := max(f.need, min(w.chunk, most-f.quote.total))
	f.quote.total, err = w.store.Add(w.key, f.start, want)
	if err != nil {
		return err
	}
	if f.quote.total < plus(f.taken, want) {
		f.forgot = true // nobody knows how much of the window is left: nothing
		return nil
	}
	beyond := min(max(plus(f.quote.total, -most), 0), want)
	if want-beyond < f.need {
		beyond, f.usedUp = want, true
	}
	f.got = want - beyond
	if beyond == 0 {
		return nil
	}
	f.quote.total -= beyond
	total, err := w.store.Add(w.key, f.start, -beyond)
	if err != nil {
		return err // as with leftovers, it is not tried again
	}
	f.quote.total = total
	return nil
}
