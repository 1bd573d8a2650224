package lease

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

// A RateLimiter lets callers through at the rate of its source's capacity per second, evenly spaced: at 4
// one each 250 ms, at 0.1 one each 10 s. After a pause a hundredth of a second's worth may go at once, 10 at
// 1,000; so in any period of w seconds at most 1 + c/100 + c·w go at a capacity of c. Waiting callers that
// wake up late make up for it, for at most 100 ms. Make one with NewRateLimiter. It is safe for use by many
// goroutines, and starts none itself.
//
// A change of the capacity takes effect at once, also for callers that are waiting. Tokens taken before
// still count, up to the number that could be taken at once: when one was taken at 0.1 and the capacity
// becomes 10, the next goes 100 ms after the change.
type RateLimiter struct {
	line  *line
	limit atomic.Pointer[rateLimit]

	mu        sync.Mutex           // for changing limit and reserved
	reserved  *limiter.Reservation // by limit.limiter, for the first in line
	reservedN int64                // how many that is for
}

// A rateLimit is the limit for one capacity. Its limiter is nil when the limit is all or nothing.
type rateLimit struct {
	capacity  float64
	unlimited bool
	limiter   *limiter.Limiter
	step      time.Duration // from one token to the next
	since     time.Time     // when it took effect
	taken     float64       // tokens taken that are not refilled yet; used without a limiter
}

// burstPerSecond is the part of a second's worth that may go at once, as 1/burstPerSecond. It makes up for
// timers that fire late.
const burstPerSecond = 100

// newRateLimit returns a limit from which some tokens were taken already. More than it lets through at once
// do not count.
func newRateLimit(capacity, taken float64) *rateLimit {
	p := &rateLimit{capacity: capacity, unlimited: capacity == -1, taken: taken, since: time.Now()}
	step := math.Ceil(float64(time.Second) / capacity)
	switch {
	// Without any limit all tokens are refilled at once.
	case p.unlimited:
		p.taken = 0
		return p
	// Nothing goes at this capacity, now or within any time that counts. The tokens taken are kept for the
	// limit after this one.
	case !(capacity > 0) || step > float64(gatehouse.MaxDuration):
		return p
	}
	p.step = time.Duration(max(1, step))
	burst := int64(min(capacity, float64(time.Second)) / burstPerSecond)
	l, err := limiter.New(limiter.Rate{Size: 1, Interval: p.step, Burst: burst})
	if err != nil {
		panic(err) // all numbers are within bounds
	}
	p.limiter, p.taken = l, 0 // the limiter counts them from here on
	// Taken tokens are charged to the new limiter in the past: n whole tokens, early enough that only the
	// taken of them are left now. So a fraction of a token counts too.
	taken = min(taken, float64(burst+1))
	if taken > 0 {
		n := max(1, int64(math.Ceil(taken)))
		l.AllowAt(p.since.Add(time.Duration((taken-float64(n))*step)), n)
	}
	return p
}

// tokensTaken returns how many tokens were taken and are not refilled yet.
func (p *rateLimit) tokensTaken() float64 {
	if p.limiter == nil {
		return p.taken
	}
	return float64(p.limiter.Peek(0).ResetAfter) / float64(p.step)
}

// NewRateLimiter returns a limiter that follows the source.
func NewRateLimiter(source Source) *RateLimiter {
	r := &RateLimiter{line: newLine(source)}
	r.limit.Store(newRateLimit(validCapacity(source.Capacity()), 0))
	return r
}

// validCapacity returns the capacity of a source: an amount, or -1 for unlimited. Anything else, such as
// NaN, counts as 0.
func validCapacity(capacity float64) float64 {
	if capacity >= 0 && capacity <= math.MaxFloat64 || capacity == -1 {
		return capacity
	}
	return 0
}

