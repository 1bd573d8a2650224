package oracle

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehousehq/gatehouse"
)

// Linear looks for an order of the calls on one name that explains every answer, for at most so long: each
// call took effect at one instant between its beginning and its end, or, if it failed, at any time after its
// beginning or never. That is linearizability. What an acquire that failed was granted may be taken back at
// any time after its beginning, and nothing else: a hold that was answered to its holder, or renewed, stays.
// The error tells all calls, if there is no such order or it takes too long to find.
//
// Holds must not end by themselves meanwhile, the size of a semaphore must not change, and nothing may be
// deleted or forgotten.
func Linear(calls []*Call, longest time.Duration) error {
	if len(calls) == 0 {
		return nil
	}
	var list []porcupine.Operation
	waits := false // somebody may have waited: others may have been refused although there was room
	last := time.Duration(0)
	for i, c := range calls {
		waits, last = waits || c.Command.MaxWait != 0, max(last, c.Begin, c.End)
		in := modelCall{Command: c.Command, number: i}
		one := openCall(in, c.Begin)
		if c.Answered {
			one.Output, one.Return = modelReply{known: true, Decision: c.Decision}, int64(c.End)
		}
		list = append(list, one)
		if !c.Answered && c.Command.Op == gatehouse.OpAcquire {
			// What it was granted may be taken back even before its caller gets the error.
			in.Op = gatehouse.OpUndo
			list = append(list, openCall(in, c.Begin))
		}
	}
	// The mark of the end comes after all calls with an answer. Open calls may be ordered behind it, which
	// means that they had no effect.
	list = append(list, openCall(modelCall{end: true}, last+1))
	key := calls[0].Key
	model := boundedModel(models[key.Kind](waits))
	if result := porcupine.CheckOperationsTimeout(model, list, longest); result != porcupine.Ok {
		return fmt.Errorf("%s: %s: no order of its %d calls explains their answers:\n%s",
			key, result, len(calls), listCalls(calls))
	}
	return nil
}

// openCall is a call that has begun and has no answer yet, or never.
func openCall(in modelCall, begin time.Duration) porcupine.Operation {
	return porcupine.Operation{Input: in, Output: modelReply{}, Call: int64(begin), Return: math.MaxInt64}
}

// A modelCall is a call, or the taking back of what a call was granted.
type modelCall struct {
	gatehouse.Command
	number int  // of the call among those of its name; an undo has that of its acquire
	end    bool // no call at all, but the end of the history
}

// A modelReply is a decision, if it is known.
type modelReply struct {
	known bool
	gatehouse.Decision
}

func (c modelCall) isEnd() bool    { return c.end }
func (a modelReply) isKnown() bool { return a.known }

// models are what is right for each kind. A call without an answer is right in every state, and does what it
// can.
var models = map[gatehouse.Kind]func(waits bool) porcupine.Model{
	gatehouse.Lock:      holdsModel,
	gatehouse.Semaphore: holdsModel,
	gatehouse.Counter:   counterModel,
	gatehouse.Event:     eventModel,
}

// A boundedState is a state of a model, and whether the history has ended.
type boundedState struct {
	state any
	ended bool
}

// boundedModel returns a model that tries a call without an answer only where it changes something. A call
// that changed nothing belongs behind the end. Without this rule the search would try each such call in every
// place, and take a time exponential in their number.
func boundedModel(m porcupine.Model) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return boundedState{state: m.Init()} },
		Step: func(state, in, out any) (bool, any) {
			b := state.(boundedState)
			switch {
			case in.(interface{ isEnd() bool }).isEnd():
				return true, boundedState{b.state, true}
			case b.ended:
				return true, b
			}
			right, next := m.Step(b.state, in, out)
			// An open call that changes nothing is not allowed here. It can be placed behind the end, so that
			// no history is lost.
			if !right || !out.(interface{ isKnown() bool }).isKnown() && m.Equal(b.state, next) {
				return false, b
			}
			return true, boundedState{next, false}
		},
		Equal: func(a, b any) bool {
			one, other := a.(boundedState), b.(boundedState)
			return one.ended == other.ended && m.Equal(one.state, other.state)
		},
	}
}

// holdsState is the state of a lock or a semaphore.
type holdsState struct {
	list []modelHold // in the order of the holders' names
	last uint64      // the greatest fencing token that was seen
}

