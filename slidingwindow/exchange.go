package slidingwindow

import "time"

// enter lets one caller decide after the other, if every decision is exchanged. It reports false if that
// takes too long: then the store does, and the caller decides by what is known.
func (w *SyncWindow) enter() bool {
	select {
	case w.together <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(storeTimeout)
	defer timer.Stop()
	select {
	case w.together <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// leave lets the next caller decide.
func (w *SyncWindow) leave() { <-w.together }

// asksFirst reports whether the store is to be asked before the next decision: how the last window
// ended, and if every decision is exchanged, what others did.
func (w *SyncWindow) asksFirst(now int64) bool {
	if !w.turned && !w.exact || w.share == nil || !w.share.blocking || w.stopped || w.pace.busy {
		return false
	}
	return w.exact && w.pace.due(now) || !w.exact && w.pace.failures == 0
}

// ask asks the store before a decision. It is called with the lock held, and lets go of it meanwhile.
func (w *SyncWindow) ask(now int64) {
	var e errand
	if w.exact {
		e = w.errand(now)
	} else {
		e = w.lookBack()
	}
	w.mu.Unlock()
	w.share.carry(e)
	w.mu.Lock()
}

// due reports whether an exchange is due after a decision.
func (w *SyncWindow) due(now int64) bool {
	switch {
	case w.share == nil:
		return true // its synchronizer knows
	case w.stopped || w.pace.busy:
		return false
	case w.pace.due(now):
		return !w.exact || w.unpushed() > 0
	default:
		return w.turned && w.pace.failures == 0
	}
}

// exchange exchanges the counts if that is still due. It is called without the lock.
func (w *SyncWindow) exchange(now int64) {
	if w.share == nil {
		w.exchangeForeign(now)
		return
	}
	w.mu.Lock()
	if !w.due(now) {
		w.mu.Unlock()
		return
	}
	var e errand
	if w.pace.due(now) {
		e = w.errand(now)
	} else {
		e = w.lookBack()
	}
	w.mu.Unlock()
	w.share.carry(e)
}

// errand begins an exchange at a caller's time.
func (w *SyncWindow) errand(now int64) errand {
	e := errand{w, w.pushes()}
	w.begin(now)
	return e
}

// lookBack begins an exchange of the window before alone, when another has begun. It leaves the pace
// as it is: if all processes exchanged at the beginning of a window, and an interval after that, what
// one has let pass would stay unknown to the others for longer.
func (w *SyncWindow) lookBack() errand {
	w.turned, w.early, w.pace.busy = false, true, true
	return errand{w, []Push{w.pushPrevious()}}
}

// begin notes that an exchange begins, which a caller asked for.
func (w *SyncWindow) begin(now int64) {
	w.pace.begin(now, w.share.interval)
	if !w.exact {
		w.watch.called(now, wallClock())
		process.watch(w)
	}
}

// exchangeForeign lets somebody else's Synchronizer do it. Callers that come meanwhile do not wait.
func (w *SyncWindow) exchangeForeign(now int64) {
	if !w.foreign.TryLock() {
		return
	}
	defer w.foreign.Unlock()
	w.syncer.Sync(timeOf(now), w.request, w.respond)
}

// request is the MakeFunc for a Synchronizer of somebody else's.
func (w *SyncWindow) request() SyncRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return SyncRequest{Key: w.key, Start: w.start, Count: w.count, Changes: w.unpushed()}
}

// respond is the HandleFunc for a Synchronizer of somebody else's.
func (w *SyncWindow) respond(r SyncResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.OK && r.Start == w.start {
		w.count = plus(w.count, max(r.OtherChanges, 0))
		w.pushed = min(plus(w.pushed, max(r.Changes, 0)), w.own)
	}
}

// pushes are what an exchange consists of: the current window, and the one before if that is wanted.
func (w *SyncWindow) pushes() []Push {
	pushes := make([]Push, 1, 2)
	pushes[0] = w.push(&w.tally)
	if w.wantsPrevious() {
		pushes = append(pushes, w.pushPrevious())
		w.turned = false
	}
	w.looked = false
	return pushes
}

func (w *SyncWindow) wantsPrevious() bool {
	if w.grid.size == 0 {
		return w.before.unpushed() > 0
	}
	adjacent := w.before.start == w.start-w.grid.size
	return w.share.batch != nil || w.looks > 0 && !w.looked || adjacent && w.before.unpushed() > 0
}

// pushPrevious tells what was not told of the window before, and asks how it ended.
func (w *SyncWindow) pushPrevious() Push {
	if start := w.start - w.grid.size; w.grid.size != 0 && w.before.start != start {
		return w.push(&tally{LocalWindow: LocalWindow{start: start}})
	}
	return w.push(&w.before)
}

func (w *SyncWindow) push(t *tally) Push {
	return Push{
		Key: w.key, Start: t.start, Source: w.source, Sum: t.own, Delta: t.unpushed(), Keep: w.keep(),
	}
}

// settle takes the answers to an exchange.
func (w *SyncWindow) settle(pushes []Push) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for i := range pushes {
		if pushes[i].Err != nil {
			err = pushes[i].Err
			continue
		}
		w.learn(&pushes[i])
	}
	if w.early { // the next exchange is due as if there had not been this one
		w.pace.busy, w.pace.err = false, err
		w.early, w.looked = false, err == nil
	} else {
		w.pace.end(err, w.share.interval)
	}
	if w.settled != nil {
		close(w.settled)
		w.settled = nil
	}
}

// owed notes that the answers are late.
func (w *SyncWindow) owed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace.busy {
		w.pace.err = errLate
	}
}

// learn takes the answer to one push, which may come when the window has turned.
func (w *SyncWindow) learn(p *Push) {
	batched := w.share.batch != nil
	previous := w.grid.size != 0 && p.Start == w.start-w.grid.size
	if previous {
		w.looks = max(w.looks-1, 0)
	}
	switch {
	case p.Start == w.start:
		w.tally.learn(p, batched)
	case p.Start == w.before.start:
		count := w.before.count
		w.before.learn(p, batched)
		w.before.count = w.heard(count, w.before.count)
	case previous:
		w.hearPrevious(p.Start, p.Total)
	}
	w.ahead.learn(p, w.grid.size)
}

// stop lets no more exchange begin. It returns what is closed when the one under way is settled, nil if
// there is none. The window counts on by itself.
func (w *SyncWindow) stop() (settled chan struct{}, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, false
	}
	w.stopped = true
	if w.pace.busy {
		w.settled = make(chan struct{})
	}
	return w.settled, true
}

// rest is the last errand: what the store has not been told. While it still owes an answer, there is
// none, for it may have been told.
func (w *SyncWindow) rest() (e errand, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace.busy {
		return errand{}, false
	}
	e.party = w
	for _, t := range []*tally{&w.tally, &w.before} {
		if t.unpushed() > 0 {
			e.pushes = append(e.pushes, w.push(t))
		}
	}
	w.pace.busy = len(e.pushes) > 0
	return e, w.pace.busy
}
