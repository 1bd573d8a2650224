package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A tokenBucketMeter is the meter of a token bucket. It is refilled to its size at every boundary, created +
// k·interval, as bouncer's is. So a window of w lets at most size·(ceil(w/interval)+1) through.
//
// What is kept is not the tokens left but the tokens taken since the last boundary: that is what
// makes a resize within an interval come out right.
type tokenBucketMeter struct {
	meterRate
	start int64 // the last boundary; 0 before the first use
	taken int64 // since start
}

func (b *tokenBucketMeter) setLimit(now int64, to *gatehouse.Rule, _ *time.Location) (restarted bool) {
	if b.start == 0 {
		b.start = now
	}
	// The old interval's refills come first; then the new interval divides the time since the last one.
	b.rollTo(now)
	b.size = to.Size
	if interval := int64(to.Interval); b.interval != interval {
		b.interval = interval
		b.rollTo(now)
		return true
	}
	return false
}

// rollTo moves start to the last boundary at or before now and forgets what was taken before it.
func (b *tokenBucketMeter) rollTo(now int64) {
	if passed := now - b.start; b.interval > 0 && passed >= b.interval {
		b.start += passed - passed%b.interval
		b.taken = 0
	}
}

func (b *tokenBucketMeter) earliestFit(from, n int64) int64 {
	at := *b
	at.rollTo(from)
	next := addSaturating(at.start, b.interval)
	return earliestRefill(from, n, refillState{b.size, at.taken, next, b.interval})
}

// A refillState is what comes back all at once, again and again.
type refillState struct {
	size, taken int64
	next        int64 // when the next comes
	interval    int64 // the least from one to another
}

// earliestRefill is when n can be taken of what is refilled. For more than the size it is only a lower
// bound: costs that do not divide the size leave some over.
func earliestRefill(from, n int64, r refillState) int64 {
	free := max(0, r.size-r.taken)
	switch {
	case n <= r.size-r.taken:
		return from
	case n <= r.size:
		return r.next
	case r.size == 0:
		return noTime
	}
	// Each refill brings at most the size. One more than these brings the rest.
	further := min(mulSaturating((n-free-1)/r.size, r.interval), int64(gatehouse.MaxDuration))
	return addSaturating(r.next, further)
}

func (b *tokenBucketMeter) takeTokens(_, at, n int64) {
	b.rollTo(at)
	b.taken = addSaturating(b.taken, n)
}

func (b *tokenBucketMeter) giveBack(now, n int64) {
	b.rollTo(now)
	b.taken = max(0, b.taken-n)
}

// undoTake gives tokens back; those of an interval that is over are worth nothing.
func (b *tokenBucketMeter) undoTake(_, at, _, n int64) {
	if at >= b.start {
		b.taken = max(0, b.taken-n)
	}
}

func (b *tokenBucketMeter) readMeter(now int64) meterReading {
	at := *b
	at.rollTo(now)
	reset := addSaturating(at.start, b.interval)
	return meterReading{limit: b.size, left: max(0, b.size-at.taken), reset: reset, interval: b.interval}
}

func (b *tokenBucketMeter) clearTaken() { b.taken = 0 }

func (b *tokenBucketMeter) clone() limitMeter { return new(*b) }

func (b *tokenBucketMeter) codeFields(c *stateCodec) {
	b.meterRate.codeFields(c)
	c.codeInstant(&b.start)
	c.codeUpTo(&b.taken, noTime)
}