type modelHold struct {
	holder string
	cost   int64
	fence  uint64 // 0 when it is not known
	above  uint64 // what is not known is greater than this
	below  uint64 // and less than this; 0 when no later token was seen

	// sure says that the hold was answered to its holder, or renewed: no undo ends it. Until then it ends
	// when all of the calls that it was granted to have been undone.
	sure  bool
	calls []int // their numbers, in order; none of a sure hold
}

func (a modelHold) equal(b modelHold) bool {
	return a.holder == b.holder && a.cost == b.cost && a.fence == b.fence && a.above == b.above &&
		a.below == b.below && a.sure == b.sure && slices.Equal(a.calls, b.calls)
}

// confirmHold is the hold after its holder has got this fencing token. right is false when that
// cannot be its token.
func (a modelHold) confirmHold(fence uint64) (right bool, hold modelHold) {
	switch {
	case a.fence != 0 && a.fence != fence:
		return false, a
	case a.fence == 0 && (fence <= a.above || a.below != 0 && fence >= a.below):
		return false, a
	}
	return true, modelHold{holder: a.holder, cost: a.cost, fence: fence, sure: true}
}

// findHolder is where a holder is, or would be.
func (h holdsState) findHolder(holder string) (int, bool) {
	return slices.BinarySearchFunc(h.list, holder, func(a modelHold, holder string) int {
		return strings.Compare(a.holder, holder)
	})
}

func (h holdsState) heldSum() (sum int64) {
	for _, one := range h.list {
		sum += one.cost
	}
	return sum
}

// withHold is the state with another hold in a place.
func (h holdsState) withHold(i int, hold modelHold) holdsState {
	h.list = slices.Clone(h.list)
	h.list[i], h.last = hold, max(h.last, hold.fence)
	return h
}

// withoutHold is the state without the hold in a place.
func (h holdsState) withoutHold(i int) holdsState {
	return holdsState{last: h.last, list: slices.Delete(slices.Clone(h.list), i, i+1)}
}

func holdsModel(waits bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holdsState{} },
		Step: func(state, in, out any) (bool, any) {
			h, cmd, a := state.(holdsState), in.(modelCall), out.(modelReply)
			switch cmd.Op {
			// A sharing acquire is right without room, so that stepAcquire looks for the holder first.
			case gatehouse.OpAcquire:
				return h.stepAcquire(&cmd, &a, waits)
			case gatehouse.OpRelease:
				return h.stepRelease(&cmd, &a)
			case gatehouse.OpRenew:
				return h.stepRenew(&cmd, &a)
			case gatehouse.OpUndo:
				return true, h.stepUndo(&cmd)
			}
			return true, h
		},
		Equal: func(a, b any) bool {
			one, other := a.(holdsState), b.(holdsState)
			return one.last == other.last && slices.EqualFunc(one.list, other.list,
				modelHold.equal)
		},
	}
}

func (h holdsState) stepAcquire(cmd *modelCall, a *modelReply, waits bool) (right bool, next any) {
	// The order of the cases matters: what is not granted changes nothing, and only a grant without an answer
	// may turn out to have had no room.
	i, held := h.findHolder(cmd.Holder)
	room := held || h.heldSum()+cmd.Cost <= max(cmd.Size, 1)
	switch {
	// No answer and no room: the call had no effect, which is always possible.
	case !a.known && !room:
		return true, h
	case a.known && a.Outcome != gatehouse.Granted:
		return waits || !room, h
	case !room:
		return false, h
	case held:
		return h.stepShare(i, cmd, a)
	// Tokens rise for each grant, even after releases, so that a lower one is wrong in every order.
	case a.known && a.Fence <= h.last:
		return false, h
	}
	hold := modelHold{holder: cmd.Holder, cost: cmd.Cost, fence: a.Fence, sure: a.known}
	if !a.known {
		hold.above, hold.calls = h.last, []int{cmd.number}
	}
	// A hold of unknown token was granted before this one, so that its token is below the new one.
	granted := holdsState{last: max(h.last, a.Fence), list: slices.Clone(h.list)}
	for j := range granted.list {
		if other := &granted.list[j]; other.fence == 0 && other.below == 0 {
			other.below = a.Fence // 0, as long as that is not known either
		}
	}
	granted.list = slices.Insert(granted.list, i, hold)
	return true, granted
}

