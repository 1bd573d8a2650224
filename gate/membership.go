package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has how tickets join a line, stay in it and leave it.

// joinLine appends a ticket to the line of its key, and serves the line. A ticket without room is answered
// with an error.
func (g *Gate) joinLine(key gatehouse.Key, t *ticket) {
	l, err := g.enterLine(key, t)
	if err != nil {
		t.done(gatehouse.Decision{}, err)
		return
	}
	l.serveLine()
}

// enterLine appends a ticket to the line of its key, which it creates if there is none. The caller must
// serve the line then. Locks are taken in the order shard, line.
func (g *Gate) enterLine(key gatehouse.Key, t *ticket) (*line, error) {
	t.waits = mayWait(&t.cmd)
	if t.number == 0 {
		t.number = control.Ticket(g.tickets.Add(1))
	}
	slow := g.Slow(key) // the store's code is not called under a lock
	sh := g.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lines[key]
	if err := g.checkRoom(key, t, l); err != nil {
		return nil, err
	}
	if l == nil {
		l = &line{gate: g, key: key, slow: slow, waitersByHolder: make(map[string]int)}
		sh.lines[key] = l
		sh.count.Add(1)
		g.lines.Add(1)
	}
	// The shard stays locked until the ticket is in the line: otherwise dropLine could forget the line in
	// between, and the ticket would wait in a line that is never served.
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pushTicket(t)
	if t.waits && t.cmd.MaxWait > 0 {
		t.timer = time.AfterFunc(t.cmd.MaxWait, t.onTimeout)
	}
	return l, nil
}

// checkRoom returns an error if there is no room for a ticket. Tickets that do not wait always have room: a
// full line must still let releases and undos pass.
func (g *Gate) checkRoom(key gatehouse.Key, t *ticket, l *line) error {
	switch {
	case !t.waits:
		return nil
	case g.waiting.Load() >= int64(g.config.Waiters):
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: %d requests wait at this server already, the most it allows", key, g.config.Waiters)
	case l != nil && l.len() >= g.config.Line:
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"%s: %d requests wait in this line already, the most it allows", key, g.config.Line)
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
	if l.head != nil || l.serving || sh.lines[l.key] != l {
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
func (l *line) pushTicket(t *ticket) {
	t.line, t.prev = l, l.tail
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
	// Unseen tickets are always the last ones of the list, so that one pointer tells them from the others.
	if l.firstUnseen == nil {
		l.firstUnseen = t
	}
	if t.waits {
		l.waiting++
		l.gate.waiting.Add(1)
	}
}

// removeTicket unlinks a ticket and updates all counts of the line.
func (l *line) removeTicket(t *ticket) {
	t.removed = true
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
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.waits {
		l.waiting--
		l.gate.waiting.Add(-1)
	}
	if t.seen {
		l.seenCount--
		l.countHolder(t, -1)
	}
}

// countHolder adds by to the number of seen tickets of a ticket's holder.
func (l *line) countHolder(t *ticket, by int) {
	holder := t.cmd.Holder
	if holder == "" {
		return
	}
	l.waitersByHolder[holder] += by
	if l.waitersByHolder[holder] == 0 {
		delete(l.waitersByHolder, holder)
	}
}

// keepWaiting keeps a refused ticket in the line, unless its caller has left or the gate is closed.
func (l *line) keepWaiting(t *ticket, d *gatehouse.Decision) {
	first := !t.seen
	// From now on the command must not resize the controller again, and its place is by the time at which
	// the store saw it first.
	if first {
		t.seen = true
		if !t.isKnown() {
			t.since = d.At
		}
		l.seenCount++
		l.countHolder(t, +1)
	}
	l.maxCost = max(l.maxCost, t.cost())
	switch {
	case t.abandoned:
		l.removeAbandoned(t, nil)
	case l.gate.closed.Load():
		l.removeAbandoned(t, nil)
		l.replies = append(l.replies, ticketReply{ticket: t, err: stoppingError(l.key)})
	case t.expired && first:
		// Its timer fired during this first offer, when onTimeout could not yet put it up for a recheck.
		l.recheckTicket(t)
	}
}

// stoppingError is the error of a command that would have to wait at a closed gate.
func stoppingError(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the server is stopping", key)
}

// removeAbandoned removes a ticket whose caller has left. An undo takes its place at the end of the line if
// the ticket was granted something, or is remembered by the store as waiting. d is the ticket's decision,
// nil when it has none.
func (l *line) removeAbandoned(t *ticket, d *gatehouse.Decision) {
	l.removeTicket(t)
	// The copy outlives the batch, which d points into.
	if d != nil && t.needsUndo(d) {
		granted := *d
		l.pushTicket(newUndo(t, &granted))
	} else if t.waits && t.isKnown() {
		l.pushTicket(newUndo(t, nil))
	}
}

// finishTicket removes a ticket, and queues its answer for sendReplies.
func (l *line) finishTicket(t *ticket, d gatehouse.Decision, err error) {
	l.removeTicket(t)
	if t.abandoned || t.done == nil {
		return
	}
	l.replies = append(l.replies, ticketReply{ticket: t, decision: d, err: err})
	if !t.needsUndo(&d) {
		return
	}
	t.granted = &d
	// Other tickets of the same holder share this hold, wherever they are in the line.
	if d.Fence != 0 && l.waitersByHolder[t.cmd.Holder] > 0 {
		if l.newHolders == nil {
			l.newHolders = make(map[string]bool)
		}
		l.newHolders[t.cmd.Holder] = true
	}
}

// recheckTicket has the next batch include a seen ticket although it is not in front. Unseen tickets come to
// the store anyway.
func (l *line) recheckTicket(t *ticket) {
	if !t.inRecheck && t.seen {
		t.inRecheck = true
		l.recheck = append(l.recheck, t)
	}
}

// recheckHolders rechecks the tickets whose holder was granted something in this batch: they share its hold.
func (l *line) recheckHolders() {
	if len(l.newHolders) == 0 {
		return
	}
	for t := l.head; t != nil; t = t.next {
		if l.newHolders[t.cmd.Holder] {
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
