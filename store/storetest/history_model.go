package storetest

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/gatehousehq/gatehouse"
)

// An input is a call, or the taking back of what a call was granted.
type input struct {
	gatehouse.Command
	number int  // of the call among those of its name; an undo has that of its acquire
	end    bool // no call at all, but the end of the history
}

// An answer is a decision, if it is known.
type answer struct {
	known bool
	gatehouse.Decision
}

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

// bounded is a model that tries a call without an answer only where it changes something. One that changed
// nothing belongs behind the end. Without that rule a search would try each of them in every place, and take
// a time exponential in their number.
func bounded(m porcupine.Model) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return boundedState{state: m.Init()} },
		Step: func(state, in, out any) (bool, any) {
			b := state.(boundedState)
			switch {
			case in.(input).end:
				return true, boundedState{b.state, true}
			case b.ended:
				return true, b
			}
			right, next := m.Step(b.state, in, out)
			if !right || !out.(answer).known && m.Equal(b.state, next) {
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

// holds is the state of a lock or a semaphore.
type holds struct {
	list []aHold // in the order of the holders' names
	last uint64  // the greatest fencing token that was seen
}

type aHold struct {
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

func (a aHold) equal(b aHold) bool {
	return a.holder == b.holder && a.cost == b.cost && a.fence == b.fence && a.above == b.above &&
		a.below == b.below && a.sure == b.sure && slices.Equal(a.calls, b.calls)
}

// confirmed is the hold after its holder was told of it with this fencing token. right is false when that
// cannot be its token.
func (a aHold) confirmed(fence uint64) (right bool, hold aHold) {
	switch {
	case a.fence != 0 && a.fence != fence:
		return false, a
	case a.fence == 0 && (fence <= a.above || a.below != 0 && fence >= a.below):
		return false, a
	}
	return true, aHold{holder: a.holder, cost: a.cost, fence: fence, sure: true}
}

// find is where a holder is, or would be.
func (h holds) find(holder string) (int, bool) {
	return slices.BinarySearchFunc(h.list, holder, func(a aHold, holder string) int {
		return strings.Compare(a.holder, holder)
	})
}

func (h holds) held() (sum int64) {
	for _, one := range h.list {
		sum += one.cost
	}
	return sum
}

// with is the state with another hold in a place.
func (h holds) with(i int, hold aHold) holds {
	h.list = slices.Clone(h.list)
	h.list[i], h.last = hold, max(h.last, hold.fence)
	return h
}

// without is the state without the hold in a place.
func (h holds) without(i int) holds {
	return holds{last: h.last, list: slices.Delete(slices.Clone(h.list), i, i+1)}
}

func holdsModel(waits bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holds{} },
		Step: func(state, in, out any) (bool, any) {
			h, cmd, a := state.(holds), in.(input), out.(answer)
			switch cmd.Op {
			case gatehouse.OpAcquire:
				return h.acquire(&cmd, &a, waits)
			case gatehouse.OpRelease:
				return h.release(&cmd, &a)
			case gatehouse.OpRenew:
				return h.renew(&cmd, &a)
			case gatehouse.OpUndo:
				return true, h.undo(&cmd)
			}
			return true, h
		},
		Equal: func(a, b any) bool {
			one, other := a.(holds), b.(holds)
			return one.last == other.last && slices.EqualFunc(one.list, other.list,
				aHold.equal)
		},
	}
}

func (h holds) acquire(cmd *input, a *answer, waits bool) (right bool, next any) {
	i, held := h.find(cmd.Holder)
	room := held || h.held()+cmd.Cost <= max(cmd.Size, 1)
	switch {
	case !a.known && !room:
		return true, h
	case a.known && a.Outcome != gatehouse.Granted:
		return waits || !room, h
	case !room:
		return false, h
	case held:
		return h.share(i, cmd, a)
	case a.known && a.Fence <= h.last:
		return false, h
	}
	hold := aHold{holder: cmd.Holder, cost: cmd.Cost, fence: a.Fence, sure: a.known}
	if !a.known {
		hold.above, hold.calls = h.last, []int{cmd.number}
	}
	granted := holds{last: max(h.last, a.Fence), list: slices.Clone(h.list)}
	for j := range granted.list {
		if other := &granted.list[j]; other.fence == 0 && other.below == 0 {
			other.below = a.Fence // 0, as long as that is not known either
		}
	}
	granted.list = slices.Insert(granted.list, i, hold)
	return true, granted
}

// share is an acquire by somebody who holds it already.
func (h holds) share(i int, cmd *input, a *answer) (right bool, next any) {
	hold := h.list[i]
	switch {
	case a.known:
		right, hold = hold.confirmed(a.Fence)
		return right, h.with(i, hold)
	case hold.sure:
		return true, h
	}
	hold.calls = append(slices.Clone(hold.calls), cmd.number)
	slices.Sort(hold.calls)
	return true, h.with(i, hold)
}

func (h holds) release(cmd *input, a *answer) (right bool, next any) {
	i, _, meant := h.meant(cmd)
	switch {
	case a.known && a.Outcome != gatehouse.Granted:
		return !meant || cmd.Fence != 0 && h.list[i].fence == 0, h // it may have another token
	case !meant:
		return !a.known, h
	}
	return true, h.without(i)
}

// renew makes a hold sure: whoever renews it knows that it is there.
func (h holds) renew(cmd *input, a *answer) (right bool, next any) {
	i, hold, meant := h.meant(cmd)
	switch {
	case a.known && a.Outcome != gatehouse.Granted:
		return !meant || cmd.Fence != 0 && h.list[i].fence == 0, h // it may have another token
	case !meant:
		return !a.known, h
	case a.known:
		right, hold = hold.confirmed(a.Fence)
		return right, h.with(i, hold)
	}
	hold.sure, hold.calls = true, nil
	return true, h.with(i, hold)
}

// meant is the hold that a release or a renewal is about. One whose token is not known has that of the call,
// if it can.
func (h holds) meant(cmd *input) (i int, hold aHold, meant bool) {
	i, held := h.find(cmd.Holder)
	if !held {
		return i, hold, false
	}
	hold = h.list[i]
	if cmd.Fence == 0 {
		return i, hold, true
	}
	meant, known := hold.confirmed(cmd.Fence)
	known.sure, known.calls = hold.sure, hold.calls
	return i, known, meant
}

// undo takes back what an acquire without an answer was granted, and no other hold of its holder.
func (h holds) undo(cmd *input) holds {
	i, held := h.find(cmd.Holder)
	if !held {
		return h
	}
	hold := h.list[i]
	at, ours := slices.BinarySearch(hold.calls, cmd.number)
	if !ours {
		return h
	}
	hold.calls = slices.Delete(slices.Clone(hold.calls), at, at+1)
	if len(hold.calls) == 0 {
		return h.without(i)
	}
	return h.with(i, hold)
}

func counterModel(bool) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return int64(0) },
		Equal: func(a, b any) bool { return a == b },
		Step: func(state, in, out any) (bool, any) {
			value, cmd, a := state.(int64), in.(input), out.(answer)
			switch cmd.Op {
			case gatehouse.OpCount:
				value += cmd.Amount
			case gatehouse.OpReset:
				value = cmd.Amount
			}
			return !a.known || a.Value == value, value
		},
	}
}

// sent is the state of an event.
type sent struct {
	sent    bool
	message string
}

func eventModel(bool) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return sent{} },
		Equal: func(a, b any) bool { return a == b },
		Step: func(state, in, out any) (bool, any) {
			e, cmd, a := state.(sent), in.(input), out.(answer)
			granted := a.Outcome == gatehouse.Granted
			switch {
			case cmd.Op == gatehouse.OpWait:
				return !a.known || granted == e.sent && (!granted || a.Message == e.message), e
			case cmd.Op != gatehouse.OpSend || !a.known && e.sent:
				return true, e
			case a.known && granted == e.sent:
				return false, e
			case e.sent:
				return true, e
			}
			return true, sent{true, cmd.Message}
		},
	}
}
