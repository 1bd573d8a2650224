package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A ticket is one command in a line. Its fields are guarded by the line's lock, but for cmd while
// the ticket is offered to the store: then nobody changes it.
type ticket struct {
	cmd  gatehouse.Command
	done func(gatehouse.Decision, error) // nil for an undo

	line       *line
	prev, next *ticket
	timer      *time.Timer // ends the wait; nil when it has no end

	waits   bool // it may wait; what does not only passes through
	counted bool // it was looked at and waits, no newcomer any more
	offered bool // in the store's hands
	due     bool // its time is up: the next look is the last
	urgent  bool // in line.urgent
	left    bool // nobody waits for it any more
	gone    bool // out of the line

	granted *gatehouse.Decision // what cancel would have to take back
}

// cost is how much the ticket takes from those behind it.
func (t *ticket) cost() int64 {
	if t.cmd.Op != gatehouse.OpAcquire {
		return 0
	}
	return t.cmd.Cost
}

// took reports whether a decision gave the ticket something that can be taken back.
func (t *ticket) took(d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Granted && (t.cmd.Op.Waits() || t.cmd.Op == gatehouse.OpReserve)
}

// answer is what is said to a ticket, outside the lock.
type answer struct {
	ticket   *ticket
	decision gatehouse.Decision
	err      error
}

// cancel takes the ticket out of its line, or takes back what it was granted.
func (t *ticket) cancel() {
	l := t.line
	if l == nil { // it never got in line
		return
	}
	l.mu.Lock()
	switch {
	case t.left:
		l.mu.Unlock()
		return
	case t.gone:
		t.left = true
		granted := t.granted
		l.mu.Unlock()
		if granted != nil {
			l.gate.takeBack(l.key, undo(t, granted))
		}
		return
	case t.offered:
		t.left = true // settle sees it
		l.mu.Unlock()
		return
	}
	t.left = true
	l.leave(t, nil)
	l.mu.Unlock()
	l.serve()
}

// expire is called when the ticket's time is up. It gets one last look.
func (t *ticket) expire() {
	l := t.line
	l.mu.Lock()
	if t.gone {
		l.mu.Unlock()
		return
	}
	t.due = true
	l.hurry(t)
	l.mu.Unlock()
	l.serve()
}

// undo makes the ticket that takes back what t was granted, or left behind while it waited.
func undo(t *ticket, granted *gatehouse.Decision) *ticket {
	cmd := t.cmd
	cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, granted, 0
	return &ticket{cmd: cmd}
}
