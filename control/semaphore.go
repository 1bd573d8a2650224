package control

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// maxHolders is the most holds under one name, so that one name cannot fill the memory. A semaphore
// may be larger: a cost takes many slots in one hold.
const maxHolders = 100_000

// A Semaphore lends slots to holders. The holds are the count: there is no second counter of them
// that could drift. A lock is a semaphore whose size is always 1.
//
// Every hold has a fencing token: max(last + 1, the store's time in µs). It rises under one name, and
// across a delete or a restart too as long as the store's clock rises and there was no more than one
// grant per µs. A store that counts its changes gives that number in place of the time.
type Semaphore struct {
	commandCounts
	lock        bool // the size is always 1
	sized       bool // an acquire has set the size
	size        int64
	heldCost    int64 // the sum of the costs of holds
	fence       uint64
	lastUsed    int64 // when it was used last, Unix ns
	holds       holdList
	spare       *hold // that was dropped last, for the next holder; nil when there is none
	holderBytes int   // the weight of the holders' names, that of the spare hold too

	changed map[string]struct{} // whose holds did since the last visit; nil until Track

	lengths holdLengths       // of the last holds that have ended
	managed *managedSemaphore // what operators did; nil when they did nothing

	reacquired, released, expired, maxHeld int64
}

// A hold is what one holder has.
type hold struct {
	holder   string
	place    int // in the list of holds
	cost     int64
	fence    uint64
	until    int64            // Unix ns; 0 is never
	expires  time.Duration    // the length it was given
	since    int64            // from when on, Unix ns, of a hold that the store ends; otherwise 0
	acquired int64            // when it was acquired, Unix ns; 0 when an earlier version did not store it
	owner    *gatehouse.Owner // for whom, to be shown; nil when nobody was named
	grants   int32            // how many acquires were answered with it, at most maxAnswers
	renewals uint32           // with the first of them its holder knows of it
	evicted  bool             // it ends with its term, and is not renewed
}

// Step implements [State].
func (s *Semaphore) Step(now time.Time, turn *Turn) {
	// The decision is made where it lies, here and in what follows: as a value it would be copied at each
	// return, which took a fifth of the time of a step.
	turn.beginDecision(now)
	s.noteFirstUse(now)
	s.lastUsed = now.UnixNano()
	// Holds that have ended go before the command is looked at, so that their slots are free for it.
	s.expireHolds(now.UnixNano())
	switch turn.Op {
	case gatehouse.OpAcquire:
		s.acquireHold(now, turn)
	case gatehouse.OpRelease:
		s.releaseHold(now, turn)
	case gatehouse.OpRenew:
		s.renewHold(now, turn)
	case gatehouse.OpEvict:
		s.evictHold(now, turn)
	case gatehouse.OpClose, gatehouse.OpOpen:
		s.setClosed(now, turn)
	case gatehouse.OpPeek:
		s.peekHold(now, turn)
	default:
		s.fillStanding(turn, gatehouse.Granted)
		turn.Decision.Stats = s.semaphoreStats()
	}
}

func (s *Semaphore) semaphoreStats() []gatehouse.Stat {
	return s.closing().appendTo(s.commandStats("acquired",
		gatehouse.Stat{Name: "reacquired", Value: s.reacquired},
		gatehouse.Stat{Name: "released", Value: s.released},
		gatehouse.Stat{Name: "expired", Value: s.expired},
		gatehouse.Stat{Name: "max_ever_held", Value: s.maxHeld},
		gatehouse.Stat{Name: "size", Value: s.size},
		gatehouse.Stat{Name: "held", Value: s.heldCost},
		gatehouse.Stat{Name: "holders", Value: int64(len(s.holds.heap))}))
}

func (s *Semaphore) acquireHold(now time.Time, turn *Turn) {
	if (turn.KeepLimit || turn.TellResize) && s.sized && !turn.Again && turn.Size != gatehouse.InForce &&
		turn.Size != s.size {
		if turn.KeepLimit {
			turn.failWith(gatehouse.Forbidden, anotherLimit)
			return
		}
		// Whatever the answer is, the size is another one.
		defer func() { turn.Decision.Resized = true }()
	}
	size, why := s.sizeAfter(turn)
	if why != "" {
		turn.failWith(gatehouse.Invalid, why)
		return
	}
	s.size, s.sized = size, !s.lock
	// The same holder asks again, often because an answer was lost. It gets the hold it has, so that a
	// repeated acquire takes no second slot. A grant is known to be new by its record: what an earlier one
	// with the same id has left here makes room for it.
	h := s.holds.find(turn.Holder)
	held := s.heldCost
	if h != nil && turn.Grant != nil {
		held -= h.cost
	}
	if h != nil && turn.Grant == nil {
		s.repeatHold(now, turn, h)
		return
	}
	switch {
	case s.size > 0 && turn.Cost > s.size && turn.Size == gatehouse.InForce:
		turn.failWith(gatehouse.Conflict, "has a size below the cost of this request")
		return
	case s.size > 0 && turn.Cost > s.size:
		turn.failWith(gatehouse.Conflict, "was resized below the cost of this request")
		return
	case turn.Ahead > 0 || held+turn.Cost > s.size || s.closing() != nil:
		// With commands in front a free slot is theirs, even if this cost would fit.
		s.countRefused(turn)
		s.refuse(now, turn)
		return
	case h == nil && len(s.holds.heap) >= cmp.Or(turn.MaxHolders, maxHolders):
		turn.failWith(gatehouse.Exhausted, "has as many holders as one name may have")
		return
	case turn.isTrial():
		s.fillStanding(turn, gatehouse.Granted)
		turn.Decision.Fence = s.nextFence(now, turn)
		return
	}
	if h != nil {
		s.dropHold(h)
	}
	s.countPassed(now, turn)
	s.fillHold(now, turn, s.createHold(now, turn))
}

