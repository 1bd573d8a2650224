package gate

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has how tickets join a line, stay in it and leave it.

// joinLine appends a request to the line of its key, and serves the line. Without room it is answered with an
// error. Locks are taken in the order shard, line.
func (g *Gate) joinLine(r *Request) {
	sh := g.shardOf(r.Key)
	sh.mu.Lock()
	l := g.lineIn(sh, r.Key)
	// The shard stays locked until the request is in the line: otherwise dropLine could forget the line in
	// between, and it would wait in a line that is never served.
	l.mu.Lock()
	err := l.checkRoom(r, 1)
	if err == nil {
		r.Decision = nil // its room is the caller's again
		if r.number == 0 {
			r.number = g.nextTicket()
		}
		if r.Command.Op == gatehouse.OpBump {
			r.bumped = l.bumpTicket(control.Ticket(r.Command.Fence))
		}
		l.pushTicket(r)
	}
	l.mu.Unlock()
	sh.mu.Unlock()
	if err != nil {
		r.setError(err)
		r.atOnce = true
		g.deliver([]*Request{r})
	}
	// Without room too: the line may have been made just now and be empty, and is then dropped.
	l.serveLine()
}

// lineIn returns the line of a key, which it creates if there is none. It is called with the shard locked.
func (g *Gate) lineIn(sh *shard, key gatehouse.Key) *line {
	l := sh.lines[key]
	if l == nil {
		l = &line{gate: g, key: key}
		sh.lines[key] = l
		sh.count.Add(1)
		g.lines.Add(1)
	}
	return l
}

// checkRoom returns an error if there is no room for a ticket. more is 1 if it is to be counted still, and 0
// if it is in line. Tickets that do not wait always have room: a full line must still let releases and undos
// pass.
func (l *line) checkRoom(r *Request, more int) error {
	g := l.gate
	switch {
	case !mayWait(&r.Command):
		return nil
	// The sum of all lines has no lock: at one instant, a few more may slip in at other names.
	case g.waiting.Load()+int64(more) > int64(g.config.Waiters):
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: %d requests wait at this server already, the most it allows", l.key, g.config.Waiters)
	case l.waiting+more > g.config.Line:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: %d requests wait in this line already, the most it allows", l.key, g.config.Line)
	}
	return nil
}

// dropLine removes a line without tickets from its shard, and ends its watch.
func (g *Gate) dropLine(l *line) {
	sh := g.shardOf(l.key)
	sh.mu.Lock()
	l.mu.Lock()
	// Since the caller saw the line empty, a ticket may have joined, or another goroutine may have dropped
	// the line and a new one may be in its place.
	if !l.isEmpty() || l.serving || sh.lines[l.key] != l {
		l.mu.Unlock()
		sh.mu.Unlock()
		return
	}
	delete(sh.lines, l.key)
	sh.count.Add(-1)
	g.lines.Add(-1)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	sh.mu.Unlock()
	// Without the locks, because stopping the watch may take a store's own lock. No other goroutine has the
	// line any more.
	if l.stopWatch != nil {
		l.stopWatch()
	}
}

func (l *line) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// pushTicket appends an unseen ticket.
func (l *line) pushTicket(t *Request) {
	l.linkTicket(t, nil)
	// Unseen tickets are always the last ones of the list, so that one pointer tells them from the others.
	if l.firstUnseen == nil {
		l.firstUnseen = t
	}
}

// linkTicket puts a ticket in front of another one, or at the end if next is nil, and counts it.
func (l *line) linkTicket(t, next *Request) {
	t.line, t.next, t.prev = l, next, l.tail
	if next != nil {
		t.prev = next.prev
		next.prev = t
	} else {
		l.tail = t
	}
	if t.prev == nil {
		l.head = t
	} else {
		t.prev.next = t
	}
	// Noted, since the last offer clears the MaxWait by which it is known.
	t.waits = mayWait(&t.Command)
	if t.waits {
		l.waiting++
		l.gate.waiting.Add(1)
	}
	l.startTimeout(t)
}

// removeTicket unlinks a ticket and updates all counts of the line.
func (l *line) removeTicket(t *Request) {
	t.removed = true
	// The caller may use the request again, so that nothing may keep it.
	if t.recheckAt > 0 {
		l.recheck[t.recheckAt-1] = nil
		t.recheckAt = 0
	}
	// firstUnseen must move before t.next is cleared.
	if l.firstUnseen == t {
		l.firstUnseen = t.next
	}
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	delete(l.bumps, t.number)
	if t.timeout != nil {
		t.timeout.timer.Stop()
		t.Command.MaxWait = t.timeout.maxWait // which the last offer goes without
		t.timeout.request, t.timeout = nil, nil
	}
	if t.waits {
		l.waiting--
		l.gate.waiting.Add(-1)
	}
	if t.seen {
		l.seenCount--
		l.countPostponed(t, -1)
		l.countHolder(t, -1)
	}
}

// countPostponed adds by to the number of postponed tickets if a ticket is one.
func (l *line) countPostponed(t *Request, by int) {
	if t.seen && !t.known {
		l.postponedCount += by
	}
}

// countHolder adds by to the number of seen tickets of a ticket's holder.
func (l *line) countHolder(t *Request, by int) {
	holder := t.Command.Holder
	if holder == "" {
		return
	}
	if l.waitersByHolder == nil {
		l.waitersByHolder = make(map[string]int)
	}
	l.waitersByHolder[holder] += by
	if l.waitersByHolder[holder] == 0 {
		delete(l.waitersByHolder, holder)
	}
}

