package cas

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file decides on a shared record. What comes out depends on what goes in alone: there is no clock,
// lock, store or chance in it, so that every retry can decide again.

// A decideInput is all that a decision rests on.
type decideInput struct {
	server serverTraits
	kind   gatehouse.Kind

	// What is known of the name. The record stays as it is; the state, which is nil when there is none, is
	// changed, and belongs to the update from then on.
	record     *storedRecord
	state      control.State
	endedHolds []control.Hold // that the backend has ended, and the state has not
	refusals   refusalCount   // that this server has counted, and the state has not

	// Who asks. The commands stay as they are.
	turns []control.Turn
	undos []*undo  // those of turns that must not be done twice, in the order of their turns
	rest  lineRest // of this server's line, beside those in the queue
	gone  absences // other servers that do not listen

	joint       bool  // each turn is a part of a joint change
	nonBlocking bool  // one that does not hold up others if it waits
	at          int64 // when all parts of that are decided; 0 for any other

	now        int64  // the store's time, Unix ns
	nonce      uint64 // of the new record, not 0
	minFence   uint64 // the least fencing token of a grant; 0 means that the time makes them
	recordFull bool   // the record can take no more
}

// The serverTraits are what decisions depend on that is the same for all names.
type serverTraits struct {
	number       uint32
	maxHolders   int
	expiresHolds bool // the backend ends holds
}

// A recordUpdate is what becomes of a record by a queue.
type recordUpdate struct {
	write     bool                 // there is something to be stored
	next      storedRecord         // the new record, without its state
	state     control.State        // of the new record; nil when there is none
	now       int64                // the time of the decisions
	ahead     int64                // how far that is ahead of the store's
	decisions []gatehouse.Decision // one for each turn
	served    []servedTurn         // the turns that the controller has decided on

	wake       []uint32       // the servers that are to be told
	newHolds   []control.Hold // that the backend is to begin, or whose leases it is to renew
	endedHolds []control.Hold // and those that it is to end

	keptUntil int64 // when the store forgets the record, at the earliest; 0 if that is not known

	unstored int64        // how many of the refusals that were counted before belong to this controller
	refusals refusalCount // what the queue adds to them
}

// A servedTurn is a turn that was put to the controller.
type servedTurn struct {
	index        int
	blockedUntil int64 // until when another server's head bars its way; 0 when none does
}

// The decideBuffers are the room that one decision leaves to the next. The update uses some of it, and is
// good until then.
type decideBuffers struct {
	queue      []control.Turn // copies of the turns that are served: what depends on the store is filled in
	waitsSince []int64        // since when each turn counts as waiting
	decisions  []gatehouse.Decision
	served     []servedTurn
	wake       []uint32
	newHolds   []control.Hold
	endedHolds []control.Hold

	encodedState []byte
}

// A decider is one decision under way.
type decider struct {
	in      *decideInput
	out     *recordUpdate
	buffers *decideBuffers

	// As it was before the queue was served.
	tell          bool           // something has ended that others wait for
	holdsBefore   []control.Hold // that the backend ends
	refusedBefore int64

	// Of a part of a joint change, once that was served.
	withheld []bool // by turn: it took no effect, though this part may have been granted; nil for any other
	waits    bool   // it goes on waiting at this name
}

// decide serves a queue on what is known of a record, and puts out what is to become of that. It has no other
// effect than on the state and the buffers.
func decide(in *decideInput, buffers *decideBuffers, out *recordUpdate) {
	*out = recordUpdate{}
	d := decider{in: in, out: out, buffers: buffers}
	d.beginDecision()
	// There is room for all: a record that is too large is refused later, see buildChange.
	out.state = control.Serve(time.Unix(0, out.now), in.kind, out.state, buffers.queue)
	d.endDecision()
}

// beginDecision does what comes before the queue is served.
func (d *decider) beginDecision() {
	in, out, buffers := d.in, d.out, d.buffers
	n := len(in.turns)
	buffers.waitsSince = slices.Grow(buffers.waitsSince[:0], n)[:n]
	buffers.queue = buffers.queue[:0]
	out.decisions, out.served = slices.Grow(buffers.decisions[:0], n)[:n], buffers.served[:0]
	out.wake, out.newHolds, out.endedHolds = buffers.wake[:0], buffers.newHolds[:0], buffers.endedHolds[:0]
	d.beginRecord()
	// Refusals that this server counted belong to the state before the queue runs, so that statistics in
	// this very queue show them.
	out.state, out.unstored = in.state, in.refusals.addTo(in.state)
	d.refusedBefore, _ = control.Refusals(out.state)
	// First everything that has ended goes, then the queue runs: what became free is for the oldest in the
	// queue. The waiters at other servers are woken for the same reason.
	d.tell = d.dropEndedHolds()
	if out.next.dropEndedHeads(out.now) {
		d.tell = true
	}
	if out.state != nil && control.ForgetWaiters(out.state, out.next.waitsNoMore(in.server.number)) {
		d.tell = true
	}
	// The holds before and after the queue; the difference is what the backend has to begin and end.
	d.holdsBefore = d.backendHolds()
	d.prepareTurns()
}

