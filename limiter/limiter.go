// Package limiter limits rates in a Go program, without a server. A [Limiter] is one limit, a [Keyed]
// the same limit for each of many keys. Neither has a goroutine, and no call but Wait blocks.
//
// Both are the generic cell rate algorithm (GCRA), which the ATM Forum defined for telephone networks
// and redis-cell brought to Redis. It decides as a token bucket of Burst + 1 that is refilled one by
// one, evenly, and keeps a single number for it. In any stretch of time of length w at most
// Burst + 1 + w·Size/Interval pass, where Interval/Size is cut to whole nanoseconds.
package limiter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Limiter limits how many may pass per interval. Make one with New. It is safe for use by many
// goroutines, which do not wait for one another.
type Limiter struct {
	tat atomic.Int64 // the theoretical arrival time
	// Every request writes what is before; what comes after is only read, so it gets a cache line of
	// its own, which all cores can have at the same time.
	_     [56]byte
	gcra  atomic.Pointer[gcraParams]
	clock clock
}

// New returns a limiter of which nothing was taken yet. The error is of code [gatehouse.CodeInvalid]
// and says what is wrong with the rate.
func New(rate Rate) (*Limiter, error) {
	g, err := newGCRA(rate)
	if err != nil {
		return nil, err
	}
	l := &Limiter{clock: newClock()}
	l.tat.Store(idle)
	l.gcra.Store(g)
	return l, nil
}

// Allow reports whether one may go now, and counts it if so.
func (l *Limiter) Allow() bool {
	g := l.gcra.Load()
	return l.takeCost(g, l.clock.nowNanos(), g.step)
}

// AllowN reports whether n may go now, and counts them if so: all of them or none. An n of 0 counts
// nothing; one below 0 or above Burst + 1 is never allowed.
func (l *Limiter) AllowN(n int64) bool { return l.allowNanos(l.clock.nowNanos(), n) }

// AllowAt is AllowN at another time than now. Times that go back find taken what was taken after
// them.
func (l *Limiter) AllowAt(now time.Time, n int64) bool { return l.allowNanos(l.clock.toNanos(now), n) }

func (l *Limiter) allowNanos(now, n int64) bool {
	g := l.gcra.Load()
	cost, ok := g.costOf(n)
	return ok && l.takeCost(g, now, cost)
}

func (l *Limiter) takeCost(g *gcraParams, now, cost int64) bool {
	// A Size of 0 has a tolerance of -1: latest is before now, and nothing passes, not even an n of 0.
	latest := now + g.tolerance - cost
	for {
		tat := l.tat.Load()
		// A time in the past is unused allowance. It may not grow beyond the burst, so it counts as now.
		next := max(tat, now)
		if next > latest {
			return false
		}
		// A swap fails only because another caller took something, after which this one may be refused.
		if l.tat.CompareAndSwap(tat, next+cost) {
			return true
		}
	}
}

// Decide is AllowN with the numbers that a refused caller wants to know.
func (l *Limiter) Decide(n int64) Decision { return l.decideNanos(l.clock.nowNanos(), n) }

// DecideAt is Decide at another time than now.
func (l *Limiter) DecideAt(now time.Time, n int64) Decision {
	return l.decideNanos(l.clock.toNanos(now), n)
}

func (l *Limiter) decideNanos(now, n int64) Decision {
	g := l.gcra.Load()
	for {
		tat := l.tat.Load()
		d, next := g.decideRequest(tat, now, n, true)
		// A refusal changes nothing and needs no swap: its numbers were true when the time was loaded.
		if !d.Allowed || l.tat.CompareAndSwap(tat, next) {
			return d
		}
	}
}

// Peek answers as Decide would, and takes nothing. An n of 0 asks for the numbers alone.
func (l *Limiter) Peek(n int64) Decision { return l.peekNanos(l.clock.nowNanos(), n) }

// PeekAt is Peek at another time than now.
func (l *Limiter) PeekAt(now time.Time, n int64) Decision {
	return l.peekNanos(l.clock.toNanos(now), n)
}

func (l *Limiter) peekNanos(now, n int64) Decision {
	d, _ := l.gcra.Load().decideRequest(l.tat.Load(), now, n, false)
	return d
}

// Delay returns how long it is until n may go, if no one else takes anything meanwhile: 0 now,
// [gatehouse.Forever] never. It takes nothing; Reserve does.
func (l *Limiter) Delay(n int64) time.Duration { return l.Peek(n).RetryAfter }

// Reserve takes the earliest place there is for n. ok is false, and nothing taken, when they can never
// go: an n below 0 or above Burst + 1, a Size of 0, a wait of more than a hundred years.
func (l *Limiter) Reserve(n int64) (r *Reservation, ok bool) {
	return l.ReserveAt(l.clock.now(), n)
}

