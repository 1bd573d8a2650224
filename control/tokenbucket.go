package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A TokenBucket is refilled to its size at every boundary, created + k·interval, as bouncer's is. So
// a window of w lets at most size·(ceil(w/interval)+1) through.
//
// What is kept is not the tokens left but the tokens taken since the last boundary: that is what
// makes a resize within an interval come out right.
type TokenBucket struct {
	tally
	size     int64
	interval int64 // ns
	start    int64 // the last boundary, Unix ns
	taken    int64 // since start
}

// Step implements [State].
func (b *TokenBucket) Step(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if b.start == 0 {
		b.begin(now)
		b.start = now.UnixNano()
	}
	if cmd.Op == gatehouse.OpAcquire {
		return b.acquire(now, cmd)
	}
	b.roll(now.UnixNano())
	d := b.decide(now, gatehouse.Granted)
	d.Stats = b.stats("acquired",
		gatehouse.Stat{Name: "size", Value: b.size},
		gatehouse.Stat{Name: "interval", Value: time.Duration(b.interval)},
		gatehouse.Stat{Name: "available", Value: b.free()})
	return d
}

func (b *TokenBucket) acquire(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	b.roll(now.UnixNano())
	if !cmd.Again || b.interval == 0 {
		b.size = cmd.Size
		if b.interval != int64(cmd.Interval) {
			b.interval = int64(cmd.Interval)
			b.roll(now.UnixNano())
		}
	}
	free := b.free()
	switch {
	case b.size > 0 && cmd.Cost > b.size:
		return unable(now, gatehouse.Conflict, "was resized below the cost of this request")
	case cmd.Ahead > 0 || cmd.Cost > free:
		b.refused(cmd)
		d := b.decide(now, gatehouse.Refused)
		d.RetryAfter = b.wait(d.ResetAfter, cmd.Ahead+cmd.Cost-free)
		return d
	}
	b.taken += cmd.Cost
	b.pass(now, cmd)
	return b.decide(now, gatehouse.Granted)
}

// roll moves start to the last boundary at or before now and forgets what was taken before it.
func (b *TokenBucket) roll(now int64) {
	if passed := now - b.start; b.interval > 0 && passed >= b.interval {
		b.start += passed - passed%b.interval
		b.taken = 0
	}
}

func (b *TokenBucket) free() int64 { return max(0, b.size-b.taken) }

// wait is the time until missing more tokens have appeared, the next boundary being next away. It is
// a lower bound: costs that do not divide the size leave tokens over.
func (b *TokenBucket) wait(next time.Duration, missing int64) time.Duration {
	if b.size == 0 {
		return gatehouse.Forever
	}
	further := max(0, (missing-1)/b.size)
	if further > int64(gatehouse.MaxDuration)/b.interval {
		return gatehouse.MaxDuration
	}
	return next + time.Duration(further*b.interval)
}

func (b *TokenBucket) decide(now time.Time, outcome gatehouse.Outcome) gatehouse.Decision {
	return gatehouse.Decision{
		Outcome:    outcome,
		At:         now,
		ResetAfter: time.Duration(b.start + b.interval - now.UnixNano()),
		Limit:      b.size,
		Remaining:  b.free(),
		Interval:   time.Duration(b.interval),
	}
}

// Undo implements [State]. Tokens of an interval that is over are worth nothing.
func (b *TokenBucket) Undo(_ time.Time, cmd *gatehouse.Command) {
	if cmd.Granted == nil {
		return
	}
	b.takeBack(cmd)
	if cmd.Granted.At.UnixNano() >= b.start {
		b.taken = max(0, b.taken-cmd.Cost)
	}
}

// Expiry implements [State]: at the next boundary a bucket is full, like a new one.
func (b *TokenBucket) Expiry() time.Time { return time.Unix(0, b.start+b.interval) }