// endDecision finds out what the decisions of a queue that was served mean for the record.
func (d *decider) endDecision() {
	out, buffers := d.out, d.buffers
	d.collectDecisions()
	// Other servers go by the heads, and have to hear of another one.
	if d.updateHead() {
		d.tell = true
	}
	d.noteEffects(d.tell)
	if d.in.server.expiresHolds {
		d.compareHolds(d.holdsBefore, d.backendHolds())
	}
	if out.state != nil {
		count, since := control.Refusals(out.state)
		out.refusals = refusalCount{count: count - d.refusedBefore, since: since}
	}
	// They may have grown.
	buffers.decisions, buffers.served = out.decisions, out.served
	buffers.wake, buffers.newHolds, buffers.endedHolds = out.wake, out.newHolds, out.endedHolds
}

// beginRecord begins the new record, with the time of the decisions.
func (d *decider) beginRecord() {
	in, out := d.in, d.out
	out.next = in.record.nextRecord(in.nonce)
	out.now = cmp.Or(in.at, out.next.decisionTime(in.now))
	out.ahead = max(0, out.now-in.now)
	if out.now < out.next.asOf {
		// The clock was set back beyond what differs between servers. A delete in what is now the future
		// would answer every new call with "deleted".
		out.next.deletedAt = 0 // by a time that is no more
	}
	out.next.asOf = out.now
}

// dropEndedHolds ends the holds that the backend has ended.
func (d *decider) dropEndedHolds() (changed bool) {
	semaphore, ok := d.out.state.(*control.Semaphore)
	if !ok {
		return false
	}
	for _, h := range d.in.endedHolds {
		if semaphore.End(h.Holder, h.Fence) {
			changed = true
		}
	}
	return changed
}

// prepareTurns copies the turns that are to be served and fills in what depends on the store, and answers the
// others.
func (d *decider) prepareTurns() {
	in, out := d.in, d.out
	least := d.leastFence()
	// All turns have a rank: a command that is not served still stands in front of later ones.
	d.rankTurns()
	for i := range in.turns {
		if answer, is := d.answerUnserved(i); is {
			answer.At = time.Unix(0, out.now)
			out.decisions[i] = answer
			continue
		}
		turn, until := in.turns[i], int64(0)
		turn.MaxHolders, turn.MinFence, turn.Leased = in.server.maxHolders, least, in.server.expiresHolds
		if turn.Op.Yields() {
			until = out.next.barredUntil(d.buffers.waitsSince[i], in.server.number, in.gone)
			// A head of another server, or a request of this server's line that is not in this transaction,
			// goes first.
			if until > 0 || turn.Ticket == 0 && in.rest.nonEmpty {
				turn.Ahead++
			}
		}
		out.write = out.write || leavesTrace(out.state, &turn)
		d.buffers.queue = append(d.buffers.queue, turn)
		out.served = append(out.served, servedTurn{index: i, blockedUntil: until})
	}
}

// leastFence is the least fencing token of a grant.
func (d *decider) leastFence() uint64 {
	least := uint64(d.out.now) / uint64(time.Microsecond) // the present is after 1970
	if d.in.minFence != 0 {
		least = d.in.minFence
	}
	// Never below the last token of the record, even if the clock was set back.
	return max(least, d.out.next.fence+1)
}

// answerUnserved answers a turn that is not to be served.
func (d *decider) answerUnserved(i int) (answer gatehouse.Decision, is bool) {
	in, next, turn := d.in, &d.out.next, &d.in.turns[i]
	// The waiter came before the delete: it must not make the controller again. Only an undo may pass.
	if turn.Op != gatehouse.OpUndo && sinceOf(turn, d.out.now) <= next.deletedAt {
		return gatehouse.Decision{
			Outcome: gatehouse.Deleted, Message: "was deleted while this request waited",
		}, true
	}
	if in.recordFull && canGrow(turn.Op) {
		return gatehouse.Decision{
			Outcome: gatehouse.Exhausted,
			Message: fmt.Sprintf("has a record of %d bytes, and a shared store takes %d",
				len(in.record.encodedState), maxRecord),
		}, true
	}
	byTurn := func(u *undo, turn int) int { return cmp.Compare(u.turn, turn) }
	// The undos are in the order of their turns.
	j, undoes := slices.BinarySearchFunc(in.undos, i, byTurn)
	if !undoes {
		return answer, false
	}
	if in.undos[j].isObsolete(in.record) {
		return gatehouse.Decision{Outcome: gatehouse.Granted}, true
	}
	// Marked in the next record: the undo and the note of it become one change.
	in.undos[j].markDone(next)
	return answer, false
}

// canGrow reports whether an operation can make a record much larger.
func canGrow(op gatehouse.Op) bool {
	return op.Waits() || op == gatehouse.OpReserve || op == gatehouse.OpCharge || op == gatehouse.OpSend ||
		op == gatehouse.OpFeedback
}