// currentLimit returns the limit for the present capacity.
func (r *RateLimiter) currentLimit() *rateLimit {
	capacity := validCapacity(r.line.source.Capacity())
	// The usual case, without the lock.
	if p := r.limit.Load(); p.capacity == capacity {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setLimit(capacity)
}

// setLimit makes the limit one for the capacity. r.mu is held.
func (r *RateLimiter) setLimit(capacity float64) *rateLimit {
	p := r.limit.Load()
	if p.capacity == capacity {
		return p
	}
	// The reservation is of the old limit. Cancelled first, it is not charged to the new one; the first in
	// line reserves again.
	r.cancelReserved()
	p = newRateLimit(capacity, p.tokensTaken())
	r.limit.Store(p)
	return p
}

// cancelReserved cancels the reservation of the first in line. r.mu is held.
func (r *RateLimiter) cancelReserved() {
	if r.reserved != nil {
		r.reserved.Cancel()
		r.reserved = nil
	}
}

// Allow reports whether the caller may go now, and counts it if so. While other callers wait it returns
// false.
func (r *RateLimiter) Allow() bool {
	if r.line.closed.Load() {
		return false
	}
	p := r.currentLimit()
	// All or nothing takes no token, so that there is no line to stand behind.
	if p.limiter == nil {
		return p.unlimited
	}
	return r.line.waiting.Load() == 0 && p.limiter.Allow()
}

// Wait returns nil as soon as the caller may go; callers that wait go in order of arrival. The error has the
// code [gatehouse.CodeTimeout] when ctx ends before, and is ErrClosed when the limiter or its source has
// ended.
func (r *RateLimiter) Wait(ctx context.Context) error { return r.WaitN(ctx, 1) }

var _ gatehouse.Throttle = (*RateLimiter)(nil)

// WaitN returns nil as soon as n may go, one after the other at the limiter's rate if they are more than may
// go at once. They have one place in line. With an error those are spent that could have gone by then.
func (r *RateLimiter) WaitN(ctx context.Context, n int64) error {
	if err := r.line.checkOpen(ctx); err != nil {
		return err
	}
	switch {
	case n < 0:
		return gatehouse.Errorf(gatehouse.CodeInvalid, "wait for %d, want 0 and more", n)
	// More than one may be more than can go at once, which only the line lets through in pieces.
	case n == 0 || n == 1 && r.Allow():
		return nil
	}
	return r.line.waitInLine(ctx, &rateTurn{r, n})
}

// A rateTurn is one caller's place in line.
type rateTurn struct {
	*RateLimiter
	left int64 // how many of its own have not gone yet
}

// tryAdmit implements admitter. What is too much for one reservation goes in pieces, and the caller stays the
// first in line until the last has gone.
func (t *rateTurn) tryAdmit(arrived time.Time) (ok bool, again time.Duration) {
	for {
		gone, again := t.admitPiece(arrived, t.left)
		t.left -= gone
		if t.left <= 0 || gone == 0 {
			return t.left <= 0, again
		}
	}
}

// Close ends the limiter: no caller goes any more, and those that wait get ErrClosed. The source stays as it
// is. A second Close does nothing.
func (r *RateLimiter) Close() { r.line.close() }

// Waiting returns how many callers wait.
func (r *RateLimiter) Waiting() int { return int(r.line.waiting.Load()) }

// maxLate bounds the time that callers may make up for when they wake up late.
const maxLate = 100 * time.Millisecond

// admitPiece lets through as many of n as one reservation can have, and returns how many went, or after how
// long to try again if none did. The first in line takes the time that it would have had when it arrived,
// behind all callers before it, so that no time is lost while callers wake up one after the other on a busy
// machine.
func (r *RateLimiter) admitPiece(arrived time.Time, n int64) (gone int64, again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.setLimit(validCapacity(r.line.source.Capacity()))
	if p.limiter == nil {
		if p.unlimited {
			return n, 0
		}
		return 0, forever
	}
	if r.reserved == nil {
		// Never before this limit took effect, nor further back than maxLate: otherwise a caller that was
		// suspended for a minute would bring a minute's worth of tokens with it.
		from := slices.MaxFunc([]time.Time{arrived, p.since, time.Now().Add(-maxLate)}, time.Time.Compare)
		var ok bool
		r.reservedN = min(n, p.limiter.Rate().Burst+1)
		r.reserved, ok = p.limiter.ReserveAt(from, r.reservedN)
		if !ok {
			return 0, forever
		}
	}
	if wait := r.reserved.Delay(); wait > 0 {
		return 0, wait
	}
	// It is used up. The next piece, or the next in line, gets another one.
	r.reserved = nil
	return r.reservedN, 0
}

// stopWaiting implements admitter.
func (r *RateLimiter) stopWaiting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelReserved()
}
