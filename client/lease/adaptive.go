package lease

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// An Adaptive is a [Rate] that finds out by itself how much to ask for: as many per second as arrive, let
// through or not, and those who wait, to be let through within a second. Make one with NewAdaptive. Its
// claim should have no other that tells it what is wanted.
type Adaptive struct {
	rate     *Rate
	claim    Claim
	config   AdaptiveConfig
	_        [64]byte     // what is before is only read; what comes next is written by each call
	arrivals atomic.Int64 // since the part of the window began
	_        [56]byte

	mu     sync.Mutex
	demand demand
	told   float64 // what the claim was told, 0 nothing yet
	since  int     // parts of the window ago
	timer  *time.Timer
	closed bool
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
	a := &Adaptive{rate: NewRate(claim), claim: claim, config: config}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(config.Window/slots, a.turn) // stopped by Close
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

// turn ends a part of the window, and tells the claim if that changed much.
func (a *Adaptive) turn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.rate.line.over() {
		return
	}
	a.demand.turn(a.arrivals.Swap(0))
	a.since++
	wants := a.wants()
	if a.differs(wants) && a.claim.Want(wants) == nil {
		a.told, a.since = wants, 0
	}
	a.timer.Reset(a.config.Window / slots)
}

// wants is how many per second to ask for.
func (a *Adaptive) wants() float64 {
	arriving := a.demand.rate() / (a.config.Window / slots).Seconds()
	return min(max(arriving+float64(a.rate.Waiting()), a.config.Floor), maxWants)
}

// differs reports whether the claim should be told. Chance alone moves an average by a few percent, which
// is not worth a request: half a window must pass, unless the demand has doubled.
func (a *Adaptive) differs(wants float64) bool {
	return a.told == 0 || wants >= 2*a.told || a.since >= slots/2 && math.Abs(wants-a.told) > a.told/10
}
