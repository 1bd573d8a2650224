//go:build linux || darwin

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A holdInterval is a hold, as far as its holder can be sure of it: from the acknowledgement to the earliest
// time at which it can have ended.
type holdInterval struct {
	holder      string
	asked, from time.Duration
	until       time.Duration
	fence       uint64
	cost        int64
}

// checkHolds looks at a lock or a semaphore.
func (j *historyJudge) checkHolds(key string, calls []*recordedCall) {
	size := int64(1)
	holders := make(map[string][]*recordedCall)
	for _, c := range calls {
		// Renewals and releases name no size.
		size = max(size, c.size)
		holders[c.holder] = append(holders[c.holder], c)
	}
	var all []*holdInterval
	// A holder makes one call after the other, so its calls can be followed without those of others.
	for _, own := range holders {
		w := holderCheck{judge: j, key: key, tried: -1}
		for _, c := range own {
			w.checkCall(c)
		}
		all = append(all, w.all...)
	}
	// A store that loses everything ends all holds that it has then.
	for _, t := range all {
		if loss := j.firstLoss(t.asked); loss <= t.from {
			t.until = t.from // it is not known whether it was granted before or after
		} else {
			t.until = min(t.until, loss)
		}
	}
	j.checkFences(key, all)
	j.checkRoom(key, size, all)
}

// A holderCheck follows one holder, whose calls come one after the other.
type holderCheck struct {
	judge *historyJudge
	key   string
	all   []*holdInterval

	current       *holdInterval
	tried         time.Duration // when it first asked for what it has not got; below 0 when it has not
	cost          int64         // of what it asked for
	uncertain     bool          // an acquire without an answer may take effect at any time
	released      bool          // and that was acknowledged
	mayBeReleased bool          // it may have been released
}

func (w *holderCheck) checkCall(c *recordedCall) {
	// A token below that of the current hold means an earlier hold.
	if c.meantFence != 0 && w.current != nil && c.meantFence < w.current.fence {
		w.checkOtherFence(c)
		return
	}
	switch c.op {
	case "acquire":
		w.checkAcquire(c)
	case "renew":
		w.checkRenew(c)
	case "release":
		w.checkRelease(c)
	}
}

func (w *holderCheck) checkAcquire(c *recordedCall) {
	if c.isUncertain() {
		w.uncertain = true
		w.cost = c.cost
		// The first of several attempts counts, since any may be the one that took effect.
		if w.tried < 0 {
			w.tried = c.start
		}
	}
	if c.outcome != granted {
		return
	}
	asked := c.start
	if w.tried >= 0 {
		asked = w.tried // the attempt without an answer may be the one that was granted
	}
	// The holder is sure of it from the answer on, and until a length after the earliest attempt.
	w.current = &holdInterval{
		holder: c.holder, fence: c.fence, cost: max(1, c.cost),
		asked: asked, from: c.end, until: asked + c.holdLength(),
	}
	w.all = append(w.all, w.current)
	// uncertain stays: an attempt without an answer may take effect even after this hold was released.
	w.tried, w.released, w.mayBeReleased = -1, false, false
	if c.fence == 0 {
		w.judge.recordBreach(fencesRise, historyPoint{w.key, c.start}, "holder %s got no fencing token",
			c.holder)
	}
}

// mustHold reports whether there is no doubt that the holder has it during the call.
func (w *holderCheck) mustHold(c *recordedCall) bool {
	return w.current != nil && !w.released && !w.mayBeReleased && c.end < w.current.until-margin &&
		!w.judge.lostBetween(w.current.asked, c.end)
}

// recordLostHold notes that a hold is gone that should be there.
func (w *holderCheck) recordLostHold(c *recordedCall) {
	w.judge.recordBreach(holdsStay, historyPoint{w.key, c.start},
		"holder %s, fence %d, granted at %.3f: %s: %s %s",
		c.holder, w.current.fence, w.current.from.Seconds(), c.op, c.outcome, c.text)
	w.current.until = min(w.current.until, c.start)
	// One loss is one breach: the calls that follow are not judged by this hold.
	w.current = nil
}

