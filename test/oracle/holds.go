package oracle

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// endless is the end of a hold that has none.
const endless = time.Duration(1) << 60

// A holdInterval is a hold, as far as its holder can be sure of it: from the acknowledgement to the earliest
// time at which it can have ended.
type holdInterval struct {
	holder             string
	asked, from, until time.Duration
	fence              uint64
	cost               int64
}

// checkHolds looks at a lock or a semaphore.
func (j *Judge) checkHolds(calls []*Call) {
	size := int64(1)
	holders := make(map[string][]*Call)
	for _, c := range calls {
		// Renewals and releases name no size. Of several the largest counts.
		if c.Key.Kind == gatehouse.Semaphore {
			size = max(size, c.Command.Size)
		}
		holders[c.Command.Holder] = append(holders[c.Command.Holder], c)
	}
	var all []*holdInterval
	// A holder makes one call after the other, so its calls can be followed without those of others.
	for _, own := range holders {
		w := holderCheck{judge: j, tried: -1}
		for _, c := range own {
			w.checkCall(c)
		}
		all = append(all, w.all...)
	}
	// A store that loses everything ends all holds that it has then.
	for _, t := range all {
		i, _ := slices.BinarySearch(j.Losses, t.asked)
		if i < len(j.Losses) {
			// One that came before the answer may have come before the grant or after it: nothing is sure.
			t.until = min(t.until, max(t.from, j.Losses[i]))
		}
	}
	j.checkFences(all)
	j.checkRoom(size, all)
}

// A holderCheck follows one holder, whose calls come one after the other.
type holderCheck struct {
	judge *Judge
	all   []*holdInterval

	current       *holdInterval
	tried         time.Duration // when it first asked for what it has not got; below 0 when it has not
	cost          int64         // of what it asked for
	uncertain     bool          // an acquire without an answer may take effect at any time
	released      bool          // and that was acknowledged
	mayBeReleased bool          // it may have been released
}

func (w *holderCheck) checkCall(c *Call) {
	// A token below that of the current hold means an earlier hold.
	if c.Command.Fence != 0 && w.current != nil && c.Command.Fence < w.current.fence {
		w.checkOtherFence(c)
		return
	}
	switch c.Command.Op {
	case gatehouse.OpAcquire:
		w.checkAcquire(c)
	case gatehouse.OpRenew:
		w.checkRenew(c)
	case gatehouse.OpRelease:
		w.checkRelease(c)
	}
}

func (w *holderCheck) checkAcquire(c *Call) {
	if !c.Answered {
		w.uncertain = true
		w.cost = c.Command.Cost
		// The first of several attempts counts, since any may be the one that took effect.
		if w.tried < 0 {
			w.tried = c.Begin
		}
	}
	if !c.Granted() {
		return
	}
	// Who holds it already shares its hold, which keeps its end.
	if w.current != nil && !w.released && c.Decision.Fence == w.current.fence {
		return
	}
	if w.mustHold(c) {
		w.recordLostHold(c)
	}
	asked := c.Begin
	if w.tried >= 0 {
		asked = w.tried // the attempt without an answer may be the one that was granted
	}
	// The holder is sure of it from the answer on, and until a length after the earliest attempt.
	w.current = &holdInterval{
		holder: c.Command.Holder, fence: c.Decision.Fence, cost: max(1, c.Command.Cost),
		asked: asked, from: c.End, until: w.judge.earliestEnd(asked, c),
	}
	w.all = append(w.all, w.current)
	// uncertain stays: an attempt without an answer may take effect even after this hold was released.
	w.tried, w.released, w.mayBeReleased = -1, false, false
	if c.Decision.Fence == 0 {
		w.judge.report(FencesRise, c.Begin, "holder %s got no fencing token", c.Command.Holder)
	}
}

// earliestEnd is when what was acquired or renewed at some time may end by itself at the earliest.
func (j *Judge) earliestEnd(from time.Duration, c *Call) time.Duration {
	switch c.Command.Expires {
	case 0:
		return endless
	case gatehouse.AsAcquired:
		return from // it is not known here how long that was
	}
	return from + c.Command.Expires - j.Margin
}

// mustHold reports whether there is no doubt that the holder has it during the call.
func (w *holderCheck) mustHold(c *Call) bool {
	return w.current != nil && !w.released && !w.mayBeReleased && c.End < w.current.until &&
		!w.judge.lostBetween(w.current.asked, c.End)
}

// recordLostHold notes that a hold is gone that should be there.
func (w *holderCheck) recordLostHold(c *Call) {
	w.judge.report(HoldsStay, c.Begin, "holder %s, fence %d, granted at %.3f: %s: %s %s",
		c.Command.Holder, w.current.fence, w.current.from.Seconds(), c.Command.Op,
		c.Decision.Outcome, c.Decision.Message)
	w.current.until = min(w.current.until, c.Begin)
	// One loss is one breach: the calls that follow are not judged by this hold.
	w.current = nil
}

