package cas

import (
	"cmp"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file decides on the records of a joint change, as decide does on one. What comes out depends on what
// goes in alone.

// decideJoint serves the changes of some calls, one after the other, on what is known of their records, and
// makes the update of each record. It notes which took effect. served is room for as many parts.
func decideJoint(parts []jointPart, calls []servedChange, served []control.JointPart) {
	// All parts at one instant, and all calls on the states that those before them have left.
	at := jointTime(parts)
	for i := range parts {
		p := &parts[i]
		p.in.at, p.in.joint, p.in.nonBlocking = at, true, p.NonBlocking
		p.update, p.withheld = recordUpdate{}, p.withheld[:0]
		p.decider = decider{in: &p.in, out: &p.update, buffers: &p.buffers}
		p.decider.beginDecision()
	}
	for i := range calls {
		call := jointServer{parts: parts, call: &calls[i], number: i, served: served, at: at}
		call.serveCall()
	}
	for i := range parts {
		parts[i].endDecision()
	}
}

// A jointServer serves the change of one call.
type jointServer struct {
	parts  []jointPart
	call   *servedChange
	number int // of the call, which is that of its turn in the queues of the names
	served []control.JointPart
	at     int64
}

// partAt is the part of the transaction for a part of the change, and the place of its turn there.
func (v *jointServer) partAt(i int) (p *jointPart, turn int) {
	at, turn := v.call.placeOf(i, v.number)
	return &v.parts[at], turn
}

// placeOf is the index of the part of the transaction for a part of the change, and the place of its turn
// there. number is that of the call.
func (c *servedChange) placeOf(i, number int) (part, turn int) {
	if c.change.Parts[i].Key.Kind == gatehouse.Grant {
		return c.record, 0 // no other call is about it
	}
	return i, number
}

// serveCall serves the change. Each name remembers the last fencing token that was given out under it, so
// that the next call has a greater one.
func (v *jointServer) serveCall() {
	all := v.call.change.Parts
	served := v.served[:len(all)]
	for i := range all {
		p, turn := v.partAt(i)
		// The turn is a copy: one that has to be decided again leaves no trace.
		p.served = control.Part{
			Key: p.Key, Turn: p.turns[turn], Optional: all[i].Optional, NonBlocking: all[i].NonBlocking,
		}
		served[i] = control.JointPart{Part: &p.served, State: p.update.state}
		if queued := p.queuedTurn(turn); queued != nil {
			p.served.Turn = *queued
		} else {
			served[i].State = unservedState(&p.turns[turn], p.update.decisions[turn])
		}
	}
	granted := control.ServeJoint(time.Unix(0, v.at), served)
	v.call.granted = granted
	waits := !granted && jointWaits(served)
	for i := range all {
		p, turn := v.partAt(i)
		if queued := p.queuedTurn(turn); queued != nil {
			p.update.state, *queued = served[i].State, p.served.Turn
		}
		p.withheld, p.waits = append(p.withheld, !granted), waits
	}
}

// queuedTurn is a turn as it is served; nil if it was answered already.
func (p *jointPart) queuedTurn(turn int) *control.Turn {
	byIndex := func(s servedTurn, index int) int { return cmp.Compare(s.index, index) }
	i, found := slices.BinarySearchFunc(p.update.served, turn, byIndex)
	if !found {
		return nil
	}
	return &p.buffers.queue[i]
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
func jointWaits(served []control.JointPart) bool {
	refused := false
	for i := range served {
		switch p := served[i].Part; {
		case p.Optional || p.Turn.Decision.Outcome == gatehouse.Granted:
		case p.Turn.Decision.Outcome != gatehouse.Refused:
			return false
		default:
			refused = true
		}
	}
	return refused
}

// endDecision finds out what the decisions mean for the record of one part.
func (p *jointPart) endDecision() {
	turn := &p.turns[0]
	refused := p.served.Turn.Decision.Outcome == gatehouse.Refused
	// A grant that holds up no others needs to hear only of the names that refuse it: when these no longer
	// do, it looks at all. One that waits is served alone.
	p.decider.waits = p.waits && turn.Ticket != 0 && turn.MaxWait != 0 && p.Key.Kind != gatehouse.Grant &&
		(refused || !p.NonBlocking)
	p.decider.withheld = p.withheld
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
	case turn.Op == gatehouse.OpAcquire && p.withheld[0] && p.in.record.encodedState == nil:
		p.update.write = false // a grant that is not made leaves nothing
	}
}