func (w *holderCheck) checkRenew(c *recordedCall) {
	stays, stayed := w.judge.counts[holdsStay], w.judge.counts[releasesStay]
	switch {
	// The end may have moved or not, so the earlier one stays.
	case !c.isDecided():
	case w.mustHold(c):
		stays.checked++
		if c.outcome != granted {
			w.recordLostHold(c)
			return
		}
		w.current.until = max(w.current.until, c.start+c.holdLength())
		if c.fence != w.current.fence {
			w.judge.recordBreach(fencesRise, historyPoint{w.key, c.start},
				"holder %s has fence %d, and %d when it renews",
				c.holder, w.current.fence, c.fence)
		}
	// If an acquire is uncertain, the renewal may have found a newer hold.
	case w.released && !w.uncertain:
		stayed.checked++
		if c.outcome == granted {
			w.judge.recordBreach(releasesStay, historyPoint{w.key, c.start},
				"holder %s renewed what it had released",
				c.holder)
		}
	case c.outcome == granted && w.current != nil && !w.mayBeReleased && !w.released:
		// it need not have been held any more, but was
		w.current.until = max(w.current.until, c.start+c.holdLength())
	case c.outcome == granted && w.current == nil && w.tried >= 0:
		w.recordFoundHold(c)
	}
}

// recordFoundHold notes that a renewal has found a hold of an acquire without an answer: from now on it
// stays.
func (w *holderCheck) recordFoundHold(c *recordedCall) {
	w.current = &holdInterval{
		holder: c.holder, fence: c.fence, cost: max(1, w.cost),
		asked: w.tried, from: c.end, until: c.start + c.holdLength(),
	}
	w.all = append(w.all, w.current)
	w.tried = -1
}

// checkOtherFence is a release or a renewal that means an earlier hold of its holder: it does nothing.
func (w *holderCheck) checkOtherFence(c *recordedCall) {
	if c.outcome == granted {
		w.judge.recordBreach(holdsStay, historyPoint{w.key, c.start},
			"holder %s has fence %d, and %s of %d did something",
			c.holder, w.current.fence, c.op, c.meantFence)
	}
}

func (w *holderCheck) checkRelease(c *recordedCall) {
	// Asked before the end is moved, on which it depends.
	must := w.mustHold(c)
	// Whatever the answer is, the hold may be over as soon as the release is sent.
	if w.current != nil {
		w.current.until = min(w.current.until, c.start)
	}
	switch {
	case c.isUncertain():
		w.mayBeReleased = true
	case !c.isDecided():
	case must && c.outcome != granted:
		w.judge.counts[holdsStay].checked++
		w.recordLostHold(c)
	case c.outcome == granted:
		w.judge.counts[holdsStay].checked++
		if w.released && !w.uncertain {
			w.judge.recordBreach(releasesStay, historyPoint{w.key, c.start}, "holder %s released it twice",
				c.holder)
		}
		w.released = true
	}
}

// checkFences checks that a holder that asked after another was granted has the larger token.
func (j *historyJudge) checkFences(key string, all []*holdInterval) {
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
		j.counts[fencesRise].checked++
		if highest != nil && t.fence <= highest.fence {
			j.recordBreach(fencesRise, historyPoint{key, t.from},
				"holder %s has fence %d, after holder %s had %d",
				t.holder, t.fence, highest.holder, highest.fence)
		}
		// One holder may get the same hold twice, as when it asks again.
		if other, ok := seen[t.fence]; ok && other != t.holder {
			j.recordBreach(fencesRise, historyPoint{key, t.from}, "holders %s and %s both have fence %d",
				other, t.holder, t.fence)
		}
		seen[t.fence] = t.holder
	}
}

// An holdEdge is the beginning or the end of a tenure.
type holdEdge struct {
	at    time.Duration
	begin bool
	*holdInterval
}

// checkRoom checks that no more was held at once than there is room for.
func (j *historyJudge) checkRoom(key string, size int64, all []*holdInterval) {
	var edges []holdEdge
	for _, t := range all {
		// A hold that may be over before its holder knows of it needs no room.
		if t.from < t.until-margin {
			edges = append(edges, holdEdge{t.from, true, t}, holdEdge{t.until - margin, false, t})
		}
	}
	// The ends are moved ahead by the margin, so that clocks of client and server need not agree exactly.
	slices.SortFunc(edges, func(a, b holdEdge) int { return cmp.Compare(a.at, b.at) })
	held := make(map[*holdInterval]bool)
	sum := int64(0)
	for _, e := range edges {
		if !e.begin {
			sum -= e.cost
			delete(held, e.holdInterval)
			continue
		}
		held[e.holdInterval] = true
		sum += e.cost
		j.counts[roomIsKept].checked++
		if sum <= size {
			continue
		}
		var who []string
		for t := range held {
			who = append(who, t.holder)
		}
		slices.Sort(who)
		j.recordBreach(roomIsKept, historyPoint{key, e.at},
			"%d are held at once, want at most %d; the holders are %s",
			sum, size, strings.Join(who[:min(len(who), 10)], ", "))
	}
}
