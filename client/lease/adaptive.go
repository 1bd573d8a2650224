package lease

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// An Adaptive is a [RateLimiter] that finds out by itself how much to ask for: as many per second as arrive, let
// through or not, and those who wait, to be let through within a second. Make one with NewAdaptive. Its
// claim should have no other that tells it what is wanted.
type Adaptive struct {
	rate     *RateLimiter
	claim    Claim
	config   AdaptiveConfig
	_        [64]byte     // what is before is only read; what comes next is written by each call
	arrivals atomic.Int64 // since the part of the window began
	_        [56]byte

	mu         sync.Mutex
	average    arrivalAverage
	asked      float64 // what the claim was told, 0 nothing yet
	slotsSince int     // parts of the window ago
	timer      *time.Timer
	closed     bool
}

// AdaptiveConfig says how an Adaptive estimates. Its zero value works.
type AdaptiveConfig struct {
	// Window is the time over which arrivals are averaged; 0 means 10 s.
	Window time.Duration

	// Floor is the least that is asked for, per second, so that who comes after a pause finds
	// something; 0 means one per Window.
	Floor float64
}

// NewAdaptive returns a limiter that follows the claim, and tells it what to want from a tenth of a window
// on. It looks at the clock ten times per window until Close.
func NewAdaptive(claim Claim, config AdaptiveConfig) *Adaptive {
	if config.Window <= 0 {
		config.Window = 10 * time.Second
	}
	config.Window = max(config.Window, slots*time.Millisecond)
	if !(config.Floor > 0) || math.IsInf(config.Floor, 1) {
		config.Floor = 1 / config.Window.Seconds()
	}
	a := &Adaptive{rate: NewRateLimiter(claim), claim: claim, config: config}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(config.Window/slots, a.endSlot) // stopped by Close
	return a
}

// Allow is [Rate.Allow]. Each call counts as one that arrived.
func (a *Adaptive) Allow() bool {
	a.arrivals.Add(1)
	return a.rate.Allow()
}

// Wait is [Rate.Wait]. Each call counts as one that arrived.
func (a *Adaptive) Wait(ctx context.Context) error {
	a.arrivals.Add(1)
	return a.rate.Wait(ctx)
}

// Waiting returns how many callers wait.
func (a *Adaptive) Waiting() int { return a.rate.Waiting() }

// Close is [Rate.Close]; nothing is asked for any more.
func (a *Adaptive) Close() {
	a.mu.Lock()
	a.closed = true
	a.timer.Stop()
	a.mu.Unlock()
	a.rate.Close()
}

// endSlot ends a part of the window, and tells the claim if that changed much.
func (a *Adaptive) endSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.rate.line.hasEnded() {
		return
	}
	a.average.endSlot(a.arrivals.Swap(0))
	a.slotsSince++
	wants := a.currentWants()
	if a.worthAsking(wants) && a.claim.Want(wants) == nil {
		a.asked, a.slotsSince = wants, 0
	}
	a.timer.Reset(a.config.Window / slots)
}

// currentWants is how many per second to ask for.
func (a *Adaptive) currentWants() float64 {
	arriving := a.average.perSlot() / (a.config.Window / slots).Seconds()
	return min(max(arriving+float64(a.rate.Waiting()), a.config.Floor), maxWants)
}

// worthAsking reports whether the claim should be told. Chance alone moves an average by a few percent, which
// is not worth a request: half a window must pass, unless the demand has doubled.
func (a *Adaptive) worthAsking(wants float64) bool {
	return a.asked == 0 || wants >= 2*a.asked || a.slotsSince >= slots/2 && math.Abs(wants-a.asked) > a.asked/10
}