// stepShare is an acquire by a client that holds it already.
func (h holdsState) stepShare(i int, cmd *modelCall, a *modelReply) (right bool, next any) {
	hold := h.list[i]
	switch {
	case a.known:
		right, hold = hold.confirmHold(a.Fence)
		return right, h.withHold(i, hold)
	// A lost answer about a hold that is sure adds nothing: no undo can end it.
	case hold.sure:
		return true, h
	}
	hold.calls = append(slices.Clone(hold.calls), cmd.number)
	slices.Sort(hold.calls)
	return true, h.withHold(i, hold)
}

func (h holdsState) stepRelease(cmd *modelCall, a *modelReply) (right bool, next any) {
	i, _, meant := h.findMeant(cmd)
	switch {
	case a.known && a.Outcome != gatehouse.Granted:
		return !meant || cmd.Fence != 0 && h.list[i].fence == 0, h // it may have another token
	// An answer that claims to have released something else is wrong. Without an answer there was no effect.
	case !meant:
		return !a.known, h
	}
	return true, h.withoutHold(i)
}

// stepRenew makes a hold sure: a client that renews it knows that it is there.
func (h holdsState) stepRenew(cmd *modelCall, a *modelReply) (right bool, next any) {
	i, hold, meant := h.findMeant(cmd)
	switch {
	case a.known && a.Outcome != gatehouse.Granted:
		return !meant || cmd.Fence != 0 && h.list[i].fence == 0, h // it may have another token
	case !meant:
		return !a.known, h
	case a.known:
		right, hold = hold.confirmHold(a.Fence)
		return right, h.withHold(i, hold)
	}
	hold.sure, hold.calls = true, nil
	return true, h.withHold(i, hold)
}

// findMeant returns the hold that a release or a renewal is about. A hold of unknown token gets that of the
// call, if that is possible.
func (h holdsState) findMeant(cmd *modelCall) (i int, hold modelHold, meant bool) {
	i, held := h.findHolder(cmd.Holder)
	if !held {
		return i, hold, false
	}
	hold = h.list[i]
	// Without a token the holder's name is enough.
	if cmd.Fence == 0 {
		return i, hold, true
	}
	meant, known := hold.confirmHold(cmd.Fence)
	known.sure, known.calls = hold.sure, hold.calls
	return i, known, meant
}

// stepUndo takes back what an acquire without an answer was granted, and no other hold of its holder.
func (h holdsState) stepUndo(cmd *modelCall) holdsState {
	i, held := h.findHolder(cmd.Holder)
	if !held {
		return h
	}
	hold := h.list[i]
	// Only an acquire that is still in the list can be undone. Once the hold is sure, the list is empty.
	at, ours := slices.BinarySearch(hold.calls, cmd.number)
	if !ours {
		return h
	}
	hold.calls = slices.Delete(slices.Clone(hold.calls), at, at+1)
	if len(hold.calls) == 0 {
		return h.withoutHold(i)
	}
	return h.withHold(i, hold)
}

func counterModel(bool) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return int64(0) },
		Equal: func(a, b any) bool { return a == b },
		Step: func(state, in, out any) (bool, any) {
			value, cmd, a := state.(int64), in.(modelCall), out.(modelReply)
			switch cmd.Op {
			case gatehouse.OpCount:
				value += cmd.Amount
			case gatehouse.OpReset:
				value = cmd.Amount
			}
			// What was not answered may have any value, and counts all the same.
			return !a.known || a.Value == value, value
		},
	}
}

// eventState is the state of an event.
type eventState struct {
	sent    bool
	message string
}

func eventModel(bool) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return eventState{} },
		Equal: func(a, b any) bool { return a == b },
		Step: func(state, in, out any) (bool, any) {
			e, cmd, a := state.(eventState), in.(modelCall), out.(modelReply)
			granted := a.Outcome == gatehouse.Granted
			// An event is sent once: a second send has no effect, and a wait must see the message of the
			// first.
			switch {
			case cmd.Op == gatehouse.OpWait:
				return !a.known || granted == e.sent && (!granted || a.Message == e.message), e
			case cmd.Op != gatehouse.OpSend || !a.known && e.sent:
				return true, e
			// A send is granted exactly when none was before it.
			case a.known && granted == e.sent:
				return false, e
			case e.sent:
				return true, e
			}
			return true, eventState{true, cmd.Message}
		},
	}
}
