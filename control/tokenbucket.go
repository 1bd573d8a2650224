package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A bucket is the meter of a token bucket. It is refilled to its size at every boundary, created +
// k·interval, as bouncer's is. So a window of w lets at most size·(ceil(w/interval)+1) through.
//
// What is kept is not the tokens left but the tokens taken since the last boundary: that is what
// makes a resize within an interval come out right.
type bucket struct {
	rate
	start int64 // the last boundary; 0 before the first use
	taken int64 // since start
}

func (b *bucket) set(now int64, to *gatehouse.Command, _ *time.Location) (anew bool) {
	if b.start == 0 {
		b.start = now
	}
	b.roll(now)
	b.size = to.Size
	if interval := int64(to.Interval); b.interval != interval {
		b.interval = interval
		b.roll(now)
		return true
	}
	return false
}

// roll moves start to the last boundary at or before now and forgets what was taken before it.
func (b *bucket) roll(now int64) {
	if passed := now - b.start; b.interval > 0 && passed >= b.interval {
		b.start += passed - passed%b.interval
		b.taken = 0
	}
}

func (b *bucket) when(from, n int64) int64 {
	at := *b
	at.roll(from)
	return refilled(from, n, refill{b.size, at.taken, plus(at.start, b.interval), b.interval})
}

// A refill is what comes back all at once, again and again.
type refill struct {
	size, taken int64
	next        int64 // when the next comes
	interval    int64 // the least from one to another
}

// refilled is when n can be taken of what is refilled. For more than the size it is only a lower
// bound: costs that do not divide the size leave some over.
func refilled(from, n int64, r refill) int64 {
	free := max(0, r.size-r.taken)
	switch {
	case n <= r.size-r.taken:
		return from
	case n <= r.size:
		return r.next
	case r.size == 0:
		return noTime
	}
	further := min(times((n-free-1)/r.size, r.interval), int64(gatehouse.MaxDuration))
	return plus(r.next, further)
}

func (b *bucket) take(_, at, n int64) {
	b.roll(at)
	b.taken = plus(b.taken, n)
}

func (b *bucket) giveBack(now, n int64) {
	b.roll(now)
	b.taken = max(0, b.taken-n)
}

// undo gives tokens back; those of an interval that is over are worth nothing.
func (b *bucket) undo(_, at, _, n int64) {
	if at >= b.start {
		b.taken = max(0, b.taken-n)
	}
}

func (b *bucket) read(now int64) reading {
	at := *b
	at.roll(now)
	return reading{
		limit: b.size, left: max(0, b.size-at.taken),
		reset: plus(at.start, b.interval), interval: b.interval,
	}
}

func (b *bucket) clear() { b.taken = 0 }

func (b *bucket) clone() meter {
	c := *b
	return &c
}

func (b *bucket) code(c *codec) {
	b.rate.code(c)
	c.instant(&b.start)
	c.upTo(&b.taken, noTime)
}
