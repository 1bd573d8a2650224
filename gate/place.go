package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is how tickets get into a line, stay in it and get out of it.

// join puts a ticket at the end of its key's line, and has the line served.
func (g *Gate) join(key gatehouse.Key, t *ticket) {
	l, err := g.enter(key, t)
	if err != nil {
		t.done(gatehouse.Decision{}, err)
		return
	}
	l.serve()
}

// enter puts a ticket at the end of its key's line. The line is to be served then.
func (g *Gate) enter(key gatehouse.Key, t *ticket) (*line, error) {
	t.waits = mayWait(&t.cmd)
	if t.cmd.Ticket == 0 {
		t.cmd.Ticket = gatehouse.Ticket(g.tickets.Add(1))
	}
	slow := g.Slow(key)
	sh := g.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lines[key]
	if err := g.admit(key, t, l); err != nil {
		return nil, err
	}
	if l == nil {
		l = &line{gate: g, key: key, slow: slow, holders: make(map[string]int)}
		sh.lines[key] = l
		sh.count.Add(1)
		g.lines.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(t)
	if t.waits && t.cmd.MaxWait > 0 {
		t.timer = time.AfterFunc(t.cmd.MaxWait, t.expire)
	}
	return l, nil
}

// admit refuses a ticket that there is no room for.
func (g *Gate) admit(key gatehouse.Key, t *ticket, l *line) error {
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

// drop forgets a line that nobody stands in.
func (g *Gate) drop(l *line) {
	sh := g.shard(l.key)
	sh.mu.Lock()
	l.mu.Lock()
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
	if l.stop != nil {
		l.stop()
	}
}

func (l *line) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length
}

// push puts a newcomer at the end.
func (l *line) push(t *ticket) {
	t.line, t.prev = l, l.tail
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
	if l.newcomer == nil {
		l.newcomer = t
	}
	if t.waits {
		l.length++
		l.gate.waiting.Add(1)
	}
}

// remove takes a ticket out of the line.
func (l *line) remove(t *ticket) {
	t.gone = true
	if l.newcomer == t {
		l.newcomer = t.next
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
		l.length--
		l.gate.waiting.Add(-1)
	}
	if t.counted {
		l.counted--
		l.countHolder(t, -1)
	}
}

func (l *line) countHolder(t *ticket, by int) {
	holder := t.cmd.Holder
	if holder == "" {
		return
	}
	l.holders[holder] += by
	if l.holders[holder] == 0 {
		delete(l.holders, holder)
	}
}

// stay keeps a refused ticket in the line, unless its client is gone or the gate is closed.
func (l *line) stay(t *ticket, d *gatehouse.Decision) {
	first := !t.counted
	if first {
		t.counted, t.cmd.Again = true, true
		if t.cmd.Since.IsZero() {
			t.cmd.Since = d.At
		}
		l.counted++
		l.countHolder(t, +1)
	}
	l.widest = max(l.widest, t.cost())
	switch {
	case t.left:
		l.leave(t, nil)
	case l.gate.closed.Load():
		l.leave(t, nil)
		l.answers = append(l.answers, answer{ticket: t, err: stopping(l.key)})
	case t.due && first:
		l.hurry(t) // its time was up while the store looked at it
	}
}

// stopping is what those are told who would have to wait at a closed gate.
func stopping(key gatehouse.Key) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the server is stopping", key)
}

// leave takes a ticket out that nobody waits for any more, and with it what it was granted or what
// it left behind.
func (l *line) leave(t *ticket, d *gatehouse.Decision) {
	l.remove(t)
	if d != nil && t.took(d) {
		granted := *d
		l.push(undo(t, &granted))
	} else if t.waits && t.cmd.Again {
		l.push(undo(t, nil))
	}
}

// finish takes a ticket out and answers it.
func (l *line) finish(t *ticket, d gatehouse.Decision, err error) {
	l.remove(t)
	if t.left || t.done == nil {
		return
	}
	l.answers = append(l.answers, answer{ticket: t, decision: d, err: err})
	if !t.took(&d) {
		return
	}
	t.granted = &d
	if d.Fence != 0 && l.holders[t.cmd.Holder] > 0 {
		if l.granted == nil {
			l.granted = make(map[string]bool)
		}
		l.granted[t.cmd.Holder] = true
	}
}

// hurry has a ticket looked at although it is not in front.
func (l *line) hurry(t *ticket) {
	if !t.urgent && t.counted {
		t.urgent = true
		l.urgent = append(l.urgent, t)
	}
}

// hurryHolders hurries those who wait with a key that has just been granted: they share its hold.
func (l *line) hurryHolders() {
	if len(l.granted) == 0 {
		return
	}
	for t := l.head; t != nil; t = t.next {
		if l.granted[t.cmd.Holder] {
			l.hurry(t)
		}
	}
	clear(l.granted)
}

// inForce is the most that passes at once under the limits in force, as far as a decision tells it;
// otherwise 0. What a command asked about limits of its own tells nothing about those.
func inForce(cmd *gatehouse.Command, d *gatehouse.Decision) int64 {
	if cmd.Op == gatehouse.OpPeek || cmd.Op == gatehouse.OpDelay {
		return 0
	}
	least := d.Limit
	for _, window := range d.Windows {
		if size := window.Limit.Size; size > 0 && (least == 0 || size < least) {
			least = size
		}
	}
	return least
}

// hurryWide hurries those who wait for more than a size that was made smaller: they wait in vain.
func (l *line) hurryWide(size int64) {
	l.widest = 0
	for t := l.head; t != nil; t = t.next {
		if t.cost() > size {
			l.hurry(t)
		} else {
			l.widest = max(l.widest, t.cost())
		}
	}
}
