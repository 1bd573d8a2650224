package slidingwindow

import "time"

// lockDecision makes callers decide one after the other, if every decision is exchanged. It reports false if
// that takes too long because the store does; the caller then decides by what is known.
func (w *SyncWindow) lockDecision() bool {
	select {
	case w.decisionLock <- struct{}{}:
		return true
	default:
	}
	// A channel serves as the lock, because the wait has a limit. The timer is only made when the lock is
	// taken.
	timer := time.NewTimer(storeTimeout)
	defer timer.Stop()
	select {
	case w.decisionLock <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// unlockDecision lets the next caller decide.
func (w *SyncWindow) unlockDecision() { <-w.decisionLock }

// asksFirst reports whether the store is to be asked before the next decision: for how the last window ended,
// and if every decision is exchanged, for what others did.
func (w *SyncWindow) asksFirst(now int64) bool {
	if !w.previousUnread && !w.exact || w.group == nil || !w.group.blocking || w.stopped || w.pace.busy {
		return false
	}
	return w.exact && w.pace.isDue(now) || !w.exact && w.pace.failures == 0
}

// askStore asks the store before a decision. It is called with the lock held, and releases it meanwhile.
func (w *SyncWindow) askStore(now int64) {
	var e storeRequest
	if w.exact {
		e = w.beginExchange(now)
	} else {
		e = w.beginPrevious()
	}
	w.mu.Unlock()
	w.group.dispatch(e)
	w.mu.Lock()
}

// isDue reports whether an exchange is due after a decision.
func (w *SyncWindow) isDue(now int64) bool {
	switch {
	case w.group == nil:
		return true // its synchronizer knows
	case w.stopped || w.pace.busy:
		return false
	case w.pace.isDue(now):
		return !w.exact || w.unpushed() > 0
	default:
		return w.previousUnread && w.pace.failures == 0
	}
}

// exchangeCounts exchanges the counts if that is still due. It is called without the lock.
func (w *SyncWindow) exchangeCounts(now int64) {
	if w.group == nil {
		// Callers that come during a call of a Synchronizer of another package do not wait.
		if w.foreign.TryLock() {
			defer w.foreign.Unlock()
			w.syncer.Sync(timeOf(now), w.makeRequest, w.handleResponse)
		}
		return
	}
	w.mu.Lock()
	// Another caller may have begun one since this one looked.
	if !w.isDue(now) {
		w.mu.Unlock()
		return
	}
	var e storeRequest
	// Both may be due; the regular exchange includes the previous window.
	if w.pace.isDue(now) {
		e = w.beginExchange(now)
	} else {
		e = w.beginPrevious()
	}
	w.mu.Unlock()
	w.group.dispatch(e)
}

// beginExchange begins an exchange at a caller's time.
func (w *SyncWindow) beginExchange(now int64) storeRequest {
	e := storeRequest{w, w.makePushes()}
	w.noteExchange(now)
	return e
}

// beginPrevious begins an exchange of the previous window alone, when a new one has begun. It leaves the pace
// as it is: if all processes exchanged at the beginning of a window, and then an interval after that, what
// one has let pass would stay unknown to the others for longer.
func (w *SyncWindow) beginPrevious() storeRequest {
	w.previousUnread, w.previousOnly, w.pace.busy = false, true, true
	return storeRequest{w, []Push{w.pushPrevious()}}
}

// noteExchange notes that an exchange begins because of a caller.
func (w *SyncWindow) noteExchange(now int64) {
	w.pace.beginExchange(now, w.group.interval)
	if !w.exact {
		w.callers.noteExchange(now, wallClock())
		processSyncer.watchWindow(w)
	}
}

// makeRequest is the MakeFunc for a Synchronizer of another package.
func (w *SyncWindow) makeRequest() SyncRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return SyncRequest{Key: w.key, Start: w.start, Count: w.count, Changes: w.unpushed()}
}

// handleResponse is the HandleFunc for a Synchronizer of another package.
func (w *SyncWindow) handleResponse(r SyncResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The response may be for a window that has ended. The bounds guard against numbers no store should send.
	if r.OK && r.Start == w.start {
		w.count = addSaturating(w.count, max(r.OtherChanges, 0))
		w.pushed = min(addSaturating(w.pushed, max(r.Changes, 0)), w.own)
	}
}

// makePushes returns the pushes of an exchange: the current window, and the previous one if that is wanted.
func (w *SyncWindow) makePushes() []Push {
	pushes := make([]Push, 1, 2)
	pushes[0] = w.makePush(&w.windowCounts)
	if w.wantsPrevious() {
		pushes = append(pushes, w.pushPrevious())
		w.previousUnread = false
	}
	w.previousRead = false
	return pushes
}

// wantsPrevious reports whether an exchange should include the previous window.
func (w *SyncWindow) wantsPrevious() bool {
	// The window has no limiter: it is driven through its own methods, and does not know its size.
	if w.grid.size == 0 {
		return w.last.unpushed() > 0
	}
	adjacent := w.last.start == w.start-w.grid.size
	// With an Exchanger it costs no round trip. A plain store is asked readsOfPrevious times, and as long as
	// the store has not confirmed all of it.
	return w.group.batch != nil || w.previousReads > 0 && !w.previousRead || adjacent && w.last.unpushed() > 0
}

// pushPrevious pushes what is unconfirmed of the previous window, and reads how it ended.
func (w *SyncWindow) pushPrevious() Push {
	// The last window seen is an older one. So nothing was counted here in the previous window, which is only
	// read.
	if start := w.start - w.grid.size; w.grid.size != 0 && w.last.start != start {
		return w.makePush(&windowCounts{LocalWindow: LocalWindow{start: start}})
	}
	return w.makePush(&w.last)
}

func (w *SyncWindow) makePush(t *windowCounts) Push {
	return Push{
		Key: w.key, Start: t.start, Source: w.source, Sum: t.own, Delta: t.unpushed(), Keep: w.keepTime(),
	}
}

// onReply applies the replies to an exchange.
func (w *SyncWindow) onReply(pushes []Push) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for i := range pushes {
		if pushes[i].Err != nil {
			err = pushes[i].Err
			continue
		}
		w.applyPush(&pushes[i])
	}
	// The next exchange is due as if there had not been this one, so its pace is left alone.
	if w.previousOnly {
		w.pace.busy, w.pace.err = false, err
		w.previousOnly, w.previousRead = false, err == nil
	} else {
		w.pace.endExchange(err, w.group.interval)
	}
	// stopWindows waits for this.
	if w.replied != nil {
		close(w.replied)
		w.replied = nil
	}
}

