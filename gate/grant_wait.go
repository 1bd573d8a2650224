package gate

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file has how a grant stands in the lines of its names, waits there and leaves them.

// joinLines has a request stand in the lines of its names, and looked at when those before it were. Its parts
// name them.
func (r *GrantRequest) joinLines() {
	r.enterLines(false)
	g := r.gate
	// The watch begins before the first look: the store does not report a change between the two otherwise.
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
	r.wait = &grantWait{gate: g, request: r, maxWait: r.Command.MaxWait}
	// Lines and their heaps point to the places, so that they must not move from here on.
	r.places = slices.Grow(r.places[:0], n)[:n]
	for i := range r.places {
		r.places[i] = grantPlace{
			grant: r, part: i, cost: r.parts.Parts[i].Turn.Cost,
			looking: looking, held: looking, moved: !looking,
		}
	}
	o.waiting.Add(1)
	o.addID(r)
	for i := range r.places {
		g.enterLine(&r.places[i], r.parts.Parts[i].Key)
	}
	// Behind all lines, since a group is known by the lines of its grants.
	o.joinGroup(r)
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
	// It was marked while this place had no line, and so is missing in the line's heap.
	if p.grant.dirty {
		p.pushDirty()
	}
	if p.looking {
		l.grantLooks++
	}
	l.grants = insertPlace(l.grants, p)
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
	o.byID[id] = removeAt(o.byID[id], slices.Index(o.byID[id], r))
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

// keepWaiting keeps a refused request in the lines, unless it was canceled, there is no room for it, or the
// gate is closed.
func (r *GrantRequest) keepWaiting() {
	g, first, unwatched := r.gate, !r.seen, r.unwatched
	if len(r.places) == 0 {
		r.enterLines(true)
	}
	if !r.known {
		// The refusal may have put limits in force, by which others are granted or refused.
		g.noteJoint(r.parts.Parts, false, nil)
		r.known = !r.parts.Parts[0].Turn.Postponed // all are, or none
	}
	var err error
	if first {
		r.since = r.Decision.At
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
	// What a grant takes while it waits grows with its names, so that these are bounded, too.
	if n := o.counted.Load(); n+int64(len(r.places)) > int64(g.config.Waiters) {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: grants wait at this server for %d names already, and it allows %d", &r.Command, n,
			g.config.Waiters)
	}
	for i := range r.places {
		l := r.places[i].line
		if l.len() >= g.config.Line {
			return gatehouse.Errorf(gatehouse.CodeExhausted,
				"%s: %d requests wait in this line already, the most it allows", l.key, g.config.Line)
		}
	}
	// Counted apart from the check: a few more may slip in, but no line is locked while another one is.
	g.waiting.Add(1)
	o.counted.Add(int64(len(r.places)))
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
		r.armTimer(0)
		r.busy = false
		o.tryGrant(r)
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
		p.refused = d.Outcome != gatehouse.Granted
		// One that was postponed is looked at soon, whoever stands in front.
		p.blockedByEarlier = turn.Ahead > 0 && !turn.Postponed
		p.retry, p.nothingLeft = d.RetryAfter, d.Remaining == 0
		// Who stands in front may give up at any time.
		if !p.refused || p.blockedByEarlier {
			p.retry = gatehouse.Forever
		}
		// A third party may prolong a pause, and then everything behind it comes slowly.
		paused := d.Reported != nil && d.Reported.PausedFor > 0
		p.freeSoon = p.retry != gatehouse.Forever && p.retry <= keepWithin && !paused
	}
}

// placeAnew notes whether a grant that was refused keeps the line at a place. It reports whether the tickets
// of the line are to be served, since they stand differently.
func (r *GrantRequest) placeAnew(p *grantPlace) (changed bool) {
	l, o := p.line, &r.gate.grants
	l.mu.Lock()
	defer l.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	p.eldest = l.grants[0] == p
	kept := p.keeps
	p.keeps, p.changes = p.shouldKeep(r.Decision.At)
	// Tickets behind it were kept back for this look, or because it has kept the line until now.
	changed = p.held || kept && !p.keeps
	p.endLook()
	if kept && !p.keeps {
		l.markMoved(r.number, false) // grants behind it may pass now, too
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
		differs = differs || r.parts.Parts[p.part].NonBlocking == p.keeps
	}
	// The store must be told, once, that those at other servers may pass now, or may not.
	repeat := differs && !r.repeated
	r.repeated = differs
	return repeat
}
