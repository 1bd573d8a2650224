package gate

import (
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has what a line knows of the grants that wait at its name. A grant is no ticket of the line: it
// has a place in it, by its number, which says where it stands among the tickets.

// A grantPlace is where a grant stands in the line of one of its names. It is guarded by the lock of the
// gate's grantOrder.
type grantPlace struct {
	grant *GrantRequest
	line  *line
	part  int // of the grant's parts
	cost  int64

	// What its last look said about this name.
	refused          bool          // it was refused here
	blockedByEarlier bool          // because a request that came before is not served yet
	retry            time.Duration // when that ends; Forever if that is not known
	freeSoon         bool          // retry is within keepWithin, and no pause is in the way
	nothingLeft      bool          // nothing is left here

	keeps   bool          // those behind it must not pass
	changes time.Duration // in how long after its last look that may change by itself; 0 for never

	eldest  bool // no other grant stands before it
	moved   bool // what it was refused for may have changed since its last look began
	looking bool // its grant is being looked at
	held    bool // those behind it wait for that look
	counted bool // it is one of those that wait in the line
	first   bool // it is in line.firsts
	dirtyAt int  // its index in line.dirty while its grant is to be looked at
	blocked bool // tickets in front were not looked at when it was to be
}

// A grantLine is the part of a line that is about grants. A line without any pays for none of it.
type grantLine struct {
	grants  []*grantPlace  // in order of their numbers; changed with both locks held
	rule    gatehouse.Rule // that was put in force last, as far as is known
	hasRule bool           // the rule is known
	watched bool           // the store's Watch has begun
	stirred bool           // the gate has grants to look at once the lock is released

	// These are guarded by the lock of the gate's grantOrder.
	firsts     []*grantPlace // of the grants, those that are or were the first of their group
	dirty      placeHeap     // places of the grants that are to be looked at
	tried      bool          // it is in the grantOrder's next
	grantLooks int           // of grants that are at the store
	blocked    int           // places that are
}

// maxTicket is behind all tickets.
const maxTicket = control.Ticket(math.MaxUint64)

// A grantBounds says how far a batch of tickets may reach.
type grantBounds struct {
	fence  control.Ticket // those behind it must wait until a grant was looked at
	keeper control.Ticket // those behind it must not take anything
}

// isEmpty reports whether nobody waits in the line.
func (l *line) isEmpty() bool { return l.head == nil && len(l.grants) == 0 }

// grantBounds returns the numbers of the first grant that is to be looked at, and of the first that keeps the
// line. It is called with the line's lock held, as all below.
func (l *line) grantBounds() grantBounds {
	b := grantBounds{fence: maxTicket, keeper: maxTicket}
	if len(l.grants) == 0 {
		return b
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range l.grants {
		// What has moved here may be just what this grant lacks: those behind it wait until it was tried.
		if b.fence == maxTicket && (p.held || p.moved && p.grant.dirty) {
			b.fence = p.grant.number
		}
		// Whatever those behind it are, they are kept back.
		if p.keeps {
			b.keeper = p.grant.number
			return b
		}
	}
	return b
}

// removePlace takes a grant out of the line. The grantOrder is locked too.
func (l *line) removePlace(p *grantPlace) {
	at, _ := slices.BinarySearchFunc(l.grants, p.grant.number, comparePlace)
	l.grants = removeAt(l.grants, at)
	if p.first {
		at, _ = slices.BinarySearchFunc(l.firsts, p.grant.number, comparePlace)
		l.firsts = removeAt(l.firsts, at)
	}
	p.endLook()
	if p.blocked {
		l.blocked--
	}
	if p.counted {
		l.waiting--
	}
}

// frontTicket is the first ticket that the store has seen and that waits; nil if there is none.
func (l *line) frontTicket() *Request {
	for t := l.head; t != nil && t != l.firstUnseen; t = t.next {
		// One that is not seen is at the store for the first time: hasUnseenBefore finds it.
		if t.seen {
			return t
		}
	}
	return nil
}

// hasUnseenBefore reports whether a ticket that may wait has come before a number and was not looked at yet.
func (l *line) hasUnseenBefore(number control.Ticket) bool {
	last := l.tail
	if l.firstUnseen != nil {
		last = l.firstUnseen.prev
	}
	for t := last; t != nil && !t.seen; t = t.prev {
		if t.waits && t.number < number {
			return true
		}
	}
	// Exactly those that fillBatch would offer, so that the two never wait for each other.
	for t := l.firstUnseen; t != nil && t.number < number; t = t.next {
		if t.waits {
			return true
		}
	}
	return false
}

// wantedBefore is how much a request at this name wants that came before a grant, and that it must not
// overtake: 0 if there is none, 1 if it may have room and wait for another name. The grantOrder is locked
// too.
func (l *line) wantedBefore(r *GrantRequest) int64 {
	if t := l.frontTicket(); t != nil && l.orderOf(t) < r.number {
		return max(1, t.cost())
	}
	// Grants for the same names go in order of arrival, also if a later one costs less.
	if !r.isFirst() {
		return 1
	}
	for _, p := range l.firsts {
		if p.grant.number >= r.number {
			return 0
		}
		if p.keeps {
			return 1
		}
	}
	return 0
}

// noteMoved notes that what grants were refused for may have changed. Those that could be granted now are to
// be looked at, the first first: behind one that keeps the line nobody passes, and neither behind a ticket
// that came before.
func (l *line) noteMoved() {
	if len(l.grants) == 0 {
		return
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	l.markMoved(0, false)
}

// noteWoken is noteMoved after another server has changed something, perhaps at other names too at the same
// instant: grants are looked at whatever else they lack.
func (l *line) noteWoken() {
	if len(l.grants) == 0 {
		return
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	l.markMoved(0, true)
}

// markMoved is noteMoved for those behind a number, with the grantOrder locked. always has grants looked at
// that lack something else.
func (l *line) markMoved(behind control.Ticket, always bool) {
	o := &l.gate.grants
	front := l.frontTicket()
	for _, p := range l.firsts {
		// When this ticket leaves the line, noteRound comes here again.
		if front != nil && l.orderOf(front) < p.grant.number {
			return
		}
		// While a look is under way, what the one before it was told may no longer be so: this one may have
		// been refused here, just before what has moved, and will hear of no other.
		if p.grant.number > behind && (p.refused || p.looking || !p.grant.seen) {
			p.moved = true
			// A grant that lacks something else too would only be refused again.
			if always || p.mattersMost() {
				o.addDirty(p.grant)
				l.stirred = true
			}
		}
		if p.keeps {
			return
		}
	}
}

// mattersMost reports whether all else that a grant lacks has moved too, or comes free soon: only then it can
// be granted when this name can serve it.
func (p *grantPlace) mattersMost() bool {
	for i := range p.grant.places {
		if q := &p.grant.places[i]; q != p && q.refused && !q.moved && !q.freeSoon {
			return false
		}
	}
	return true
}

// offerGrants has all grants of the line looked at.
func (l *line) offerGrants() {
	if len(l.grants) == 0 {
		return
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range l.grants {
		p.moved = true
		o.addDirty(p.grant)
		l.stirred = true
	}
}

// onWatched is called when the store's Watch has begun: what has changed before was told to nobody.
func (l *line) onWatched() {
	l.mu.Lock()
	l.watched = true
	l.offerGrants()
	l.mu.Unlock()
}

// onMoved serves the line, and the grants at it, after the controller may have changed.
func (l *line) onMoved() {
	l.mu.Lock()
	l.noteMoved()
	l.unlockStirred()
	l.serveLine()
}

// unlockStirred unlocks the line, and has grants looked at if some are to be.
func (l *line) unlockStirred() {
	stirred := l.stirred
	l.stirred = false
	l.mu.Unlock()
	if stirred {
		l.gate.serveGrants()
	}
}

// noteRound notes what a round of tickets means to the grants that wait here.
func (l *line) noteRound(rd *round) {
	// A rule that was noted is kept up to date, also while no grant waits: the next is compared with it.
	if len(l.grants) == 0 && !l.hasRule {
		return
	}
	moved := false
	for i, t := range rd.requests {
		turn := &rd.change.Turns[i]
		// After an error it is not known what took effect. A look too many does no harm, one too few would.
		failed := rd.err != nil || turn.Err != nil
		moved = l.turnMoves(turn) || failed || t.removed && t.seen || moved
		if !failed {
			l.noteTaken(turn)
		}
		if !failed && turn.Op == gatehouse.OpDelete && turn.Decision.Outcome == gatehouse.Granted {
			l.noteDeleted()
		}
	}
	if moved {
		l.noteMoved()
	}
	l.unblockGrants()
}

// noteTaken has grants looked at that this name could serve and now cannot, if they keep other lines: these
// may not be kept any more.
func (l *line) noteTaken(turn *control.Turn) {
	// Only what takes can leave too little for a grant that could have been served.
	d := &turn.Decision
	if len(l.grants) == 0 || d.Outcome != gatehouse.Granted ||
		turn.Op != gatehouse.OpAcquire && turn.Op != gatehouse.OpReserve && turn.Op != gatehouse.OpCharge {
		return
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range l.firsts {
		if p.grant.seen && !p.refused && p.cost > d.Remaining && p.grant.keepsAny() {
			o.addDirty(p.grant)
			l.stirred = true
		}
	}
}

// keepsAny reports whether the grant keeps a line.
func (r *GrantRequest) keepsAny() bool {
	for i := range r.places {
		if r.places[i].keeps {
			return true
		}
	}
	return false
}

// turnMoves reports whether a turn that was served may help somebody else. What only takes helps nobody.
func (l *line) turnMoves(turn *control.Turn) bool {
	switch turn.Op {
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
		// A settle or a topup brings no rule of its own: it goes by the one of the grant's record.
		follows := turn.Grant != nil && turn.Grant.Command.Op != gatehouse.OpAcquire
		return turn.Extend || !turn.Again && !turn.Postponed && !follows && l.notesRule(&turn.Rule)
	}
	return turn.Decision.Outcome == gatehouse.Granted && !turn.Op.Reads()
}

// notesRule reports whether a rule that was put in force is another one than before.
func (l *line) notesRule(rule *gatehouse.Rule) bool {
	if rule.Size == gatehouse.InForce || l.hasRule && *rule == l.rule {
		return false
	}
	l.rule, l.hasRule = *rule, true
	return true
}

// noteDeleted tells the grants that wait here that the controller was deleted.
func (l *line) noteDeleted() {
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range l.grants {
		if p.grant.seen && p.grant.deleted < 0 {
			p.grant.deleted = p.part
			o.addDirty(p.grant)
			l.stirred = true
		}
	}
}

// unblockGrants has grants looked at that could not be, since tickets in front were not yet.
func (l *line) unblockGrants() {
	if len(l.grants) == 0 {
		return
	}
	o := &l.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.blocked == 0 {
		return
	}
	for _, p := range l.grants {
		// Those that are blocked are dirty since lookAgain. Only their counts keep them from being claimed.
		if !p.blocked {
			continue
		}
		p.blocked = false
		p.grant.blocked--
		l.blocked--
		l.stirred = true
		o.tryGrant(p.grant)
	}
}

// standing returns the ticket and after what time it can be granted, if no ticket stands in front of it; else
// nil. turn has its refusal.
func (r *Request) standing(turn *control.Turn) (first *Request, retry time.Duration) {
	switch {
	case r.keptBack && turn.Ahead == 1:
		return r, gatehouse.Forever // the grant that keeps the line serves it when that ends
	case turn.Ahead == 0:
		return r, turn.Decision.RetryAfter
	}
	return nil, 0
}
