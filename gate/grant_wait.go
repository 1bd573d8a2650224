package gate

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has how a grant stands in the lines of its names, waits there and leaves them.

// A grantWait has the timers of a grant in lines. It is apart from the request, which may be used again before a
// timer that has fired is heard of.
type grantWait struct {
	gate    *Gate
	request *GrantRequest // nil once it is out of the lines; guarded by the lock of the grantOrder
	end     *time.Timer   // ends the wait; nil when it has no end
	look    *time.Timer   // fires when it may be granted, or must stop keeping a line; nil until it is needed
}

// joinLines has a request stand in the lines of its names, and looked at when those before it were. Its parts
// name them.
func (r *GrantRequest) joinLines() {
	r.enterLines(false)
	g := r.gate
	if r.mayWait() {
		r.watchLines()
		r.unwatched = false
	}
	o := &g.grants
	o.mu.Lock()
	r.busy = false
	o.addDirty(r)
	o.mu.Unlock()
	g.serveGrants()
}

// enterLines puts a request into the lines of its names. looking says that the store has it, or has answered.
func (r *GrantRequest) enterLines(looking bool) {
	g, o := r.gate, &r.gate.grants
	n := len(r.parts.Parts)
	if r.parts.Parts[n-1].Key.Kind == gatehouse.Grant {
		n-- // its record has no line
	}
	r.late = true
	r.wait = &grantWait{gate: g, request: r}
	r.places = slices.Grow(r.places[:0], n)[:n]
	for i := range r.places {
		r.places[i] = grantPlace{grant: r, part: i, looking: looking, held: looking, moved: !looking}
	}
	o.waiting.Add(1)
	o.addID(r)
	for i := range r.places {
		g.enterLine(&r.places[i], r.parts.Parts[i].Key)
	}
	if r.mayWait() && r.Command.MaxWait > 0 {
		w := r.wait
		w.end = time.AfterFunc(r.Command.MaxWait, w.onEnd)
	}
}

// enterLine puts a place into the line of a key. Locks are taken in the order shard, line, grantOrder.
func (g *Gate) enterLine(p *grantPlace, key gatehouse.Key) {
	sh := g.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := g.lineIn(sh, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	g.grants.mu.Lock()
	defer g.grants.mu.Unlock()
	p.line = l
	if p.looking {
		l.grantLooks++
	}
	l.insertPlace(p)
}

// addID notes a request by the ID of its grant.
func (o *grantOrder) addID(r *GrantRequest) {
	if r.Command.ID == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[string][]*GrantRequest)
	}
	o.byID[r.Command.ID] = append(o.byID[r.Command.ID], r)
}

// removeID forgets a request. It is called with the lock held.
func (o *grantOrder) removeID(r *GrantRequest) {
	id := r.Command.ID
	if id == "" {
		return
	}
	o.byID[id] = slices.DeleteFunc(o.byID[id], func(other *GrantRequest) bool { return other == r })
	if len(o.byID[id]) == 0 {
		delete(o.byID, id)
	}
}

// watchLines has the store tell of changes at all names of the request.
func (r *GrantRequest) watchLines() {
	for i := range r.places {
		l := r.places[i].line
		l.mu.Lock()
		watched := l.watched
		l.mu.Unlock()
		// Whoever serves a line begins its watch.
		if !watched {
			l.serveLine()
		}
	}
}

// keepWaiting keeps a refused request in the lines, unless it was canceled, there is no room for it, or the gate
// is closed.
func (r *GrantRequest) keepWaiting() {
	g, first, unwatched := r.gate, !r.seen, r.unwatched
	if len(r.places) == 0 {
		r.enterLines(true)
	}
	var err error
	if first {
		r.since = r.Decision.At
		g.noteJoint(r.parts.Parts, false)
		err = r.countWaiter()
	}
	if err == nil && g.closed.Load() {
		err = gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the server is stopping", &r.Command)
	}
	if err != nil {
		r.giveUp(err)
		return
	}
	// It was in no line when it was looked at: the store tells of changes only from now on, and is asked once
	// more.
	if unwatched {
		r.watchLines()
	}
	r.park(unwatched)
}

