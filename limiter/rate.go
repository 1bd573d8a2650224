package limiter

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Rate is how much may pass: Size per Interval in the long run, and Burst at once beyond the first.
// A Burst of 4 at 1 per second lets 5 through at once, then one a second.
type Rate struct {
	// Size is how many per Interval, 0 to [gatehouse.MaxSize] and at most one per nanosecond. 0 lets
	// nothing through.
	Size int64

	// Interval is more than 0 and at most [gatehouse.MaxDuration].
	Interval time.Duration

	// Burst is how many may pass at once beyond the first, from 0. What it lets through must come back
	// within [gatehouse.MaxDuration].
	Burst int64
}

// check returns an error of CodeInvalid when the rate makes no sense.
func (r Rate) check() error {
	// The order counts: the last case divides by what those before it have checked. It does not multiply, as
	// the product might overflow.
	switch {
	case r.Interval <= 0 || r.Interval > gatehouse.MaxDuration:
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"rate: Interval is %s, want more than 0 and at most 100 years", r.Interval)
	case r.Size < 0 || r.Size > gatehouse.MaxSize:
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"rate: Size is %d, want 0 to %d", r.Size, int64(gatehouse.MaxSize))
	case r.Size > int64(r.Interval):
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"rate: Size is %d in %s, want at most one per nanosecond", r.Size, r.Interval)
	case r.Burst < 0 || r.Burst >= gatehouse.MaxSize:
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"rate: Burst is %d, want 0 to %d", r.Burst, int64(gatehouse.MaxSize)-1)
	case r.Size > 0 && r.Burst >= int64(gatehouse.MaxDuration)/(int64(r.Interval)/r.Size):
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"rate: Burst is %d at %d in %s, want one that comes back within 100 years",
			r.Burst, r.Size, r.Interval)
	}
	return nil
}

// idle is the theoretical arrival time when nothing was taken, before any instant there is.
const idle = math.MinInt64

// A gcraParams is a rate made ready for the generic cell rate algorithm. The state it works on is one number,
// the theoretical arrival time (tat): the instant, in ns, at which the next request would arrive if all
// came evenly. Every request moves it on by one step, and is let through while it is no further ahead
// of the present than the tolerance.
//
// Times are within horizon, tolerances and the waits that are granted within 100 years: so tat is at most
// 230 years from the start, and 292 fit. A step beyond that may not be added before it is clear that it
// is granted.
type gcraParams struct {
	rate      Rate
	limit     int64  // the most that can pass at once
	step      int64  // ns from one request to the next
	tolerance int64  // ns; below 0 nothing passes
	epoch     uint64 // how often all was forgotten
}

// newGCRA returns an error of CodeInvalid when the rate makes no sense.
func newGCRA(rate Rate) (*gcraParams, error) {
	if err := rate.check(); err != nil {
		return nil, err
	}
	if rate.Size == 0 {
		return &gcraParams{rate: rate, tolerance: -1}, nil
	}
	limit := rate.Burst + 1
	step := int64(rate.Interval) / rate.Size
	return &gcraParams{rate: rate, limit: limit, step: step, tolerance: step * limit}, nil
}

// costOf is how far n requests move the theoretical arrival time; ok is false when they can never pass.
func (g *gcraParams) costOf(n int64) (cost int64, ok bool) { return n * g.step, n >= 0 && n <= g.limit }

// reserveTime returns where n more requests would stand and how long, in ns, they have to wait; ok is false
// when they can never pass.
func (g *gcraParams) reserveTime(tat, now, n int64) (p reservedTime, wait int64, ok bool) {
	cost, ok := g.costOf(n)
	if !ok || g.tolerance < 0 {
		return reservedTime{}, 0, false
	}
	// They pass as soon as the time behind them is no further ahead than the tolerance.
	next := max(tat, now)
	wait = max(0, next-now-(g.tolerance-cost))
	return reservedTime{begin: now + wait, next: next + cost, cost: cost, epoch: g.epoch}, wait, true
}

// refundedTAT is the theoretical arrival time after n requests were given back.
func (g *gcraParams) refundedTAT(tat, now, n int64) int64 {
	if tat <= now || n <= 0 || g.step == 0 {
		return tat
	}
	// Divided, as n*step might overflow. More than was taken cannot come back.
	if n > (tat-now)/g.step {
		return now
	}
	return tat - n*g.step
}

// A reservedTime says when requests may go. Instants and durations are ns, instants since the clock's start.
type reservedTime struct {
	begin int64 // when they may go
	next  int64 // the theoretical arrival time behind them
	cost  int64
	epoch uint64
}

// returnableCost is how much comes free when the reservation is cancelled: all of the last one, and nothing
// of an earlier one, because the times of later callers already count it in.
func (p reservedTime) returnableCost(tat int64) int64 {
	if tat != p.next {
		return 0
	}
	return p.cost
}

// A Decision answers Decide and Peek.
type Decision struct {
	// Allowed is whether they may go now.
	Allowed bool

	// Limit is the most that can pass at once: Burst + 1, and 0 when the Size is.
	Limit int64

	// Remaining is how many more of that could pass now.
	Remaining int64

	// RetryAfter is how long it is until they could go, if no one else takes anything meanwhile: 0 when
	// Allowed, [gatehouse.Forever] when they never can.
	RetryAfter time.Duration

	// ResetAfter is how long it is until all of Limit can pass at once again.
	ResetAfter time.Duration
}

// decideRequest is the decision about n requests. Its numbers are those after they have gone, if take is true
// and they may.
func (g *gcraParams) decideRequest(tat, now, n int64, take bool) (d Decision, next int64) {
	p, wait, ok := g.reserveTime(tat, now, n)
	d = Decision{Allowed: ok && wait == 0, Limit: g.limit, RetryAfter: time.Duration(wait)}
	if !ok {
		d.RetryAfter = gatehouse.Forever
	}
	next = max(tat, now)
	if d.Allowed && take {
		next = p.next
	}
	d.ResetAfter = time.Duration(next - now)
	// A Size of 0 has no step, and nothing remains of it.
	if g.step > 0 {
		d.Remaining = max(0, g.tolerance-(next-now)) / g.step
	}
	return d, next
}
