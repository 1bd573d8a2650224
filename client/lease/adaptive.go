package lease

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// An Adaptive is a [RateLimiter] that finds out by itself how much to ask for: the rate at which callers
// arrive, let through or not, and enough more to let the waiting ones through within a second. Make one with
// NewAdaptive. No other code should call its claim's Want.
type Adaptive struct {
	rate     *RateLimiter
	claim    Claim
	config   AdaptiveConfig
	_        [64]byte     // keeps arrivals, written by each call, off the cache line of the fields above
	arrivals atomic.Int64 // since the slot began
	_        [56]byte

	mu         sync.Mutex
	average    arrivalAverage
	asked      float64 // the last amount wanted from the claim; 0 before the first
	slotsSince int     // slots since then
	timer      *time.Timer
	closed     bool
}

// AdaptiveConfig says how an Adaptive estimates. Its zero value works.
type AdaptiveConfig struct {
	// Window is the time over which arrivals are averaged; 0 means 10 s.
	Window time.Duration

	// Floor is the least that is asked for, per second, so that the first caller after a pause finds some
	// capacity; 0 means one per Window.
	Floor float64
}

// NewAdaptive returns a limiter that follows the claim, and asks for capacity after the first tenth of a
// window. A timer runs ten times per window until Close.
func NewAdaptive(claim Claim, config AdaptiveConfig) *Adaptive {
	if config.Window <= 0 {
		config.Window = 10 * time.Second
	}
	config.Window = max(config.Window, slots*time.Millisecond)
	// Never 0: with nothing asked for there would be no lease, and the first caller after a pause would have
	// to wait for a request.
	if !(config.Floor > 0) || math.IsInf(config.Floor, 1) {
		config.Floor = 1 / config.Window.Seconds()
	}
	a := &Adaptive{rate: NewRateLimiter(claim), claim: claim, config: config}
	// The timer may fire before it is stored here, and endSlot resets it.
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(config.Window/slots, a.endSlot) // stopped by Close
	return a
}

// Allow is [RateLimiter.Allow]. Each call counts as an arrival.
func (a *Adaptive) Allow() bool {
	a.arrivals.Add(1)
	return a.rate.Allow()
}

// Wait is [RateLimiter.Wait]. Each call counts as an arrival.
func (a *Adaptive) Wait(ctx context.Context) error {
	a.arrivals.Add(1)
	return a.rate.Wait(ctx)
}

// Waiting returns how many callers wait.
func (a *Adaptive) Waiting() int { return a.rate.Waiting() }

// Close is [RateLimiter.Close]; it also stops asking for capacity.
func (a *Adaptive) Close() {
	a.mu.Lock()
	a.closed = true
	a.timer.Stop()
	a.mu.Unlock()
	a.rate.Close()
}

// endSlot ends a slot of the window, and asks the claim for another amount if it changed much.
func (a *Adaptive) endSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.rate.line.hasEnded() {
		return
	}
	a.average.endSlot(a.arrivals.Swap(0))
	a.slotsSince++
	wants := a.currentWants()
	// When Want fails the claim has ended; the next slot tries again until hasEnded sees it.
	if a.worthAsking(wants) && a.claim.Want(wants) == nil {
		a.asked, a.slotsSince = wants, 0
	}
	a.timer.Reset(a.config.Window / slots)
}

// currentWants returns how many tokens per second to ask for.
func (a *Adaptive) currentWants() float64 {
	// Waiting callers are added as if they arrived within the next second, so that a line which has formed
	// also gets shorter.
	arriving := a.average.perSlot() / (a.config.Window / slots).Seconds()
	return min(max(arriving+float64(a.rate.Waiting()), a.config.Floor), maxWants)
}

// worthAsking reports whether wants differs enough from what was asked for. Chance alone moves an average by
// a few percent, which is not worth a request: half a window must pass, unless the demand has doubled.
func (a *Adaptive) worthAsking(wants float64) bool {
	return a.asked == 0 || wants >= 2*a.asked ||
		a.slotsSince >= slots/2 && math.Abs(wants-a.asked) > a.asked/10
}

// slots is into how many parts a window is divided.
const slots = 10

// An arrivalAverage is a moving average of the arrivals per slot. The later part of the window counts for
// more: of ten slots the last weighs ten times as much as the first. It is divided by the sum of the
// weights, so the average of a steady stream is its rate, however short it has lasted.
type arrivalAverage struct {
	counts [slots]int64 // oldest first
	filled int          // slots that have passed, at most all
}

// endSlot ends a slot in which this number of calls arrived.
func (d *arrivalAverage) endSlot(arrived int64) {
	copy(d.counts[:], d.counts[1:])
	d.counts[slots-1] = arrived
	d.filled = min(d.filled+1, slots)
}

// perSlot returns the average per slot, over the slots that have passed.
func (d *arrivalAverage) perSlot() float64 {
	var sum, weights float64
	for i := slots - d.filled; i < slots; i++ {
		weight := float64(i + 1)
		sum += weight * float64(d.counts[i])
		weights += weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}
