//go:build linux || darwin

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A tenure is a hold, as far as its holder can be sure of it: from the acknowledgement to the earliest time
// at which it can have ended.
type tenure struct {
	holder      string
	asked, from time.Duration
	until       time.Duration
	fence       uint64
	cost        int64
}

// holds looks at a lock or a semaphore.
func (j *judge) holds(key string, calls []*call) {
	size := int64(1)
	holders := make(map[string][]*call)
	for _, c := range calls {
		size = max(size, c.size)
		holders[c.holder] = append(holders[c.holder], c)
	}
	var all []*tenure
	for _, own := range holders {
		w := walk{judge: j, key: key, tried: -1}
		for _, c := range own {
			w.step(c)
		}
		all = append(all, w.all...)
	}
	for _, t := range all {
		if loss := j.firstLoss(t.asked); loss <= t.from {
			t.until = t.from // it is not known whether it was granted before or after
		} else {
			t.until = min(t.until, loss)
		}
	}
	j.fences(key, all)
	j.room(key, size, all)
}

// A walk follows one holder, whose calls come one after the other.
type walk struct {
	judge *judge
	key   string
	all   []*tenure

	now      *tenure
	tried    time.Duration // when it first asked for what it has not got; below 0 when it has not
	cost     int64         // of what it asked for
	blurred  bool          // an acquire without an answer may take effect at any time
	released bool          // and that was acknowledged
	leaving  bool          // it may have been released
}

func (w *walk) step(c *call) {
	if c.means != 0 && w.now != nil && c.means < w.now.fence {
		w.stray(c)
		return
	}
	switch c.op {
	case "acquire":
		w.acquire(c)
	case "renew":
		w.renew(c)
	case "release":
		w.release(c)
	}
}

func (w *walk) acquire(c *call) {
	if c.maybe() {
		w.blurred = true
		w.cost = c.cost
		if w.tried < 0 {
			w.tried = c.start
		}
	}
	if c.outcome != granted {
		return
	}
	asked := c.start
	if w.tried >= 0 {
		asked = w.tried // the first time may have been the one that counted
	}
	w.now = &tenure{
		holder: c.holder, fence: c.fence, cost: max(1, c.cost),
		asked: asked, from: c.end, until: asked + c.lasts(),
	}
	w.all = append(w.all, w.now)
	w.tried, w.released, w.leaving = -1, false, false
	if c.fence == 0 {
		w.judge.breach(fencesRise, place{w.key, c.start}, "holder %s got no fencing token", c.holder)
	}
}

// mustHold reports whether there is no doubt that the holder has it during the call.
func (w *walk) mustHold(c *call) bool {
	return w.now != nil && !w.released && !w.leaving && c.end < w.now.until-margin &&
		!w.judge.lostBetween(w.now.asked, c.end)
}

// lost notes that a hold is gone that should be there.
func (w *walk) lost(c *call) {
	w.judge.breach(holdsStay, place{w.key, c.start}, "holder %s, fence %d, granted at %.3f: %s: %s %s",
		c.holder, w.now.fence, w.now.from.Seconds(), c.op, c.outcome, c.text)
	w.now.until = min(w.now.until, c.start)
	w.now = nil
}

func (w *walk) renew(c *call) {
	stays, stayed := w.judge.tally[holdsStay], w.judge.tally[releasesStay]
	switch {
	case !c.decided():
	case w.mustHold(c):
		stays.checked++
		if c.outcome != granted {
			w.lost(c)
			return
		}
		w.now.until = max(w.now.until, c.start+c.lasts())
		if c.fence != w.now.fence {
			w.judge.breach(fencesRise, place{w.key, c.start}, "holder %s has fence %d, and %d when it renews",
				c.holder, w.now.fence, c.fence)
		}
	case w.released && !w.blurred:
		stayed.checked++
		if c.outcome == granted {
			w.judge.breach(releasesStay, place{w.key, c.start}, "holder %s renewed what it had released",
				c.holder)
		}
	case c.outcome == granted && w.now != nil && !w.leaving && !w.released:
		w.now.until = max(w.now.until, c.start+c.lasts()) // it need not have been held any more, but was
	case c.outcome == granted && w.now == nil && w.tried >= 0:
		w.found(c)
	}
}