// countWaiter counts a request that begins to wait, and returns an error if there is no room for it.
func (r *GrantRequest) countWaiter() error {
	g, o := r.gate, &r.gate.grants
	if g.waiting.Load() >= int64(g.config.Waiters) {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: %d requests wait at this server already, the most it allows", &r.Command, g.config.Waiters)
	}
	for i := range r.places {
		l := r.places[i].line
		if l.len() >= g.config.Line {
			return gatehouse.Errorf(gatehouse.CodeExhausted,
				"%s: %d requests wait in this line already, the most it allows", l.key, g.config.Line)
		}
	}
	g.waiting.Add(1)
	for i := range r.places {
		p := &r.places[i]
		p.line.mu.Lock()
		p.line.waiting++
		o.mu.Lock()
		p.counted = true
		o.mu.Unlock()
		p.line.mu.Unlock()
	}
	r.counted = true
	return nil
}

// park ends a look at a request that goes on waiting. again says that there must be another one.
func (r *GrantRequest) park(again bool) {
	o := &r.gate.grants
	r.noteAnswers()
	g := r.gate
	var serve lineList // whose tickets stand differently now
	for i := range r.places {
		if r.placeAnew(&r.places[i]) {
			serve.add(r.places[i].line)
		}
	}
	o.mu.Lock()
	canceled := r.abandoned
	if !canceled {
		again = r.needsLook() || again
		if again {
			o.addDirty(r)
		}
		r.armTimer()
		r.busy = false
	}
	o.mu.Unlock()
	// From here on another goroutine may have the request.
	if canceled {
		r.giveUp(errCanceled)
	}
	g.serveLines(serve)
}

// noteAnswers notes what the last look has said about each name.
func (r *GrantRequest) noteAnswers() {
	o := &r.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	r.seen, r.unwatched = true, false
	for i := range r.places {
		p := &r.places[i]
		turn := &r.parts.Parts[p.part].Turn
		d := &turn.Decision
		p.refused, p.barred = d.Outcome != gatehouse.Granted, turn.Ahead > 0
		p.retry, p.full = d.RetryAfter, d.Remaining == 0
		// Who stands in front may give up at any time.
		if !p.refused || p.barred {
			p.retry = gatehouse.Forever
		}
		p.near = p.retry != gatehouse.Forever && p.retry <= keepWithin
	}
}

// placeAnew notes whether a grant that was refused keeps the line at a place. It reports whether the tickets of
// the line are to be served, since they stand differently.
func (r *GrantRequest) placeAnew(p *grantPlace) (changed bool) {
	l, o := p.line, &r.gate.grants
	l.mu.Lock()
	defer l.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	p.eldest = l.grants[0] == p
	keeps := p.shouldKeep(r.Decision.At)
	changed = p.held || p.keeps && !keeps
	if l.kept.by == p && (!keeps || p.refused) {
		l.kept.stop(r.Decision.At)
	}
	if p.looking {
		l.grantLooks--
	}
	kept := p.keeps
	p.keeps, p.held, p.looking = keeps, false, false
	if kept && !keeps {
		l.markMoved(r.number) // grants behind it may pass now, too
	}
	return changed
}

// needsLook reports whether a request must be looked at again although it was just now. The grantOrder is
// locked.
func (r *GrantRequest) needsLook() bool {
	if r.expired || r.deleted >= 0 {
		return true
	}
	differs := false
	for i := range r.places {
		p := &r.places[i]
		if p.moved && p.mattersMost() {
			return true
		}
		differs = differs || r.parts.Parts[p.part].Passive == p.keeps
	}
	// The store must be told, once, that those at other servers may pass now, or may not.
	repeat := differs && !r.repeated
	r.repeated = differs
	return repeat
}

// armTimer sets the timer for the next look that time alone makes necessary. The grantOrder is locked.
func (r *GrantRequest) armTimer() {
	wait := r.nextLook()
	for i := range r.places {
		p := &r.places[i]
		left, ok := p.line.kept.left(p, r.Decision.At)
		if ok && (wait == gatehouse.Forever || left < wait) {
			wait = left
		}
	}
	w := r.wait
	switch {
	case wait == gatehouse.Forever:
		if w.look != nil {
			w.look.Stop()
		}
		return
	case wait < minRetry:
		wait = minRetry
	}
	if w.look == nil {
		w.look = time.AfterFunc(wait, w.onLook)
	} else {
		w.look.Reset(wait)
	}
}

