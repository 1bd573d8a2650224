package gate

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A grantOrder has the grants that stand in lines, and decides which of them is looked at next: in order of
// their numbers, those without a common name at the same time. Its lock is taken after those of shards and
// lines, and no other while it is held.
type grantOrder struct {
	waiting atomic.Int64 // how many stand in lines
	counted atomic.Int64 // in how many lines those stand that wait
	mu      sync.Mutex
	dirty   []*GrantRequest // that are to be looked at, in order
	byID    map[string][]*GrantRequest
	serving bool   // a goroutine looks at them
	search  uint64 // counts the searches for the next one
}

// addDirty has a grant looked at. It is called with the lock held.
func (o *grantOrder) addDirty(r *GrantRequest) {
	if r.dirty || r.leaving {
		return
	}
	r.dirty = true
	at, _ := slices.BinarySearchFunc(o.dirty, r, func(a, b *GrantRequest) int {
		return cmp.Compare(a.number, b.number)
	})
	o.dirty = slices.Insert(o.dirty, at, r)
}

// removeDirty forgets that a grant is to be looked at. It is called with the lock held.
func (o *grantOrder) removeDirty(r *GrantRequest) {
	if r.dirty {
		r.dirty = false
		o.dirty = slices.DeleteFunc(o.dirty, func(other *GrantRequest) bool { return other == r })
	}
}

// claimNext takes the first grant that can be looked at now; nil if there is none. It is called with the lock
// held.
func (o *grantOrder) claimNext() *GrantRequest {
	o.search++
	for _, r := range o.dirty {
		free := !r.busy && r.blocked == 0
		for i := range r.places {
			l := r.places[i].line
			free = free && l.grantLooks == 0 && l.reserved != o.search
		}
		if free {
			o.removeDirty(r)
			r.claimPlaces()
			return r
		}
		// Those behind it at one of its names are looked at after it.
		for i := range r.places {
			if l := r.places[i].line; l != nil {
				l.reserved = o.search
			}
		}
	}
	return nil
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
		p.moved, p.held, p.looking = p.moved || p.held, false, false
		p.line.grantLooks--
	}
	r.busy = false
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
	part.Passive = !p.keeps
	if l.isBarred(r) {
		part.Turn.Ahead = 1
	}
	if l.hasUnseenBefore(r.number) {
		p.blocked = true
		l.blocked++
		r.blocked++
	}
	return p.blocked
}

// noteJoint notes what a joint change means to the lines of its names. changed is false when it was refused:
// then it may only have put limits in force.
func (g *Gate) noteJoint(parts []control.Part, changed bool) {
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
		if changed {
			l.noteTaken(turn)
			stirs = l.stirred
		}
		if l.turnMoves(turn) && (changed || takes) {
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
