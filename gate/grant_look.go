package gate

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has how a request over several names is put to the store, and its answers.

// buildParts makes the parts of the next look at an acquire or a topup, whose record was found.
func (r *GrantRequest) buildParts() {
	if r.isExpired() {
		r.Command.MaxWait = 0 // a refusal is final
	}
	if r.mayWait() && r.number == 0 {
		r.number = r.gate.nextTicket()
	}
	if r.record != nil {
		// It has passed with this command and this record before.
		_ = r.parts.Follow(&r.Command, r.record)
	} else {
		r.parts.Acquire(&r.Command)
	}
	nonBlocking := len(r.parts.Parts) > 1
	for i := range r.parts.Parts {
		part := &r.parts.Parts[i]
		part.Turn.Ticket, part.Turn.Again, part.Turn.Since = r.number, r.known, r.since
		part.NonBlocking = nonBlocking
	}
}

// isExpired reports whether its MaxWait is over. Only the timer of one that stands in lines says so.
func (r *GrantRequest) isExpired() bool {
	if len(r.places) == 0 {
		return false
	}
	o := &r.gate.grants
	o.mu.Lock()
	defer o.mu.Unlock()
	return r.expired
}

// advance puts a request to the store until it is answered, waits, or an answer takes time. answered says
// that there is an answer already.
func (r *GrantRequest) advance(answered bool) {
	for more := true; more; {
		if !answered && !r.putChange() {
			late := len(r.places) == 0 && r.step == stepDecide && r.mayWait()
			if late {
				// In line before SubmitGrant returns, so that nothing that is submitted later can overtake.
				r.enterLines(true)
			}
			if r.leaveToAnswer() {
				return
			}
		}
		answered = false
		more = r.processAnswer()
	}
}

// putChange puts the parts to the store, and reports whether the answer is there already. If it is not, the
// caller must call leaveToAnswer.
func (r *GrantRequest) putChange() bool {
	r.handover.Store(started)
	r.change.Parts, r.change.Granted, r.change.Done = r.parts.Parts, false, r.onDone
	r.gate.store.ApplyJoint(&r.change)
	return r.handover.Load() == answered
}

// leaveToAnswer leaves the request to the goroutine that brings the answer. It reports false if the answer
// has come in the meantime.
func (r *GrantRequest) leaveToAnswer() bool {
	g := r.gate
	r.late = true
	// Before it is left, so that Drain finds it counted whoever goes on.
	g.work.begin()
	if r.handover.CompareAndSwap(started, left) {
		return true
	}
	g.work.end()
	return false
}

// noteAnswer is the Done of the change.
func (r *GrantRequest) noteAnswer(err error) {
	r.storeErr = err
	if r.handover.Swap(answered) != left {
		return
	}
	// Lines may be served, which must not hold up the store.
	g := r.gate
	go func() { // ends when the request is answered, waits, or is at the store again
		defer g.work.end()
		r.advance(true)
		g.serveGrants()
	}()
}

// processAnswer works off an answer of the store. It reports whether other parts are to be put to it.
func (r *GrantRequest) processAnswer() (more bool) {
	if r.step == stepUndo {
		r.gate.noteJoint(r.parts.Parts, true, r.storeErr)
		return false
	}
	err := r.storeErr
	if err == nil {
		err = r.parts.Decide(r.change.Granted, &r.Decision)
	}
	switch {
	case err != nil:
	case r.step == stepPeek:
		err = r.judgeRecord()
	case r.mayWait() || r.seen:
		r.noteResized()
	}
	// Only what is refused may wait: a repeat of a grant that is there was granted by Decide.
	switch {
	case err != nil:
		r.endLook(err)
		return false
	case r.step == stepPeek && r.goesOn():
		return r.followRecord()
	// The ID belongs to another grant by now, whose record has to be looked up.
	case r.meetsOtherGrant():
		r.tries++
		r.step = stepPeek
		r.parts.Peek(&r.Command)
		return true
	case r.Decision.Outcome == gatehouse.Refused && r.mayWait():
		r.keepWaiting()
		return false
	}
	r.endLook(nil)
	return false
}

// noteResized notes whose limits or sizes the first look at an acquire has changed, and tells so in the
// decision of a later one.
func (r *GrantRequest) noteResized() {
	for i := range r.Decision.Want {
		m, bit := &r.Decision.Want[i], uint32(1)<<i // there are at most MaxMembers
		if m.Resized {
			r.resized |= bit
		}
		m.Resized = r.resized&bit != 0
	}
}

// judgeRecord asks Judge about the grant whose record was looked up.
func (r *GrantRequest) judgeRecord() error {
	record := r.parts.Parts[0].Turn.Decision.Grant
	if r.Judge == nil || record == nil {
		return nil
	}
	return r.Judge(record.Want)
}