// onLate notes that the replies are late.
func (w *SyncWindow) onLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace.busy {
		w.pace.err = errLate
	}
}

// applyPush applies the reply to one push, which may come when the window has turned.
func (w *SyncWindow) applyPush(p *Push) {
	batched := w.group.batch != nil
	previous := w.grid.size != 0 && p.Start == w.start-w.grid.size
	if previous {
		w.previousReads = max(w.previousReads-1, 0)
	}
	// The start tells which window the push was for; the limiter may have turned since.
	switch {
	case p.Start == w.start:
		w.applyReply(p, batched)
	case p.Start == w.last.start:
		count := w.last.count
		w.last.applyReply(p, batched)
		w.last.count = w.cappedCount(count, w.last.count)
	case previous:
		w.learnPrevious(p.Start, p.Total)
	}
	w.ahead.applyReply(p, w.grid.size)
}

// stopExchange lets no more exchanges begin. It returns a channel that is closed when the one under way ends,
// nil if there is none. The window counts on by itself.
func (w *SyncWindow) stopExchange() (settled chan struct{}, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, false
	}
	w.stopped = true
	if w.pace.busy {
		w.replied = make(chan struct{})
	}
	return w.replied, true
}

// finalRequest returns the last request: what the store has not confirmed. While a reply is outstanding there
// is none, for the store may have counted it.
func (w *SyncWindow) finalRequest() (e storeRequest, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace.busy {
		return storeRequest{}, false
	}
	e.participant = w
	for _, t := range []*windowCounts{&w.windowCounts, &w.last} {
		if t.unpushed() > 0 {
			e.pushes = append(e.pushes, w.makePush(t))
		}
	}
	// Busy, so that no exchange can be begun beside the last one.
	w.pace.busy = len(e.pushes) > 0
	return e, w.pace.busy
}