// ReserveAt is Reserve at another time than now.
func (l *Limiter) ReserveAt(now time.Time, n int64) (r *Reservation, ok bool) {
	p, wait, ok := l.reserveWithin(l.clock.toNanos(now), n, int64(gatehouse.MaxDuration))
	if !ok || wait > int64(gatehouse.MaxDuration) {
		return nil, false
	}
	return &Reservation{place: p, clock: l.clock, owner: l}, true
}

// reserveWithin takes a place for n unless the wait, in ns, is more than most.
func (l *Limiter) reserveWithin(now, n, most int64) (p reservedTime, wait int64, ok bool) {
	for {
		tat := l.tat.Load()
		p, wait, ok = l.gcra.Load().reserveTime(tat, now, n)
		// A place too far away is not taken: giving it back could fail when others stand behind it by then.
		if !ok || wait > most || l.tat.CompareAndSwap(tat, p.next) {
			return p, wait, ok
		}
	}
}

// giveBack implements owner.
func (l *Limiter) giveBack(r *Reservation, _ int64) {
	for {
		tat := l.tat.Load()
		// Reset changes the epoch before the time, so that the swap fails when it was not seen here.
		if l.gcra.Load().epoch != r.place.epoch ||
			l.tat.CompareAndSwap(tat, tat-r.place.returnableCost(tat)) {
			return
		}
	}
}

// Wait returns nil as soon as n may go. They take the earliest place there is, so callers are let
// through in the order of arrival. The error is of code [gatehouse.CodeTimeout] when ctx ends, at once
// when its deadline comes before the place, and of code [gatehouse.CodeInvalid] when n can never go.
// With an error nothing is taken, unless others wait behind: their times count it in.
func (l *Limiter) Wait(ctx context.Context, n int64) error {
	most, err := longestWait(ctx)
	if err != nil {
		return err
	}
	p, wait, ok := l.reserveWithin(l.clock.nowNanos(), n, most)
	// The common case makes no Reservation, and so allocates nothing.
	if wait == 0 && ok {
		return nil
	}
	if err := checkWait(n, wait, most, ok); err != nil {
		return err
	}
	return (&Reservation{place: p, clock: l.clock, owner: l}).waitForStart(ctx)
}

// WaitN is Wait, under the name that [gatehouse.Throttle] has for it.
func (l *Limiter) WaitN(ctx context.Context, n int64) error { return l.Wait(ctx, n) }

var _ gatehouse.Throttle = (*Limiter)(nil)

// Refund gives back n that were taken and not used, as far as they still count. As many more may go: with
// reservations ahead, together with the last of them, which moves no nearer. An n below 1 does nothing.
func (l *Limiter) Refund(n int64) { l.RefundAt(l.clock.now(), n) }

// RefundAt is Refund at another time than now.
func (l *Limiter) RefundAt(now time.Time, n int64) {
	at := l.clock.toNanos(now)
	for {
		tat := l.tat.Load()
		next := l.gcra.Load().refundedTAT(tat, at, n)
		// There was nothing to give back, and a swap would only disturb other cores.
		if next == tat || l.tat.CompareAndSwap(tat, next) {
			return
		}
	}
}

// Reset forgets all that was taken and reserved: Limit may pass at once, as when the limiter was new.
// To cancel a reservation made before gives nothing back.
func (l *Limiter) Reset() {
	// The epoch changes before the time, as giveBack counts on.
	l.swapParams(func(g *gcraParams) *gcraParams {
		next := *g
		next.epoch++
		return &next
	})
	l.tat.Store(idle)
}

// Rate returns the rate in force.
func (l *Limiter) Rate() Rate { return l.gcra.Load().rate }

// SetRate puts another rate in force. What was taken is kept as the time it takes to come back: at 10
// per second 5 that were taken take half a second, and still do when the rate is 1 per second. Times
// that were reserved stay as they are. The error is as New's, and the rate then as before.
func (l *Limiter) SetRate(rate Rate) error {
	made, err := newGCRA(rate)
	if err != nil {
		return err
	}
	l.swapParams(func(g *gcraParams) *gcraParams {
		next := *made
		// Another rate forgets nothing: reservations made before can still be cancelled.
		next.epoch = g.epoch
		return &next
	})
	return nil
}

func (l *Limiter) swapParams(to func(*gcraParams) *gcraParams) {
	for {
		g := l.gcra.Load()
		if l.gcra.CompareAndSwap(g, to(g)) {
			return
		}
	}
}