// goesOn reports whether looking the record up was only the beginning. A peek is answered by that alone,
// unless the grant holds something: what of it was evicted only the names themselves know.
func (r *GrantRequest) goesOn() bool {
	if r.Command.Op != gatehouse.OpPeek {
		return true
	}
	record := r.parts.Parts[0].Turn.Decision.Grant
	return record != nil && !record.Ended &&
		slices.ContainsFunc(record.Want, func(m gatehouse.Member) bool { return !m.Key.Kind.Limiter() })
}

// followRecord goes on with an operation on a grant when its record was looked up.
func (r *GrantRequest) followRecord() (more bool) {
	record := r.parts.Parts[0].Turn.Decision.Grant
	if record == nil {
		r.endLook(nil) // it is missing
		return false
	}
	err := r.parts.Follow(&r.Command, record)
	if err != nil {
		r.endLook(err)
		return false
	}
	r.step, r.record = stepDecide, record
	if r.Command.Op != gatehouse.OpTopUp {
		return true
	}
	r.number = r.gate.nextTicket()
	// What it adds stands behind the waiting requests.
	if slices.ContainsFunc(r.parts.Parts, func(p control.Part) bool { return r.gate.lineOf(p.Key) != nil }) {
		r.joinLines()
		return false
	}
	r.buildParts()
	return true
}

// maxFollowTries is how often the record of a grant is looked up again because another grant of its ID had
// come.
const maxFollowTries = 3

// meetsOtherGrant reports whether an operation on whichever grant has the ID has met another one than was
// looked up.
func (r *GrantRequest) meetsOtherGrant() bool {
	if r.record == nil || r.change.Granted || r.Command.Fence != 0 || len(r.places) > 0 ||
		r.tries == maxFollowTries {
		return false
	}
	now := r.parts.Parts[len(r.parts.Parts)-1].Turn.Decision.Grant
	return now != nil && now.Fence != r.record.Fence
}

// endLook answers a request that the store has decided, or has failed to.
func (r *GrantRequest) endLook(err error) {
	g, lines := r.gate, lineList{}
	if len(r.places) > 0 {
		// While it still stands in its lines, which say who is ahead of it.
		if err == nil && r.Command.Explain {
			r.explainLines()
		}
		lines = r.leaveLines()
	}
	g.noteJoint(r.parts.Parts, err != nil || r.change.Granted, r.storeErr)
	if err == nil && r.change.Granted {
		g.noteRecord(r)
	}
	r.finishRequest(err)
	// noteRecord has marked grants that may stand at other names than these, and looks at none.
	if lines.n > 0 || g.grants.waiting.Load() > 0 {
		g.serveLines(lines)
	}
}

// finishRequest answers a request that is in no line.
func (r *GrantRequest) finishRequest(err error) {
	r.Err = err
	if r.late {
		o := &r.gate.grants
		o.mu.Lock()
		r.finished = true
		abandoned := r.abandoned
		o.mu.Unlock()
		// Once it is finished, a CancelGrant reads the answer: it is changed only if there was one before.
		if abandoned {
			r.undoDecision()
			err = errCanceled
			r.Err = err
		}
	} else {
		// No other goroutine knows of it yet.
		r.finished, r.busy = true, false
	}
	if err != nil {
		// Want keeps its room, so that a request which is used again allocates none.
		r.Decision = gatehouse.GrantDecision{Binding: -1, Want: r.Decision.Want[:0]}
	}
	if r.gate.config.Observer != nil && r.step != stepUndo {
		r.gate.observeGrant(r)
	}
	if r.Decided != nil {
		r.Decided(r)
	}
}

// submitUndo takes back what a request was granted, or what the store remembers of it as waiting. No caller
// is left who could be told of an error: what was not undone ends when it expires.
func (r *GrantRequest) submitUndo(granted bool) {
	undo := new(GrantRequest)
	undo.prepareRequest(r.gate)
	undo.step = stepUndo
	// Copies, because r may be used again before the undo is applied.
	undo.Command = r.Command
	undo.Command.Want, undo.Command.Costs = slices.Clone(r.Command.Want), slices.Clone(r.Command.Costs)
	if undo.Command.Op == gatehouse.OpTopUp {
		if undo.parts.Follow(&undo.Command, r.record) != nil {
			return
		}
	} else {
		undo.parts.Acquire(&undo.Command)
	}
	for i := range undo.parts.Parts {
		turn := &undo.parts.Parts[i].Turn
		turn.Ticket, turn.Again, turn.Since = r.number, true, r.since
		turn.Decision = r.parts.Parts[i].Turn.Decision
		// A grant that was there already: what it has is told by the record.
		if !r.change.Granted {
			turn.Decision.Fence = r.Decision.Fence
		}
	}
	undo.parts.Undo()
	if !granted {
		for i := range undo.parts.Parts {
			undo.parts.Parts[i].Turn.Granted = nil
		}
	}
	undo.advance(false)
	r.gate.serveGrants()
}