// repeatHold answers an acquire by a holder that has a hold with that.
func (s *Semaphore) repeatHold(now time.Time, turn *Turn, h *hold) {
	if e := s.evictionOf(h); turn.Extend && e != nil {
		turn.failWith(gatehouse.Conflict, e.sentenceRenewing())
		return
	}
	// Each answer may be undone by itself. The hold goes with the last.
	h.grants = addAnswer(h.grants)
	s.noteChanged(turn.Holder)
	s.reacquired++
	if turn.Extend {
		s.extendHold(now, turn, h, s.holdLength(turn.Command, h))
	}
	s.fillHold(now, turn, h)
}

// sizeAfter is the size that an acquire puts in force at its first look, or why it cannot.
func (s *Semaphore) sizeAfter(turn *Turn) (size int64, why string) {
	switch {
	case s.lock:
		return 1, ""
	// Only the first look changes the size: a later one would undo what others have set meanwhile.
	case s.sized && (turn.Again || turn.Size == gatehouse.InForce):
		return s.size, ""
	case turn.Size != gatehouse.InForce:
		return turn.Size, ""
	case turn.Cost > gatehouse.DefaultSize:
		return gatehouse.DefaultSize, fmt.Sprintf("is new, and a cost of %d can never fit its size of %d: "+
			"want a size in the request", turn.Cost, gatehouse.DefaultSize)
	}
	return gatehouse.DefaultSize, ""
}

// createHold makes the hold of a new holder.
func (s *Semaphore) createHold(now time.Time, turn *Turn) *hold {
	s.fence = s.nextFence(now, turn)
	// A lock that is acquired and released again and again uses the same hold, and allocates none.
	h := s.spare
	if h == nil {
		h = new(hold)
	} else {
		s.holderBytes -= h.nameWeight()
		s.spare, *h = nil, hold{}
	}
	h.holder, h.cost, h.fence = turn.Holder, turn.Cost, s.fence
	h.grants, h.acquired, h.owner = 1, now.UnixNano(), turn.Owner
	h.setEnd(now, turn, s.holdLength(turn.Command, nil))
	s.storeHold(h)
	s.noteChanged(h.holder)
	s.maxHeld = max(s.maxHeld, s.heldCost)
	return h
}

// nextFence is the fencing token of the next hold. Made of the time, tokens keep rising even after a delete,
// when the last one is forgotten.
func (s *Semaphore) nextFence(now time.Time, turn *Turn) uint64 {
	return max(s.fence+1, leastFence(now, turn))
}

// storeHold notes the hold of a holder that had none.
func (s *Semaphore) storeHold(h *hold) {
	s.holds.add(h)
	s.holderBytes += h.nameWeight()
	s.heldCost += h.cost
}

func (s *Semaphore) releaseHold(now time.Time, turn *Turn) {
	h, why := s.findHold(turn.Command)
	if why != "" {
		turn.failWith(gatehouse.Conflict, why)
		return
	}
	if !turn.isTrial() {
		// Forecasts for those who wait go by how long the last holds were.
		s.lengths.note(h, now.UnixNano())
		s.dropHold(h)
		s.released++
	}
	s.fillStanding(turn, gatehouse.Granted)
}

// peekHold tells how the semaphore stands, and of the hold of a grant, if it is there.
func (s *Semaphore) peekHold(now time.Time, turn *Turn) {
	if h := s.holds.find(turn.Holder); h != nil {
		s.fillHold(now, turn, h)
		return
	}
	s.fillStanding(turn, gatehouse.Granted)
}

