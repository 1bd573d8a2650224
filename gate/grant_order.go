package gate

import (
	"container/heap"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A grantOrder has the grants that stand in lines, and decides which of them is looked at next: of those
// that have a name in common the first, others at the same time. Its lock is taken after those of shards and
// lines, and no other while it is held.
type grantOrder struct {
	waiting atomic.Int64 // how many stand in lines
	counted atomic.Int64 // in how many lines those stand that wait
	mu      sync.Mutex
	groups  map[lineList]*sameNames
	byID    map[string][]*GrantRequest
	next    []*line // whose first dirty grant can perhaps be looked at now
	serving bool    // a goroutine looks at them
}

// addDirty has a grant looked at. It is called with the lock held, as all below.
func (o *grantOrder) addDirty(r *GrantRequest) {
	// leaveLines takes it out of one line after the other. A look would find it in some of them only.
	if r.leaving {
		return
	}
	if !r.dirty {
		r.dirty = true
		for i := range r.places {
			r.places[i].pushDirty()
		}
	}
	o.tryGrant(r)
}

// removeDirty forgets that a grant is to be looked at.
func (o *grantOrder) removeDirty(r *GrantRequest) {
	if !r.dirty {
		return
	}
	r.dirty = false
	for i := range r.places {
		if p := &r.places[i]; p.line != nil {
			heap.Remove(&p.line.dirty, p.dirtyAt)
			o.tryLine(p.line) // the one behind it may be looked at now
		}
	}
}

// tryLine has claimNext see whether the first dirty grant of a line can be looked at. It must be called for a
// line whenever this may have become so: then a look costs the same however many grants wait.
func (o *grantOrder) tryLine(l *line) {
	if !l.tried && len(l.dirty) > 0 {
		l.tried = true
		o.next = append(o.next, l)
	}
}

// tryGrant is tryLine for one grant. It is the first in all of its lines if it can be looked at, so that one
// line is enough.
func (o *grantOrder) tryGrant(r *GrantRequest) {
	if len(r.places) > 0 && r.places[0].line != nil {
		o.tryLine(r.places[0].line)
	}
}

// claimNext takes a grant that can be looked at now; nil if there is none.
func (o *grantOrder) claimNext() *GrantRequest {
	for len(o.next) > 0 {
		l := o.next[0]
		o.next[0] = nil
		o.next = o.next[1:]
		// From here on, any change of the line adds it again.
		l.tried = false
		if len(l.dirty) > 0 && l.dirty[0].grant.mayBeLookedAt() {
			r := l.dirty[0].grant
			o.removeDirty(r)
			r.claimPlaces()
			return r
		}
	}
	o.next = nil
	return nil
}

// mayBeLookedAt reports whether the grant is free, and those before it at each of its names have been looked
// at.
func (r *GrantRequest) mayBeLookedAt() bool {
	if r.busy || r.blocked > 0 {
		return false
	}
	for i := range r.places {
		p := &r.places[i]
		// What a grant takes that is at the store is not known yet, and this one must not be faster.
		if p.line.grantLooks > 0 || p.line.dirty[0] != p {
			return false
		}
	}
	return true
}

// claimPlaces takes a grant to be looked at, and has those behind it wait where something has moved. The
// grantOrder is locked.
func (r *GrantRequest) claimPlaces() {
	r.busy = true
	for i := range r.places {
		p := &r.places[i]
		p.held, p.moved, p.looking = p.moved, false, true
		p.line.grantLooks++
	}
}

// releasePlaces ends claimPlaces without a look. The grantOrder is locked.
func (r *GrantRequest) releasePlaces() {
	for i := range r.places {
		p := &r.places[i]
		p.moved = p.moved || p.held
		p.endLook()
	}
	r.busy = false
	r.gate.grants.tryGrant(r)
}

// endLook ends a look at one place. The grantOrder is locked.
func (p *grantPlace) endLook() {
	p.held = false
	if p.looking {
		p.looking = false
		p.line.grantLooks--
		p.grant.gate.grants.tryLine(p.line)
	}
}

// serveGrants looks at the grants that are to be looked at, until there is none, or all wait for answers of
// the store. If that is being done already, it returns at once.
func (g *Gate) serveGrants() {
	o := &g.grants
	o.mu.Lock()
	if o.serving {
		o.mu.Unlock()
		return
	}
	o.serving = true
	for n := 0; ; n++ {
		r := o.claimNext()
		if r == nil {
			break
		}
		if n == maxRounds {
			// A caller does not serve later arrivals forever.
			r.releasePlaces()
			o.addDirty(r)
			o.serving = false
			o.mu.Unlock()
			g.work.begin()
			go func() { // ends when none is left to be looked at
				defer g.work.end()
				g.serveGrants()
			}()
			return
		}
		o.mu.Unlock()
		r.lookAgain()
		o.mu.Lock()
	}
	o.serving = false
	o.mu.Unlock()
}

// lookAgain puts a grant that stands in lines to the store, unless tickets before it must be looked at first.
func (r *GrantRequest) lookAgain() {
	if r.isDeleted() {
		r.answerDeleted()
		return
	}
	r.buildParts()
	blocked := false
	for i := range r.places {
		blocked = r.lookFrom(&r.places[i]) || blocked
	}
	if blocked {
		o := &r.gate.grants
		o.mu.Lock()
		r.releasePlaces()
		// It may have been canceled meanwhile, or unblocked.
		canceled := r.abandoned
		if canceled {
			r.busy = true
		} else {
			o.addDirty(r)
		}
		o.mu.Unlock()
		if canceled {
			r.giveUp(errCanceled)
		}
		return
	}
	r.advance(false)
}

// lookFrom fills in what is ahead of a grant at one place. It reports whether a ticket in front was not
// looked at yet.
func (r *GrantRequest) lookFrom(p *grantPlace) (blocked bool) {
	l, o := p.line, &r.gate.grants
	l.mu.Lock()
	defer l.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	part := &r.parts.Parts[p.part]
	// Those at other servers may pass it where those at this one may.
	part.NonBlocking = !p.keeps
	part.Turn.Ahead = l.wantedBefore(r)
	if l.hasUnseenBefore(r.number) {
		p.blocked = true
		l.blocked++
		r.blocked++
	}
	return p.blocked
}

// noteJoint notes what a joint change means to the lines of its names. changed is false when it was refused:
// then it may only have put limits in force. failed is the store's error: then its turns have no decisions.
func (g *Gate) noteJoint(parts []control.Part, changed bool, failed error) {
	if g.lines.Load() == 0 {
		return
	}
	var moved lineList
	for i := range parts {
		turn := &parts[i].Turn
		l := g.lineOf(parts[i].Key)
		if l == nil {
			continue
		}
		l.mu.Lock()
		takes := turn.Op == gatehouse.OpAcquire
		stirs := false
		if changed && failed == nil {
			l.noteTaken(turn)
			stirs = l.stirred
		}
		moves := l.turnMoves(turn) && (changed || takes)
		// As in noteRound: it may have given something back.
		if moves || failed != nil && !turn.Op.Reads() {
			// Limits may have become smaller than what some wait for.
			l.offerAll = l.offerAll || takes && l.head != nil
			l.noteMoved()
			stirs = true
		}
		if stirs {
			moved.add(l)
		}
		l.mu.Unlock()
	}
	// All of it has changed at one instant, so that no line is served before all are marked.
	if moved.n > 0 {
		g.serveLines(moved)
	}
}

// noteRecord has other requests with the ID of a grant looked at, whose record has changed.
func (g *Gate) noteRecord(r *GrantRequest) {
	o := &g.grants
	if o.waiting.Load() == 0 || r.Command.ID == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range o.byID[r.Command.ID] {
		if other != r {
			o.addDirty(other)
		}
	}
}