// collectDecisions gives each turn that was served its decision, by the time of the store.
func (d *decider) collectDecisions() {
	out := d.out
	for j, turn := range out.served {
		answer := &d.buffers.queue[j].Decision
		if answer.Outcome == gatehouse.Refused && answer.RetryAfter != gatehouse.Forever {
			if turn.blockedUntil > 0 && control.KeepsWaiting(d.in.turns[turn.index].Command, answer) {
				// Looking again before the head of the other server ends would be refused again.
				answer.RetryAfter = max(answer.RetryAfter, time.Duration(turn.blockedUntil-out.now))
			}
			// The decision was made at the record's time, which is ahead of the clock that the caller waits
			// by.
			answer.RetryAfter += time.Duration(out.ahead)
		}
		if d.in.turns[turn.index].Op == gatehouse.OpWaiters && answer.Report != nil {
			answer.Report.Others = out.next.otherLines(d.in.server.number, out.now)
		}
		out.decisions[turn.index] = *answer
	}
}

// noteEffects finds out whether anything is to be stored, and whom to tell.
func (d *decider) noteEffects(tell bool) {
	in, out := d.in, d.out
	out.write = out.write || tell
	for i := range in.turns {
		turn, answer := &in.turns[i], &out.decisions[i]
		withheld := len(d.withheld) > 0 && d.withheld[i]
		granted := answer.Outcome == gatehouse.Granted && !withheld
		if !withheld {
			out.next.fence = max(out.next.fence, answer.Fence)
		}
		if turn.Op.Reads() || turn.Op == gatehouse.OpBump {
			continue
		}
		switch turn.Op {
		case gatehouse.OpFeedback:
			// Most reports change nothing: clients tell what went well, too.
			out.write = out.write || granted && answer.Value != 0
		case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
			out.write = out.write || granted
		case gatehouse.OpWait:
			// At a barrier the last look of a waiter removes its arrival, which is a change although it was
			// refused.
			lastLook := turn.Again && turn.MaxWait == 0 && in.kind == gatehouse.Barrier
			out.write = out.write || granted || lastLook
			tell = tell || granted
		default:
			out.write = out.write || granted
			tell = tell || granted
		}
		if turn.Op == gatehouse.OpDelete && granted {
			out.next.deletedAt = out.now - 1 // who comes after it in this queue is none of those who waited
		}
	}
	// Without a head no other server waits, and with one its server is woken by name.
	if !tell {
		return
	}
	for _, h := range out.next.heads {
		if h.server != in.server.number {
			out.wake = append(out.wake, h.server)
		}
	}
}

// backendHolds are the present holds, if the backend ends them.
func (d *decider) backendHolds() []control.Hold {
	if semaphore, ok := d.out.state.(*control.Semaphore); ok && d.in.server.expiresHolds {
		return semaphore.Holds()
	}
	return nil
}

// compareHolds finds out which holds are new or were renewed, and which are held no more.
func (d *decider) compareHolds(before, after []control.Hold) {
	// A renewed hold keeps its token and needs a new lease, which the tokens alone do not show.
	renewed := map[string]bool{}
	for i := range d.in.turns {
		cmd := d.in.turns[i].Command
		// A renewal that was refused, of a hold that was evicted, must not lengthen its lease.
		renews := cmd.Op == gatehouse.OpRenew || cmd.Op == gatehouse.OpAcquire && cmd.Extend
		if renews && d.out.decisions[i].Outcome == gatehouse.Granted {
			renewed[cmd.Holder] = true
		}
	}
	old := make(map[uint64]bool, len(before))
	for _, h := range before {
		old[h.Fence] = true
	}
	kept := make(map[uint64]bool, len(after))
	for _, h := range after {
		kept[h.Fence] = true
		if !old[h.Fence] || renewed[h.Holder] {
			d.out.newHolds = append(d.out.newHolds, h)
		}
	}
	for _, h := range before {
		if !kept[h.Fence] {
			d.out.endedHolds = append(d.out.endedHolds, h)
		}
	}
}

// encode returns the stored form of the new record.
func (u *recordUpdate) encode(buffers *decideBuffers) []byte {
	u.next.encodedState = nil
	if u.state != nil {
		buffers.encodedState = control.Encode(buffers.encodedState[:0], u.state)
		u.next.encodedState = buffers.encodedState
	}
	return u.next.encodeRecord()
}

// roomAfter is in how long the first command that takes something now will not be refused any more, if one
// is refused and no other server's waiters are before it.
func (u *recordUpdate) roomAfter(turns []control.Turn) (after time.Duration, is bool) {
	for _, turn := range u.served {
		d := &u.decisions[turn.index]
		// One that another server's head bars is not refused for lack of room: waiting for room does not
		// help it.
		refused := turns[turn.index].Op == gatehouse.OpAcquire && d.Outcome == gatehouse.Refused
		if !refused || turn.blockedUntil > 0 || d.RetryAfter == gatehouse.Forever {
			continue
		}
		if !is || d.RetryAfter < after {
			after, is = d.RetryAfter, true
		}
	}
	return after, is
}