// found notes that a renewal has found a hold of an acquire without an answer: from now on it stays.
func (w *walk) found(c *call) {
	w.now = &tenure{
		holder: c.holder, fence: c.fence, cost: max(1, w.cost),
		asked: w.tried, from: c.end, until: c.start + c.lasts(),
	}
	w.all = append(w.all, w.now)
	w.tried = -1
}

// stray is a release or a renewal that means an earlier hold of its holder: it does nothing.
func (w *walk) stray(c *call) {
	if c.outcome == granted {
		w.judge.breach(holdsStay, place{w.key, c.start}, "holder %s has fence %d, and %s of %d did something",
			c.holder, w.now.fence, c.op, c.means)
	}
}

func (w *walk) release(c *call) {
	must := w.mustHold(c)
	if w.now != nil {
		w.now.until = min(w.now.until, c.start)
	}
	switch {
	case c.maybe():
		w.leaving = true
	case !c.decided():
	case must && c.outcome != granted:
		w.judge.tally[holdsStay].checked++
		w.lost(c)
	case c.outcome == granted:
		w.judge.tally[holdsStay].checked++
		if w.released && !w.blurred {
			w.judge.breach(releasesStay, place{w.key, c.start}, "holder %s released it twice", c.holder)
		}
		w.released = true
	}
}

// fences looks whether who asked after another was granted has the larger token.
func (j *judge) fences(key string, all []*tenure) {
	byAsked, byFrom := slices.Clone(all), slices.Clone(all)
	slices.SortFunc(byAsked, func(a, b *tenure) int { return cmp.Compare(a.asked, b.asked) })
	slices.SortFunc(byFrom, func(a, b *tenure) int { return cmp.Compare(a.from, b.from) })
	var highest *tenure
	i := 0
	seen := make(map[uint64]string)
	for _, t := range byAsked {
		for ; byFrom[i].from < t.asked; i++ {
			if highest == nil || byFrom[i].fence > highest.fence {
				highest = byFrom[i]
			}
		}
		j.tally[fencesRise].checked++
		if highest != nil && t.fence <= highest.fence {
			j.breach(fencesRise, place{key, t.from}, "holder %s has fence %d, after holder %s had %d",
				t.holder, t.fence, highest.holder, highest.fence)
		}
		if other, ok := seen[t.fence]; ok && other != t.holder {
			j.breach(fencesRise, place{key, t.from}, "holders %s and %s both have fence %d",
				other, t.holder, t.fence)
		}
		seen[t.fence] = t.holder
	}
}

// An edge is the beginning or the end of a tenure.
type edge struct {
	at    time.Duration
	begin bool
	*tenure
}

// room looks whether more was held at once than there is room for.
func (j *judge) room(key string, size int64, all []*tenure) {
	var edges []edge
	for _, t := range all {
		if t.from < t.until-margin {
			edges = append(edges, edge{t.from, true, t}, edge{t.until - margin, false, t})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	held := make(map[*tenure]bool)
	sum := int64(0)
	for _, e := range edges {
		if !e.begin {
			sum -= e.cost
			delete(held, e.tenure)
			continue
		}
		held[e.tenure] = true
		sum += e.cost
		j.tally[roomIsKept].checked++
		if sum <= size {
			continue
		}
		var who []string
		for t := range held {
			who = append(who, t.holder)
		}
		slices.Sort(who)
		j.breach(roomIsKept, place{key, e.at}, "%d are held at once, want at most %d; the holders are %s",
			sum, size, strings.Join(who[:min(len(who), 10)], ", "))
	}
}