// findHold is the hold that a release or a renew means; if there is none, why says so. A hold of the same key
// under another fencing token was acquired later or earlier than the one meant, and is not touched.
func (s *Semaphore) findHold(cmd *gatehouse.Command) (h *hold, why string) {
	h = s.holds.find(cmd.Holder)
	switch {
	// After an eviction, the refusal says who evicted the hold, not that there is none.
	case h == nil && s.managed != nil && s.managed.evictedHolder(cmd) != nil:
		return nil, s.managed.evictedHolder(cmd).sentence()
	case h == nil:
		return nil, "is not held with this key: it was never acquired, was released, or has expired"
	case cmd.Fence != 0 && cmd.Fence != h.fence:
		return nil, fmt.Sprintf("is held with this key under fencing token %d, not %d: "+
			"the hold of that token is over", h.fence, cmd.Fence)
	}
	return h, ""
}

// dropHold frees the slots of a hold.
func (s *Semaphore) dropHold(h *hold) {
	s.heldCost -= h.cost
	s.holds.drop(h)
	s.noteChanged(h.holder)
	s.holderBytes -= ownerWeight(h.owner)
	h.owner = nil // it is not kept from the collector
	if s.spare != nil {
		s.holderBytes -= s.spare.nameWeight()
	}
	s.spare = h
}

// expireHolds drops the holds whose time is up. A hold lasts until just before its end.
func (s *Semaphore) expireHolds(now int64) {
	for h := s.holds.next(); h != nil && h.until <= now; h = s.holds.next() {
		s.lengths.note(h, h.until)
		s.dropHold(h)
		s.expired++
	}
}

// nextEnd is the time until the next hold ends by itself.
func (s *Semaphore) nextEnd(now time.Time) time.Duration {
	h := s.holds.next()
	if h == nil || s.size == 0 {
		return gatehouse.Forever
	}
	return time.Duration(h.until - now.UnixNano())
}

// fillHold answers a turn with a hold.
func (s *Semaphore) fillHold(now time.Time, turn *Turn, h *hold) {
	s.fillStanding(turn, gatehouse.Granted)
	turn.Decision.Fence, turn.Decision.ExpiresAfter = h.fence, h.timeLeft(now.UnixNano())
}

// fillStanding answers a turn with how much is held.
func (s *Semaphore) fillStanding(turn *Turn, outcome gatehouse.Outcome) {
	d := &turn.Decision
	d.Outcome, d.Limit, d.Remaining = outcome, s.size, max(0, s.size-s.heldCost)
}

// Undo implements [State]. A hold that several requests were answered with goes when all of them
// have been undone. One that was renewed since does not go at all: its holder was answered, and
// relies on it, whatever became of the answer to the acquire.
func (s *Semaphore) Undo(_ time.Time, turn *Turn) {
	h := s.holds.find(turn.Holder)
	// Answers are counted up to maxAnswers only. From there on it is not known how many rely on the hold.
	if h == nil || turn.Granted == nil || turn.Granted.Fence != h.fence || h.grants == maxAnswers {
		return
	}
	// Other requests were answered with this hold too; only one of these answers is taken back.
	if h.grants > 1 {
		h.grants--
		s.noteChanged(turn.Holder)
		s.reacquired--
		return
	}
	if h.renewals > 0 {
		return
	}
	s.dropHold(h)
	s.uncountPassed(turn)
}

// Expiry implements [State]. Without holds a semaphore is like a new one, unless it is closed.
func (s *Semaphore) Expiry() time.Time {
	if s.closing() != nil {
		return neverExpires()
	}
	last := s.lastUsed
	for _, h := range s.holds.heap {
		// A hold without an end of its own keeps the semaphore until it is released.
		if h.until == 0 {
			return neverExpires()
		}
		last = max(last, h.until)
	}
	return time.Unix(0, last)
}

// renewHold moves the end of a hold. It also confirms the hold: a later undo of the acquire leaves it alone.
func (s *Semaphore) renewHold(now time.Time, turn *Turn) {
	h, why := s.findHold(turn.Command)
	if why != "" {
		turn.failWith(gatehouse.Conflict, why)
		return
	}
	// Its end is settled: the holder has to learn of it while there is time to stop.
	if e := s.evictionOf(h); e != nil {
		turn.failWith(gatehouse.Conflict, e.sentenceRenewing())
		return
	}
	if !turn.isTrial() {
		h.renewals = min(h.renewals, maxRenewals-1) + 1
		s.extendHold(now, turn, h, s.holdLength(turn.Command, h))
	}
	s.fillHold(now, turn, h)
}

// holdLength is how long a command wants its hold to last. AsAcquired is the length of the one there is; h is
// nil when there was none.
func (s *Semaphore) holdLength(cmd *gatehouse.Command, h *hold) time.Duration {
	switch {
	case cmd.Expires != gatehouse.AsAcquired:
		return cmd.Expires
	case h != nil:
		return h.expires
	}
	return gatehouse.DefaultExpires
}

// extendHold moves the end of a hold that is there to expires from now.
func (s *Semaphore) extendHold(now time.Time, turn *Turn, h *hold, expires time.Duration) {
	h.setEnd(now, turn, expires)
	s.holds.moveEnd(h)
	s.noteChanged(h.holder)
}