func (w *holderCheck) checkRenew(c *Call) {
	switch {
	// The end may have moved or not, so the earlier one stays.
	case !c.Answered:
	case w.mustHold(c):
		w.judge.countTest(HoldsStay)
		if !c.Granted() {
			w.recordLostHold(c)
			return
		}
		w.current.until = max(w.current.until, w.judge.earliestEnd(c.Begin, c))
		if c.Decision.Fence != w.current.fence {
			w.judge.report(FencesRise, c.Begin, "holder %s has fence %d, and %d when it renews",
				c.Command.Holder, w.current.fence, c.Decision.Fence)
		}
	// If an acquire is uncertain, the renewal may have found a newer hold.
	case w.released && !w.uncertain:
		w.judge.countTest(ReleasesStay)
		if c.Granted() {
			w.judge.report(ReleasesStay, c.Begin, "holder %s renewed what it had released", c.Command.Holder)
		}
	case c.Granted() && w.current != nil && !w.mayBeReleased && !w.released:
		// it need not have been held any more, but was
		w.current.until = max(w.current.until, w.judge.earliestEnd(c.Begin, c))
	case c.Granted() && w.current == nil && w.tried >= 0:
		w.recordFoundHold(c)
	}
}

// recordFoundHold notes that a renewal has found a hold of an acquire without an answer: from now on it
// stays.
func (w *holderCheck) recordFoundHold(c *Call) {
	w.current = &holdInterval{
		holder: c.Command.Holder, fence: c.Decision.Fence, cost: max(1, w.cost),
		asked: w.tried, from: c.End, until: w.judge.earliestEnd(c.Begin, c),
	}
	w.all = append(w.all, w.current)
	w.tried = -1
}

// checkOtherFence is a release or a renewal that means an earlier hold of its holder: it does nothing.
func (w *holderCheck) checkOtherFence(c *Call) {
	if c.Granted() {
		w.judge.report(HoldsStay, c.Begin, "holder %s has fence %d, and %s of %d did something",
			c.Command.Holder, w.current.fence, c.Command.Op, c.Command.Fence)
	}
}

func (w *holderCheck) checkRelease(c *Call) {
	// Asked before the end is moved, on which it depends.
	must := w.mustHold(c)
	// Whatever the answer is, the hold may be over as soon as the release is sent.
	if w.current != nil {
		w.current.until = min(w.current.until, c.Begin)
	}
	switch {
	case !c.Answered:
		w.mayBeReleased = true
	case must && !c.Granted():
		w.judge.countTest(HoldsStay)
		w.recordLostHold(c)
	case c.Granted():
		w.judge.countTest(HoldsStay)
		if w.released && !w.uncertain {
			w.judge.report(ReleasesStay, c.Begin, "holder %s released it twice", c.Command.Holder)
		}
		w.released = true
	}
}

// checkFences checks that a holder that asked after another was granted has the larger token.
func (j *Judge) checkFences(all []*holdInterval) {
	byAsked, byFrom := slices.Clone(all), slices.Clone(all)
	slices.SortFunc(byAsked, func(a, b *holdInterval) int { return cmp.Compare(a.asked, b.asked) })
	slices.SortFunc(byFrom, func(a, b *holdInterval) int { return cmp.Compare(a.from, b.from) })
	// Two grants are in order only if one was asked for after the other was acknowledged. So the calls are
	// taken by the time of asking, each with the highest token that was acknowledged before.
	var highest *holdInterval
	i := 0
	seen := make(map[uint64]string)
	for _, t := range byAsked {
		for ; byFrom[i].from < t.asked; i++ {
			if highest == nil || byFrom[i].fence > highest.fence {
				highest = byFrom[i]
			}
		}
		j.countTest(FencesRise)
		if highest != nil && t.fence <= highest.fence {
			j.report(FencesRise, t.from, "holder %s has fence %d, after holder %s had %d",
				t.holder, t.fence, highest.holder, highest.fence)
		}
		// One holder may get the same hold twice, as when it asks again.
		if other, ok := seen[t.fence]; ok && other != t.holder {
			j.report(FencesRise, t.from, "holders %s and %s both have fence %d", other, t.holder, t.fence)
		}
		seen[t.fence] = t.holder
	}
}

// A holdEdge is the beginning or the end of a hold.
type holdEdge struct {
	at     time.Duration
	change int64 // of what is held
	*holdInterval
}

// checkRoom checks that no more was held at once than there is room for.
func (j *Judge) checkRoom(size int64, all []*holdInterval) {
	var edges []holdEdge
	for _, t := range all {
		// A hold that may be over before its holder knows of it needs no room.
		if t.from < t.until {
			edges = append(edges, holdEdge{t.from, t.cost, t}, holdEdge{t.until, -t.cost, t})
		}
	}
	// What ends at an instant makes room for what begins then.
	slices.SortFunc(edges, func(a, b holdEdge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change))
	})
	held := make(map[*holdInterval]bool)
	sum := int64(0)
	for _, e := range edges {
		sum += e.change
		if e.change < 0 {
			delete(held, e.holdInterval)
			continue
		}
		held[e.holdInterval] = true
		j.countTest(RoomIsKept)
		if sum <= size {
			continue
		}
		var who []string
		for t := range held {
			who = append(who, t.holder)
		}
		slices.Sort(who)
		j.report(RoomIsKept, e.at, "%d are held at once, want at most %d; the holders are %s",
			sum, size, strings.Join(who[:min(len(who), 10)], ", "))
	}
}
