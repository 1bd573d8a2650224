package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has how a grant leaves its lines.

// giveUp answers a request in lines with an error. What the store remembers of it is taken back.
func (r *GrantRequest) giveUp(err error) {
	g, lines := r.gate, r.leaveLines()
	// The store remembers only those that it has refused.
	if r.since != (time.Time{}) {
		r.submitUndo(false)
	}
	r.finishRequest(err)
	g.serveLines(lines)
}

// leaveLines takes a request out of its lines, and returns those. They are to be served once it was answered,
// so that it hears first of all.
func (r *GrantRequest) leaveLines() (lines lineList) {
	g, o := r.gate, &r.gate.grants
	// A timer that has fired already finds no request.
	o.mu.Lock()
	r.leaving = true // from here on nothing has it looked at
	o.removeDirty(r)
	o.removeID(r)
	r.wait.request = nil
	r.Command.MaxWait = r.wait.maxWait // which the last look goes without
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
		// Grants that only this one kept from passing may pass now.
		if p.keeps {
			l.markMoved(r.number, false)
		}
		o.mu.Unlock()
		l.mu.Unlock()
		lines.add(l)
	}
	// Behind all lines, since the next of the group is looked at from
	// here on and must not find this one in front.
	o.leaveGroup(r)
	// One that was never refused, or found no room, was not counted.
	if r.counted {
		r.counted = false
		g.waiting.Add(-1)
		o.counted.Add(-int64(len(r.places)))
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
	// At its other names the store still remembers it as waiting.
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
