package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A ticket is one command in a line. Its fields are guarded by the line's lock, except cmd while the ticket
// is offered to the store: then nothing changes it. The turn that it is offered in is made of its fields.
//
//	joinLine           fillBatch             refused
//	─────────▶ unseen ───────────▶ offered ───────────▶ seen, waiting
//	             │                  │    ▲                │    │
//	             │ cancel    others │    └────────────────┘    │ cancel
//	             ▼                  ▼        fillBatch         ▼
//	          removed ◀───────── answered                   removed, and an undo joins the line
//
// A ticket that is canceled while it is offered is marked abandoned. Its decision is then undone instead of
// answered.
type ticket struct {
	cmd    gatehouse.Command
	number control.Ticket                  // its identity in the store; 0 until it joins a line
	since  time.Time                       // when the store has refused it first; the zero time if it has not
	undoes *gatehouse.Decision             // for an undo of a grant; otherwise nil
	done   func(gatehouse.Decision, error) // nil for an undo

	line       *line
	prev, next *ticket
	timer      *time.Timer // ends the wait; nil when MaxWait is Forever or 0

	waits     bool // the command may wait; any other only passes through the line
	seen      bool // the store has refused it once, and it waits
	offered   bool // the store has it at present
	expired   bool // its MaxWait is over: the next offer is the last
	inRecheck bool // it is in line.recheck
	abandoned bool // its caller has left
	removed   bool // it is out of the line

	granted *gatehouse.Decision // what cancel has to undo; nil if nothing was granted
}

// cost returns how much the ticket takes from those behind it.
func (t *ticket) cost() int64 {
	if t.cmd.Op != gatehouse.OpAcquire {
		return 0
	}
	return t.cmd.Cost
}

// needsUndo reports whether a decision gave the ticket something that can be undone.
func (t *ticket) needsUndo(d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Granted && (t.cmd.Op.Waits() || t.cmd.Op == gatehouse.OpReserve)
}

// isKnown reports whether the store has looked at the command before, here or in Try.
func (t *ticket) isKnown() bool { return !t.since.IsZero() }

// newTurn returns the turn in which the ticket is offered to the store.
func (t *ticket) newTurn() control.Turn {
	return control.Turn{
		Command: &t.cmd, Ticket: t.number, Again: t.isKnown(), Since: t.since, Granted: t.undoes,
	}
}

// A ticketReply is an answer that is sent after the line's lock is released.
type ticketReply struct {
	ticket   *ticket
	decision gatehouse.Decision
	err      error
}

// cancel takes the ticket out of its line, or undoes what it was granted.
func (t *ticket) cancel() {
	l := t.line
	if l == nil { // there was no room for it in the line
		return
	}
	l.mu.Lock()
	switch {
	case t.abandoned:
		// A second cancel must not undo a second time.
		l.mu.Unlock()
		return
	case t.removed:
		// It was answered. Setting abandoned makes later calls do nothing.
		t.abandoned = true
		granted := t.granted
		l.mu.Unlock()
		if granted != nil {
			l.gate.submitUndo(l.key, newUndo(t, granted))
		}
		return
	case t.offered:
		// The store has it, and may be granting it. processDecisions sees abandoned, and undoes the grant.
		t.abandoned = true
		l.mu.Unlock()
		return
	}
	// The ticket waits in line. Those behind it may be granted now, so the line is served.
	t.abandoned = true
	l.removeAbandoned(t, nil)
	l.mu.Unlock()
	l.serveLine()
}

// onTimeout is called when the ticket's MaxWait is over.
func (t *ticket) onTimeout() {
	l := t.line
	l.mu.Lock()
	if t.removed {
		l.mu.Unlock()
		return
	}
	// Only the store refuses: one more offer, without MaxWait, brings a grant or the final refusal.
	t.expired = true
	l.recheckTicket(t)
	l.mu.Unlock()
	l.serveLine()
}

// newUndo returns a ticket that undoes what t was granted, or what the store remembers of it as waiting if
// granted is nil.
func newUndo(t *ticket, granted *gatehouse.Decision) *ticket {
	undo := &ticket{cmd: t.cmd, number: t.number, since: t.since, undoes: granted}
	undo.cmd.Op, undo.cmd.MaxWait = gatehouse.OpUndo, 0
	return undo
}