// nextLook is after what time the request can be granted, or may keep a line; Forever when that is not known.
func (r *GrantRequest) nextLook() time.Duration {
	first, last, all, eldest := gatehouse.Forever, gatehouse.Forever, true, false
	for i := range r.places {
		p := &r.places[i]
		switch {
		case !p.refused:
		case p.retry == gatehouse.Forever:
			all = false
		default:
			if first == gatehouse.Forever || p.retry < first {
				first = p.retry
			}
			last = max(last, p.retry)
			eldest = eldest || p.eldest
		}
	}
	switch {
	case last > keepWithin:
		return last - keepWithin // from then on lines may be kept
	case !all:
		return gatehouse.Forever
	case eldest:
		return first // from then on that line may be kept
	}
	return last
}

// onLook is called when time may have helped.
func (w *grantWait) onLook() {
	o := &w.gate.grants
	o.mu.Lock()
	r := w.request
	if r == nil {
		o.mu.Unlock()
		return
	}
	ready := true
	for i := range r.places {
		p := &r.places[i]
		p.near = p.near || p.retry != gatehouse.Forever
		ready = ready && (!p.refused || p.moved || p.near)
	}
	// While something must happen first, nothing is asked: that will have it looked at.
	if ready || r.keepsForTime() {
		o.addDirty(r)
	}
	o.mu.Unlock()
	w.gate.serveGrants()
}

// keepsForTime reports whether a line is kept for a grant that lacks something else.
func (r *GrantRequest) keepsForTime() bool {
	return slices.ContainsFunc(r.places, func(p grantPlace) bool { return p.line.kept.by != nil && p.keeps })
}

// onEnd is called when the request's MaxWait is over.
func (w *grantWait) onEnd() {
	o := &w.gate.grants
	o.mu.Lock()
	if r := w.request; r != nil {
		// Only the store refuses: one more look, without MaxWait, brings a grant or the final refusal.
		r.expired = true
		o.addDirty(r)
	}
	o.mu.Unlock()
	w.gate.serveGrants()
}

// giveUp answers a request in lines with an error. What the store remembers of it is taken back.
func (r *GrantRequest) giveUp(err error) {
	g, lines := r.gate, r.leaveLines()
	if r.since != (time.Time{}) {
		r.submitUndo(false)
	}
	r.finishRequest(err)
	g.serveLines(lines)
}

// leaveLines takes a request out of its lines, and returns those. They are to be served once it was answered, so
// that it hears first of all.
func (r *GrantRequest) leaveLines() (lines lineList) {
	g, o := r.gate, &r.gate.grants
	o.mu.Lock()
	o.removeDirty(r)
	o.removeID(r)
	r.wait.request = nil
	if r.wait.end != nil {
		r.wait.end.Stop()
	}
	if r.wait.look != nil {
		r.wait.look.Stop()
	}
	r.wait = nil
	o.mu.Unlock()
	for i := range r.places {
		p := &r.places[i]
		l := p.line
		l.mu.Lock()
		o.mu.Lock()
		l.removePlace(p)
		o.mu.Unlock()
		l.noteMoved()
		l.mu.Unlock()
		lines.add(l)
	}
	if r.counted {
		r.counted = false
		g.waiting.Add(-1)
	}
	o.waiting.Add(-1)
	o.mu.Lock()
	r.places = r.places[:0]
	o.mu.Unlock()
	return lines
}

// A lineList is the lines of a grant.
type lineList struct {
	list [control.MaxParts]*line
	n    int
}

func (l *lineList) add(one *line) {
	l.list[l.n] = one
	l.n++
}

// serveLines serves lines, and the grants that are to be looked at.
func (g *Gate) serveLines(lines lineList) {
	for _, l := range lines.list[:lines.n] {
		l.serveLine()
	}
	g.serveGrants()
}

// isDeleted reports whether one of the names was deleted while the request waited.
func (r *GrantRequest) isDeleted() bool {
	o := &r.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	return r.deleted >= 0
}

// answerDeleted answers a request one of whose names was deleted.
func (r *GrantRequest) answerDeleted() {
	part := &r.parts.Parts[r.deleted]
	key, member := part.Key, part.Turn.Grant.Member
	g, lines := r.gate, r.leaveLines()
	r.submitUndo(false)
	d := &r.Decision
	d.Outcome, d.RetryAfter, d.Binding = gatehouse.Deleted, 0, member
	d.Message = key.String() + " was deleted while this request waited"
	if member < len(d.Want) {
		d.Want[member].Outcome, d.Want[member].RetryAfter = gatehouse.Deleted, 0
		d.Want[member].Message = "was deleted while this request waited"
	}
	r.finishRequest(nil)
	g.serveLines(lines)
}
