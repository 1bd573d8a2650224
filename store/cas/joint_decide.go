package cas

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file decides on the records of a joint change, as decide does on one. What comes out depends on what
// goes in alone.

// decideJoint serves a joint change on what is known of its records, and makes the update of each of them. It
// reports whether it took effect. served is room for as many parts.
func decideJoint(parts []jointPart, served []control.JointPart) (granted bool) {
	at := jointTime(parts)
	for i := range parts {
		p := &parts[i]
		p.in.at, p.in.joint, p.in.nonBlocking = at, true, p.NonBlocking
		p.update = recordUpdate{}
		p.decider = decider{in: &p.in, out: &p.update, buffers: &p.buffers}
		p.decider.beginDecision()
		// The turn is a copy: one that has to be decided again leaves no trace.
		p.served = control.Part{Key: p.Key, Turn: p.turn[0], Optional: p.Optional, NonBlocking: p.NonBlocking}
		served[i] = control.JointPart{Part: &p.served, State: p.update.state}
		if queue := p.buffers.queue; len(queue) > 0 {
			p.served.Turn = queue[0]
		} else {
			served[i].State = unservedState(&p.turn[0], p.update.decisions[0])
		}
	}
	granted = control.ServeJoint(time.Unix(0, at), served)
	waits := !granted && jointWaits(parts)
	for i := range parts {
		p := &parts[i]
		if queue := p.buffers.queue; len(queue) > 0 {
			p.update.state, queue[0] = served[i].State, p.served.Turn
		}
		p.decider.withheld = !granted
		p.endDecision(waits)
	}
	return granted
}

// jointTime is the time of a joint decision: all records have it, and to each it is later than its last one.
func jointTime(parts []jointPart) int64 {
	at := parts[0].in.now
	for moved := true; moved; {
		moved = false
		for i := range parts {
			// Beyond some time ahead of the store's a record's time is given up, so that this ends.
			if next := parts[i].in.record.decisionTime(at); next > at {
				at, moved = next, true
			}
		}
	}
	return at
}

// An answeredState stands for a controller whose turn is answered without it.
type answeredState struct {
	control.State
	answer gatehouse.Decision
}

// Step implements control.State.
func (s answeredState) Step(_ time.Time, turn *control.Turn) { turn.Decision = s.answer }

// Weight implements control.State.
func (answeredState) Weight() int { return 0 }

// unservedState is what a turn is served on that was answered already. What was taken back before is to be
// left alone.
func unservedState(turn *control.Turn, answer gatehouse.Decision) control.State {
	if turn.Op == gatehouse.OpUndo {
		return nil
	}
	return answeredState{answer: answer}
}

// jointWaits reports whether a joint change that took no effect goes on waiting: nothing but time is in its
// way.
func jointWaits(parts []jointPart) bool {
	refused := false
	for i := range parts {
		switch p := &parts[i].served; {
		case p.Optional || p.Turn.Decision.Outcome == gatehouse.Granted:
		case p.Turn.Decision.Outcome != gatehouse.Refused:
			return false
		default:
			refused = true
		}
	}
	return refused
}

// endDecision finds out what the decision means for the record of one part.
func (p *jointPart) endDecision(waits bool) {
	turn := &p.turn[0]
	refused := p.served.Turn.Decision.Outcome == gatehouse.Refused
	// A grant that holds up no others needs to hear only of the names that refuse it: when these no longer
	// do, it looks at all.
	p.decider.waits = waits && turn.Ticket != 0 && turn.MaxWait != 0 && p.Key.Kind != gatehouse.Grant &&
		(refused || !p.NonBlocking)
	p.decider.endDecision()
	if p.Key.Kind != gatehouse.Grant {
		return
	}
	d := &p.update.decisions[0]
	retried := d.Outcome == gatehouse.Conflict && d.Grant != nil && !d.Grant.Ended
	switch {
	case turn.Op == gatehouse.OpAcquire && retried:
		// The record counts how often it was answered.
		p.update.write = true
	case turn.Op == gatehouse.OpAcquire && p.decider.withheld && p.in.record.encodedState == nil:
		p.update.write = false // a grant that is not made leaves nothing
	}
}