// keepWaiting keeps a refused ticket in the line, unless it was canceled, there is no room for it, or the
// gate is closed.
func (l *line) keepWaiting(rd *round, t *Request, turn *control.Turn) {
	d, first := &turn.Decision, !t.seen
	l.countPostponed(t, -1)
	// From its first look on the command must not resize the controller again.
	t.known = t.known || !turn.Postponed
	t.resized = t.resized || d.Resized
	// Its place is by the time at which the store heard of it first.
	if first {
		t.seen, t.since = true, d.At
		l.seenCount++
		l.countHolder(t, +1)
		if t.bumped {
			l.moveToFront(t)
		}
	}
	l.countPostponed(t, +1)
	l.maxCost = max(l.maxCost, t.cost())
	var err error
	switch {
	case t.abandoned:
		err = errCanceled
	case l.gate.closed.Load():
		err = gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the server is stopping", l.key)
	case t.unchecked:
		t.unchecked = false
		err = l.checkRoom(t, 0)
	}
	if err != nil {
		l.leaveLine(t, nil)
		t.setError(err)
		rd.replies = append(rd.replies, t)
		return
	}
	// Its timer fired during this first offer, when onTimeout could not yet put it up for a recheck.
	if t.expired && first {
		l.recheckTicket(t)
	}
}

// removeAbandoned removes a ticket that was canceled while the store had it. d is its decision.
func (l *line) removeAbandoned(rd *round, t *Request, d *gatehouse.Decision) {
	l.leaveLine(t, d)
	t.setError(errCanceled)
	rd.replies = append(rd.replies, t)
}

// leaveLine removes a ticket that is not answered with its decision d, nil when it has none. An undo takes
// its place at the end of the line if the ticket was granted something, or is remembered by the store as
// waiting.
func (l *line) leaveLine(t *Request, d *gatehouse.Decision) {
	l.removeTicket(t)
	if d != nil && t.needsUndo(d) {
		l.pushTicket(newUndo(t, d))
	} else if t.waits && t.seen {
		l.pushTicket(newUndo(t, nil))
	}
}

// finishTicket removes a ticket that has its decision, or an error, and is to be told.
func (l *line) finishTicket(rd *round, t *Request, turn *control.Turn) {
	// Counted now, as a ticket that was removed has no place any more.
	ahead := 0
	if t.Command.Explain && turn.Err == nil && turn.Decision.Outcome == gatehouse.Refused {
		ahead = l.waitingBefore(t)
	}
	l.removeTicket(t)
	rd.replies = append(rd.replies, t)
	// The change has failed: processDecisions has removeAbandoned answer those that were decided.
	if t.abandoned {
		t.setError(errCanceled)
		return
	}
	t.setDecision(turn)
	t.explainLine(ahead)
	// Other tickets of the same holder share this hold, wherever they are in the line.
	if t.Decision.Fence != 0 && t.needsUndo(t.Decision) && l.waitersByHolder[t.Command.Holder] > 0 {
		if l.newHolders == nil {
			l.newHolders = make(map[string]bool)
		}
		l.newHolders[t.Command.Holder] = true
	}
}

// cancelTicket takes a ticket out of its line, or undoes what it was granted.
func (l *line) cancelTicket(t *Request) {
	l.mu.Lock()
	first, decided, offered := !t.abandoned, t.removed, t.offered
	t.abandoned = true
	// The store has it, and may be granting it: processDecisions sees abandoned, and undoes the grant.
	if !first || offered {
		l.mu.Unlock()
		return
	}
	if !decided {
		l.leaveLine(t, nil)
		t.setError(errCanceled)
		l.unblockGrants()
	}
	l.unlockStirred()
	if decided {
		l.gate.undoGrant(t)
		return
	}
	l.gate.deliver([]*Request{t})
	// Those behind it may be granted now.
	l.serveLine()
}

// recheckTicket has the next batch include a seen ticket although it is not in front. Unseen tickets come to
// the store anyway.
func (l *line) recheckTicket(t *Request) {
	if t.recheckAt == 0 && t.seen {
		l.recheck = append(l.recheck, t)
		t.recheckAt = int32(len(l.recheck)) // far less than 2 billion
	}
}

// recheckHolders rechecks the tickets whose holder was granted something in this batch: they share its hold.
func (l *line) recheckHolders() {
	if len(l.newHolders) == 0 {
		return
	}
	for t := l.head; t != nil; t = t.next {
		if l.newHolders[t.Command.Holder] {
			l.recheckTicket(t)
		}
	}
	clear(l.newHolders)
}

// limitInForce returns the most that passes at once under the limits in force, as far as a decision tells
// it; otherwise 0. A peek or a delay may be asked about other limits than those in force.
func limitInForce(cmd *gatehouse.Command, d *gatehouse.Decision) int64 {
	if cmd.Op == gatehouse.OpPeek || cmd.Op == gatehouse.OpDelay {
		return 0
	}
	// With several windows the smallest one decides.
	least := d.Limit
	for _, window := range d.Windows {
		if size := window.Limit.Size; size > 0 && (least == 0 || size < least) {
			least = size
		}
	}
	return least
}

// recheckCostly rechecks the tickets that wait for more than size, the new limit: they can never be granted.
func (l *line) recheckCostly(size int64) {
	// The walk visits the whole line, so that maxCost, which only grows otherwise, becomes exact again.
	l.maxCost = 0
	for t := l.head; t != nil; t = t.next {
		if t.cost() > size {
			l.recheckTicket(t)
		} else {
			l.maxCost = max(l.maxCost, t.cost())
		}
	}
}
