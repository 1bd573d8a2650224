package lease

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

// A RateLimiter lets through as many per second as its source has capacity, evenly: at 4 one each 250 ms, at 0.1
// one each 10 s. A hundredth of a second's worth may go at once after a pause, 10 at 1,000; so in any
// stretch of w seconds at most 1 + c/100 + c·w go at a capacity of c. Those who wait and are woken late make
// up for it, for at most 100 ms. Make one with NewRate. It is safe for use by many goroutines, and has none
// itself.
//
// A change of the capacity counts at once, also for who waits already. What was taken before counts on, as
// far as it could be taken at once: at 0.1 one was taken, then the capacity becomes 10, and the next goes
// 100 ms after the change.
type RateLimiter struct {
	line  *line
	limit atomic.Pointer[rateLimit]

	mu       sync.Mutex           // for changing pace and reserved
	reserved *limiter.Reservation // by pace.limiter, for the first in line
}

// A rateLimit is a limit for one capacity. Its limiter is nil when the limit is all or nothing.
type rateLimit struct {
	capacity  float64
	unlimited bool
	limiter   *limiter.Limiter
	step      time.Duration // from one to the next
	since     time.Time     // when it came to be
	taken     float64       // how many were taken and did not come back yet, without a limiter
}

// burstPerSecond is what part of a second's worth may go at once: that makes up for timers that are late.
const burstPerSecond = 100

// newRateLimit returns a pace of which so many were taken already, or as many as it lets through at once.
func newRateLimit(capacity, debt float64) *rateLimit {
	p := &rateLimit{capacity: capacity, unlimited: capacity == -1, taken: debt, since: time.Now()}
	step := math.Ceil(float64(time.Second) / capacity)
	switch {
	case p.unlimited:
		p.taken = 0
		return p
	case !(capacity > 0) || step > float64(gatehouse.MaxDuration):
		return p
	}
	p.step = time.Duration(max(1, step))
	burst := int64(min(capacity, float64(time.Second)) / burstPerSecond)
	l, err := limiter.New(limiter.Rate{Size: 1, Interval: p.step, Burst: burst})
	if err != nil {
		panic(err) // all figures are within bounds
	}
	p.limiter, p.taken = l, 0
	debt = min(debt, float64(burst+1))
	if debt > 0 {
		n := max(1, int64(math.Ceil(debt)))
		l.AllowAt(p.since.Add(time.Duration((debt-float64(n))*step)), n)
	}
	return p
}

// tokensTaken is how many were taken and did not come back yet.
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

// validCapacity is a capacity as this package has it: what is no amount is nothing.
func validCapacity(capacity float64) float64 {
	if capacity >= 0 && capacity <= math.MaxFloat64 || capacity == -1 {
		return capacity
	}
	return 0
}

// currentLimit is the pace for the capacity of now.
func (r *RateLimiter) currentLimit() *rateLimit {
	capacity := validCapacity(r.line.source.Capacity())
	if p := r.limit.Load(); p.capacity == capacity {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setLimit(capacity)
}

// setLimit makes the pace one for the capacity. r.mu is held.
func (r *RateLimiter) setLimit(capacity float64) *rateLimit {
	p := r.limit.Load()
	if p.capacity == capacity {
		return p
	}
	r.cancelReserved()
	p = newRateLimit(capacity, p.tokensTaken())
	r.limit.Store(p)
	return p
}

// cancelReserved cancels what is reserved for the first in line. r.mu is held.
func (r *RateLimiter) cancelReserved() {
	if r.reserved != nil {
		r.reserved.Cancel()
		r.reserved = nil
	}
}

// Allow reports whether the caller may go now, and counts it if so. While others wait it may not.
func (r *RateLimiter) Allow() bool {
	if r.line.closed.Load() {
		return false
	}
	p := r.currentLimit()
	if p.limiter == nil {
		return p.unlimited
	}
	return r.line.waiting.Load() == 0 && p.limiter.Allow()
}

// Wait returns nil as soon as the caller may go; those who wait go in order of arrival. The error is of
// code [gatehouse.CodeTimeout] when ctx ends before, and ErrClosed when the limiter or its source does.
func (r *RateLimiter) Wait(ctx context.Context) error {
	if err := r.line.checkOpen(ctx); err != nil {
		return err
	}
	if r.Allow() {
		return nil
	}
	return r.line.waitInLine(ctx, r)
}

// Close ends the limiter: nobody goes any more, and those who wait get ErrClosed. The source stays as it
// is. A second Close does nothing.
func (r *RateLimiter) Close() { r.line.close() }

// Waiting returns how many callers wait.
func (r *RateLimiter) Waiting() int { return int(r.line.waiting.Load()) }

// maxLate is how much time may be made up for when callers are slow to wake up.
const maxLate = 100 * time.Millisecond

// tryAdmit implements door. The first in line takes the place it would have had when it arrived, behind all who
// were before it, so that no time is lost while callers wake up one after the other on a busy machine.
func (r *RateLimiter) tryAdmit(arrived time.Time) (ok bool, again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.setLimit(validCapacity(r.line.source.Capacity()))
	if p.limiter == nil {
		return p.unlimited, forever
	}
	if r.reserved == nil {
		from := latestOf(arrived, p.since, time.Now().Add(-maxLate))
		r.reserved, ok = p.limiter.ReserveAt(from, 1)
		if !ok {
			return false, forever
		}
	}
	if wait := r.reserved.Delay(); wait > 0 {
		return false, wait
	}
	r.reserved = nil
	return true, 0
}

func latestOf(a, b, c time.Time) time.Time {
	if a.Before(b) {
		a = b
	}
	if a.Before(c) {
		return c
	}
	return a
}

// stopWaiting implements door.
func (r *RateLimiter) stopWaiting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelReserved()
}
